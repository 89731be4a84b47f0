"""The rows in flight: they join, take tokens, are asked about, are landed, and leave.

Signals are computed on the device for the whole batch and copied off once a chunk, never per token. On a GPU the next
chunk is under way while the host looks at the last one: a row that ends is found out a chunk late and cut back. The
longer the device takes for a step, the fewer steps make a chunk (`Pace`).
"""

from __future__ import annotations

import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property, partial
from itertools import islice

import numpy as np
import torch
from numpy.typing import NDArray

from bitcal_tts.engines.base import Completion, Decoding, EngineError, Fork, Written
from bitcal_tts.engines.cache import survivors
from bitcal_tts.engines.desk import Host, Lines, Replies
from bitcal_tts.engines.forward import Forward
from bitcal_tts.engines.in_flight import Chunk, InFlight
from bitcal_tts.engines.memory import FullError, OutOfMemoryWarning, may_be_full
from bitcal_tts.engines.pace import Pace
from bitcal_tts.engines.row import Row
from bitcal_tts.engines.slots import Reading, Slots

Prober = Callable[[Sequence[Fork]], Iterator[list[Written]]]
"""Makes the model answer at the places of each fork."""
_LANDING = 4  # steps between looks while answers are being written, where looking is free
_PREFILLED = 2**15  # tokens that are read at once
_AHEAD = 2**29  # bytes that requests may take which are read before there is a slot for them


class Batch:
    """The rows in flight during one `decode` call, longest prompts first."""

    def __init__(
        self,
        model: Forward,
        rows: Sequence[Row],
        decoding: Decoding,
        *,
        batch_size: int,
        chunk_size: int,
        keep_hidden: bool,
        slots_for: Callable[..., Slots],
        host_for: Callable[[], Host],
        probe: Prober,
    ) -> None:
        self.model = model
        self.host_for = host_for
        self.probe = probe
        self.decoding = decoding
        self.batch_size, self.chunk_size = batch_size, chunk_size
        self.keep_hidden = keep_hidden
        self.flights = [InFlight(i, row.prompt_ids, row.request.budget, row.request.seed) for i, row in enumerate(rows)]
        self.waiting = deque(sorted(self.flights, key=lambda flight: (-len(flight.prompt), flight.index)))
        self.most_new = max(flight.budget for flight in self.flights)
        longest = max(len(flight.prompt) + flight.budget for flight in self.flights)
        if model.max_positions is not None and longest > model.max_positions:
            raise EngineError(
                f"a prompt and its budget of {self.most_new} take {longest} positions, "
                f"the model has {model.max_positions}"
            )
        size = range(min(batch_size, len(rows)), batch_size + 1)
        self.slots_for = partial(
            slots_for, decoding=decoding, steps=chunk_size, every=chunk_size, longest=len(self.waiting[0].prompt),
            most_new=self.most_new,
        )  # fmt: skip
        self.slots: Slots = self.slots_for(size)
        self.rows: list[InFlight] = []
        """By slot."""
        self.holes: list[int] = []
        """Slots of rows that have ended, for those that join next: nobody else has to move."""
        self.ready: deque[tuple[InFlight, Reading, int]] = deque()
        """Requests that were read and wait for a slot: with whom, and which of them."""
        self.ended: list[Completion] = []
        """What nobody was told of yet: there is time for that while the device works."""
        self.under_way: Chunk | None = None
        self.given = 0
        """Steps that the device has been given."""
        self.begun = 0.0
        """When the device began with what is under way, if nothing came between."""
        self.pace = Pace(chunk_size)
        self.since_joined = 0
        """Steps since rows could join; where nobody works ahead they join together, a chunk after the last."""
        # Looking at tokens is free on the CPU; elsewhere it would stall the device at every token.
        looks = model.device.type == "cpu" and not self.slots.works_ahead
        self.stop = torch.tensor(sorted(model.eos_token_ids), dtype=torch.long) if looks else None

    def run(self) -> Iterator[Completion]:
        """Decode until nobody is left, yielding each completion as it ends."""
        try:
            while self.rows or self.waiting or self.ready:
                try:
                    yield from self._run()
                except FullError as error:
                    self._catch_up()
                    self._begin_again(error)
        finally:
            if "host" in self.__dict__:
                self.host.close()

    @cached_property
    def host(self) -> Host:
        """Whoever looks after the rows; it takes a while to be there, and by then the device has something to do."""
        return self.host_for()

    def _run(self) -> Iterator[Completion]:
        self._fill()
        while self.rows or self.under_way is not None or self.host.waits:
            done, self.under_way = self.under_way, self._decode() if self.rows else None
            yield from self._tell_ended()
            if not self.slots.works_ahead:
                done, self.under_way = self.under_way, None
            if done is not None:
                self._hand_over(done)
                self._read_ahead()
            self._heed(self._has_time)
            if not self.slots.works_ahead:
                yield from self._tell_ended()
            if self.slots.works_ahead or not self.rows or self.since_joined == self.chunk_size:
                if self._too_many():
                    self._catch_up()
                self._fill()
        yield from self._tell_ended()

    def _tell_ended(self) -> Iterator[Completion]:
        ended, self.ended = self.ended, []
        for done in ended:
            yield self.host.unpacked(done)

    def _has_time(self) -> bool:
        """Whether nothing else is to be done: the device has enough to do for now, or will have nothing more."""
        if self.under_way is None:
            return True
        return time.perf_counter() < self.begun + self.pace.patience(self.under_way.steps.ids.shape[1])

    def _catch_up(self) -> None:
        """Wait for the chunk under way and for all that rows have to say, so that nothing is under way."""
        chunk, self.under_way = self.under_way, None
        if chunk is not None:
            self._hand_over(chunk)
        self._heed(lambda: True)
        self._close_holes()

    def _begin_again(self, error: FullError) -> None:
        """With half of the slots: what was written is read anew, and nothing is lost but the chunk that failed."""
        size = self.slots.size
        if not self.slots.works_ahead or size < 2:
            raise EngineError(
                f"there is no memory for a request of {self.slots.longest} tokens, or for {size} of them: a smaller "
                "--batch or --budget takes less"
            ) from error
        fewer = size // 2
        warnings.warn(
            f"the device's memory is full with {size} requests at a time: going on with {fewer}",
            OutOfMemoryWarning,
            stacklevel=2,
        )
        for slot, row in enumerate(self.rows):
            row.unit = self.slots.unit(slot)
        self.waiting.extendleft(row for row, _, _ in reversed(self.ready))
        self.waiting.extendleft(reversed(self.rows))
        self.rows = []
        self.ready.clear()
        self.slots.release()
        self.slots = self.slots_for(range(fewer, fewer + 1))

    @may_be_full()
    def _decode(self) -> Chunk:
        """Have the device decode a chunk; or until somebody ends, where that is seen at once."""
        steps = self.pace.steps
        if self.stop is not None:
            steps = min(steps, self.chunk_size - self.since_joined)
            steps = min(steps, *(row.budget - len(row.written) for row in self.rows if not row.lands), steps)
            steps = min(steps, _LANDING) if any(row.lands for row in self.rows) else steps
        ran = self.slots.run(steps, stop=self.stop)
        self.given += ran
        self.since_joined += ran
        steps_run = self.slots.take(keep_hidden=self.keep_hidden)
        return Chunk(list(self.rows), [row.lands for row in self.rows], steps_run, self.given)

    def _hand_over(self, chunk: Chunk) -> None:
        """Let whoever looks after the rows have what they wrote, as far as it is theirs."""
        chunk.steps.wait()
        self.begun = time.perf_counter()
        seconds = chunk.steps.seconds
        if seconds is not None:
            self.pace.note(chunk.steps.ids.shape[1], seconds, len(chunk.rows))
        own = [
            line
            for line, (row, lands) in enumerate(zip(chunk.rows, chunk.lands, strict=True))
            if not row.over and row.lands == lands
        ]
        if not own:
            return
        ids, signals, cosines, hidden = (
            None if tensor is None else tensor.cpu().numpy() for tensor in chunk.steps.tensors
        )
        assert ids is not None and signals is not None and cosines is not None
        lines = Lines([row.index for row in chunk.rows], chunk.lands, ids, signals, cosines, hidden, chunk.by)
        if len(own) < len(chunk.rows):
            lines = lines.part(own)
        for index, tokens in zip(lines.rows, lines.ids.tolist(), strict=True):
            self.flights[index].written += tokens
        self.host.take(lines)

    def _heed(self, patient: Callable[[], bool]) -> None:
        """Do what rows say: some are answered, some are landed, some end and leave."""
        while replies := self.host.replies(patient):
            self._answer_questions(replies)
            self._land(replies)
            for index, reply in replies.items():
                if reply.done is None:
                    continue
                row = self.flights[index]
                row.over = True
                assert row.joined is not None
                reply.done.seconds = time.perf_counter() - row.joined
                reply.done.decoded += row.past + self.given - reply.by
                self.slots.lengths[row.slot] = 0
                self.holes.append(row.slot)
                self.ended.append(reply.done)
            if not self.slots.works_ahead:
                self._close_holes()

    def _answer_questions(self, replies: Replies) -> None:
        """What rows ask of the model is found out for all of them together."""
        asking = {index: reply.asks for index, reply in replies.items() if reply.asks is not None}
        if asking:
            answers = zip(asking, self.probe(list(asking.values())), strict=True)
            self.host.tell({index: written.probe() for index, (written,) in answers})

    def _land(self, replies: Replies) -> None:
        """Rows that were halted before their answer was written go on in their slots and write it."""
        landing = []
        for index, reply in replies.items():
            if reply.lands is None:
                continue
            row = self.flights[index]
            del row.written[reply.at :]
            row.lands, row.past = True, row.past + self.given - reply.by
            row.landing, row.landed_at = reply.lands, reply.at
            landing.append(row)
        if landing:
            self._force(landing)

    def _force(self, rows: Sequence[InFlight]) -> None:
        """Have rows write what is left of their landings."""
        left = [row.landing[len(row.written) - row.landed_at :] for row in rows]
        self.slots.force([row.slot for row in rows], [row.length for row in rows], left)

    def _close_holes(self) -> None:
        holes, self.holes = self.holes, []
        self._keep_all_but(set(holes))

    def _keep_all_but(self, leaving: set[int]) -> None:
        if leaving:
            order = survivors(len(self.rows), leaving)
            self.rows = [self.rows[i] for i in order]
            for slot, row in enumerate(self.rows):
                row.slot = slot
            self.slots.keep(order)

    def _too_many(self) -> bool:
        """Whether the rows in flight outgrow the memory there is for so many of them."""
        return len(self.rows) - len(self.holes) > self._room_for()

    def _room_for(self, newcomer: int = 0) -> int:
        """How many rows there is room for, at least one, if the longest of them or a newcomer goes on for a while."""
        return max(1, self.slots.room_for(max(self.slots.longest, newcomer) + 4 * self.chunk_size))

    def _make_room(self) -> None:
        """Rows that there is no room for any more wait again, those that joined last first, and lose nothing."""
        if self._too_many():
            self._close_holes()
            over = len(self.rows) - self._room_for()
            last = [i for i, row in enumerate(self.rows) if not row.lands][-over:]
            for i in reversed(last):
                self.rows[i].unit = self.slots.unit(i)
                self.waiting.appendleft(self.rows[i])
            self._keep_all_but(set(last))
        elif (self.waiting or self.ready) and self.rows:
            self.slots.narrow(self.slots.longest + 4 * self.chunk_size)

    @may_be_full()
    def _fill(self) -> None:
        """Have as many rows in flight as there is room for."""
        self.since_joined = 0
        self._make_room()
        self._admit()
        self._close_holes()

    def _admit(self) -> None:
        """Fill free slots from the queue."""
        while self.ready or self.waiting:
            following = self.ready[0][0] if self.ready else self.waiting[0]
            free = self._room_for(following.length) - len(self.rows) + len(self.holes)
            if free <= 0:
                return
            if not self.ready:
                self._read(free, _PREFILLED)
            self._join(free)

    def _read_ahead(self) -> None:
        """Have the device read who is next, once for many, while the host looks at what it wrote."""
        tokens = min(_PREFILLED, _AHEAD // self.model.bytes_per_token)
        few = len(self.ready) <= len(self.rows) // 8
        if self.slots.works_ahead and few and self.waiting and self.waiting[0].length <= tokens:
            with suppress(torch.OutOfMemoryError):  # then not ahead
                self._read(self.batch_size, tokens)

    def _read(self, most: int, tokens: int) -> None:
        """Read the next in the queue, so many rows and tokens at most, but one at least."""
        rows: list[InFlight] = []
        longest = 0
        for row in islice(self.waiting, most):
            longest = max(longest, row.length)
            if rows and longest * (len(rows) + 1) > tokens:
                break
            rows.append(row)
        if rows:
            draws = np.stack([self._draws(row.seed) for row in rows]) if self.decoding.temperature > 0 else None
            reading = self.slots.read([row.prompt + row.written for row in rows], draws)
            for i in range(len(rows)):
                self.ready.append((self.waiting.popleft(), reading, i))

    def _join(self, most: int) -> None:
        """Give slots to the first that are ready, as far as they were read together."""
        reading, which, rows = self.ready[0][1], list[int](), list[InFlight]()
        for row, other, i in islice(self.ready, most):
            if other is not reading:
                break
            rows.append(row)
            which.append(i)
        now = time.perf_counter()
        holes = self.holes[: len(rows)]
        slots = [*holes, *range(len(self.rows), len(self.rows) + len(rows) - len(holes))]
        self.slots.join(reading, which, slots, [len(row.prompt) for row in rows])
        for _ in rows:
            self.ready.popleft()
        del self.holes[: len(holes)]
        self.rows += rows[len(holes) :]
        for slot, row in zip(slots, rows, strict=True):
            row.joined, row.slot = now if row.joined is None else row.joined, slot
            self.rows[slot] = row
            if row.unit is not None:
                self.slots.set_unit(slot, row.unit)
                row.unit = None
        landing = [row for row in rows if row.lands]
        if landing:
            self._force(landing)

    def _draws(self, seed: int) -> NDArray[np.float64]:
        return np.random.default_rng([self.decoding.seed, seed]).random(self.most_new)
