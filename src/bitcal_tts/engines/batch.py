"""The rows in flight: they join, take tokens, are asked about, are landed, and leave.

Signals are computed on the device for the whole batch and copied off once a chunk, never per token. On a GPU the next
chunk is under way while the host looks at the last one: a row that ends is found out a chunk late and cut back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from bitcal_tts.engines.base import Decoding, EngineError, Fork, Request, Written
from bitcal_tts.engines.cache import survivors
from bitcal_tts.engines.forward import Forward
from bitcal_tts.engines.row import Row
from bitcal_tts.engines.slots import Slots, Steps
from bitcal_tts.halting.session import Ask, Force

Prober = Callable[[Sequence[Fork]], Iterator[list[Written]]]
"""Makes the model answer at the places of each fork."""
_LANDING = 4  # steps between looks while answers are being written, where looking is free
_PREFILLED = 2**15  # tokens that are read at once


@dataclass
class _Chunk:
    """Steps that are under way, or done, and whose they are."""

    rows: list[Row]
    steps: Steps
    boundary: bool


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
        capture: bool,
        probe: Prober,
    ) -> None:
        self.model = model
        self.probe = probe
        self.decoding = decoding
        self.chunk_size = chunk_size
        self.keep_hidden = keep_hidden
        self.eos = model.eos_token_ids
        order = sorted(range(len(rows)), key=lambda i: (-len(rows[i].prompt_ids), i))
        self.waiting = deque(rows[i] for i in order)
        self.most_new = max(row.request.budget for row in rows)
        longest = max(len(row.prompt_ids) + row.request.budget for row in rows)
        if model.max_positions is not None and longest > model.max_positions:
            raise EngineError(
                f"a prompt and its budget of {self.most_new} take {longest} positions, "
                f"the model has {model.max_positions}"
            )
        longest_prompt = max(len(row.prompt_ids) for row in rows)
        self.slots = Slots(
            model, min(batch_size, len(rows)), decoding,
            steps=chunk_size, longest=longest_prompt, most_new=self.most_new, capture=capture,
        )  # fmt: skip
        self.rows: list[Row] = []
        self.phase = 0
        """Steps since the last boundary."""
        # Looking at tokens is free on the CPU; elsewhere it would stall the device at every token.
        eos = torch.tensor(sorted(self.eos), dtype=torch.long)
        self.stop = eos if model.device.type == "cpu" else None

    def run(self) -> Iterator[Row]:
        """Decode until nobody is left, yielding each row as it ends."""
        try:
            yield from self._run()
        finally:
            self.slots.release()

    def _run(self) -> Iterator[Row]:
        under_way: _Chunk | None = None
        self._admit()
        while self.rows or under_way is not None:
            done, under_way = under_way, self._decode() if self.rows else None
            if not self.slots.works_ahead:
                done, under_way = under_way, None
            if done is not None:
                yield from self._look(done, ahead=under_way is not None)
            if not self.rows:
                self.phase = 0
            if self.phase == 0:
                if self._too_long() and under_way is not None:
                    yield from self._look(under_way, ahead=False)
                    under_way = None
                self._make_room()
                self._admit()

    def _decode(self) -> _Chunk:
        """Have the device decode up to the next boundary; or until somebody ends, where that is seen at once."""
        steps = self.chunk_size - self.phase
        if self.stop is not None:
            steps = min(steps, *(row.left for row in self.rows if not row.lands), steps)
            steps = min(steps, _LANDING) if any(row.lands for row in self.rows) else steps
        self.phase += self.slots.run(max(1, steps), stop=self.stop)
        boundary = self.phase == self.chunk_size
        self.phase = 0 if boundary else self.phase
        return _Chunk(list(self.rows), self.slots.take(boundary=boundary, keep_hidden=self.keep_hidden), boundary)

    def _look(self, chunk: _Chunk, *, ahead: bool) -> Iterator[Row]:
        """Let rows take what they wrote: some end and leave, some are landed."""
        chunk.steps.wait()
        ids, signals = chunk.steps.ids.tolist(), chunk.steps.signals.tolist()
        cosines = None if chunk.steps.cosines is None else chunk.steps.cosines.tolist()
        vectors = None if chunk.steps.hidden is None else chunk.steps.hidden.float().cpu().numpy()
        for i, row in enumerate(chunk.rows):
            if row.over:
                continue
            if row.stale:
                row.stale -= 1
                continue
            if vectors is not None and not row.lands:
                row.done.hidden.append(vectors[i])
            compared = cosines is not None and len(row.done.token_ids) + len(ids[i]) > self.chunk_size
            cosine = cosines[i] if cosines is not None and compared else None
            row.take(ids[i], signals[i], self.eos, cosine, boundary=chunk.boundary)
        self._answer_questions()
        self._land(ahead)
        leaving = {i for i, row in enumerate(self.rows) if row.over}
        if leaving:
            for i in sorted(leaving):
                self.rows[i].past_end = self.chunk_size if ahead else 0
                yield self.rows[i]
            self._keep_all_but(leaving)

    def _answer_questions(self) -> None:
        """What rows ask of the model is found out for all of them together, until none asks any more."""
        while asking := [row for row in self.rows if isinstance(row.directive, Ask)]:
            for row, (written,) in zip(asking, self.probe([row.fork() for row in asking]), strict=True):
                row.tell(written.probe())

    def _land(self, ahead: bool) -> None:
        """Rows that were halted before their answer was written go on in their slots and write it."""
        landing = [i for i, row in enumerate(self.rows) if isinstance(row.directive, Force)]
        if not landing:
            return
        for i in landing:
            self.rows[i].stale = int(ahead)
        lengths = [self.rows[i].length for i in landing]
        self.slots.force(landing, lengths, [self.rows[i].land() for i in landing])

    def _keep_all_but(self, leaving: set[int]) -> None:
        order = survivors(len(self.rows), leaving)
        self.rows = [self.rows[i] for i in order]
        self.slots.keep(order)

    def _too_long(self) -> bool:
        """Whether the rows in flight outgrow the memory there is for so many of them."""
        return len(self.rows) > 1 and len(self.rows) > self._room_for(self.rows)

    def _room_for(self, rows: Sequence[Row]) -> int:
        """How many rows there is room for, if the longest of these goes on for two chunks."""
        longest = max((row.length for row in rows), default=0)
        return self.slots.room_for(longest + 4 * self.chunk_size)

    def _make_room(self) -> None:
        """Rows that there is no room for any more wait again, those that joined last first, and lose nothing."""
        if self._too_long():
            over = len(self.rows) - self._room_for(self.rows)
            last = [i for i, row in enumerate(self.rows) if not row.lands][-over:]
            for i in reversed(last):
                self.rows[i].unit = self.slots.unit(i)
                self.waiting.appendleft(self.rows[i])
            self._keep_all_but(set(last))
        elif self.waiting and self.rows:
            self.slots.narrow(max(row.length for row in self.rows) + 4 * self.chunk_size)

    def _admit(self) -> None:
        """Fill free slots from the queue."""
        while self.waiting:
            rows: list[Row] = []
            most = self._room_for([*self.rows, self.waiting[0]])
            free = max(most - len(self.rows), 0 if self.rows else 1)
            while self.waiting and len(rows) < free:
                longest = max(row.length for row in (*rows, self.waiting[0]))
                if rows and longest * (len(rows) + 1) > _PREFILLED:
                    break
                rows.append(self.waiting.popleft())
            if not rows:
                return
            self._join(rows)

    def _join(self, rows: list[Row]) -> None:
        for row in rows:
            row.join()
        slots = range(len(self.rows), len(self.rows) + len(rows))
        draws = np.stack([self._draws(row.request) for row in rows]) if self.decoding.temperature > 0 else None
        self.slots.join([row.so_far for row in rows], slots, [len(row.prompt_ids) for row in rows], draws)
        for slot, row in zip(slots, rows, strict=True):
            if row.unit is not None:
                self.slots.set_unit(slot, row.unit)
                row.unit = None
        self.rows += rows

    def _draws(self, request: Request) -> NDArray[np.float64]:
        rng = np.random.default_rng([self.decoding.seed, request.seed])
        return rng.random(self.most_new)
