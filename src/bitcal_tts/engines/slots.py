"""The device's side of decoding: requests in slots, a token for all of them at a time, and what is known of each.

Everything a step reads and writes lies in buffers that stay where they are, so that on a GPU a step is captured once
for a number of rows and a width of the cache, and replayed: Python and the launching of kernels take no part in it.
Nothing here waits for the device but `Steps.wait`. (`buffer[at] = 0` would: the number is copied to the device, and the
copy waited for; `index_fill_` takes it along with the kernel.)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from bitcal_tts.engines.base import Decoding
from bitcal_tts.engines.cache import SlotCache, columns_on_device, on_device
from bitcal_tts.engines.forward import Forward
from bitcal_tts.engines.graphs import CapturedSteps
from bitcal_tts.engines.memory import room
from bitcal_tts.engines.sampling import N_SIGNALS, choose, token_signals, unit_rows
from bitcal_tts.engines.steps import HostCopies, Steps, event_now

Tensor = torch.Tensor
_FORCED = 32  # tokens of a landing that buffers are made for; they grow
_COLUMNS = 64  # widths in half precision on a processor are multiples of this
_SPARE = 2  # a cache that takes less than one in so many of the bytes there are is made whole at once


class Reading(NamedTuple):
    """Requests that were read together: their cache, the logits and hidden states at their ends, and their lengths."""

    cache: Any
    logits: Tensor
    hidden: Tensor
    lengths: list[int]
    draws: Tensor | None = None
    """Numbers that each of them samples by, one for every token that it may write, where they sample."""


class Slots:
    """Requests being decoded.

    Args:
        model: Decodes.
        size: Slots, at most; fewer where memory does not do.
        decoding: How tokens are chosen.
        steps: Most steps between two looks of the host.
        every: Hidden states are compared every so many tokens of a request, no fewer than `steps`; None: never.
        longest: Most tokens that a request has when it joins.
        most_new: Most tokens that one may write.
        capture: Whether steps are worth being captured, where they can be.
    """

    def __init__(
        self,
        model: Forward,
        size: int,
        decoding: Decoding,
        *,
        steps: int,
        longest: int,
        most_new: int,
        every: int | None = None,
        capture: bool = True,
    ) -> None:
        self._model, self._decoding = model, decoding
        self._most_new, self._most = most_new, size
        self.device = model.device
        self._steps, self._every = steps, every
        self._whole = longest + most_new + 2 * steps
        self._cache: SlotCache | None = None
        self.size = size
        """Slots that there is room for now."""
        self.count = 0
        self.lengths: NDArray[np.int64] = np.zeros(size, dtype=np.int64)
        """Columns of each slot that are taken."""
        self._captured = CapturedSteps(self._step, capture=capture) if self.device.type == "cuda" else None
        self._due = False  # tokens were chosen that the model has not read yet
        self._filled = 0
        self._begun: Any = None
        self._copies = HostCopies()

    @property
    def longest(self) -> int:
        """Tokens of the longest request, those under way included."""
        return int(self.lengths[: self.count].max(initial=0))

    def room_for(self, width: int) -> int:
        """How many requests of so many tokens there is room for."""
        if self._cache is not None and width <= self._cache.capacity:
            return self.size
        return min(self._most, self._fitting(bucket(width)))

    def _fitting(self, width: int) -> int:
        held = 0 if self._cache is None else self._cache.size * self._cache.capacity
        return (room(self.device) // self._model.bytes_per_token + held) // width

    @property
    def works_ahead(self) -> bool:
        """Whether the device goes on by itself while the host looks at what it wrote."""
        return self._captured is not None

    def read(self, texts: Sequence[list[int]], draws: Any = None) -> Reading:
        """Read requests, token ids of each, what it has already written included; and bring along what it draws."""
        there = None if draws is None else on_device(draws, self.device)
        return Reading(*self._model.prefill(list(texts)), [len(text) for text in texts], there)

    def join(self, reading: Reading, which: Sequence[int], slots: Sequence[int], prompts: Sequence[int]) -> None:
        """Have some of the requests that were read together write on in their slots.

        Args:
            reading: Those that were read.
            which: Some of them.
            slots: Free ones, or the next.
            prompts: How many tokens of each are its prompt.
        """
        self._read_on()
        lengths = [reading.lengths[i] for i in which]
        width = max(lengths)
        if self._cache is None:
            whole = bucket(self._whole)
            begin = whole if whole * self._most * _SPARE <= self._fitting(1) else bucket(width + 2 * self._steps)
            self.size = max(len(lengths), min(self._most, self._fitting(begin)))
            self._allocate(reading, begin)
        assert self._cache is not None
        self.reserve(width + 1)
        self._place(reading, which, lengths, slots, prompts)

    def fork(self, texts: Sequence[list[int]], rows: Sequence[int], lengths: Sequence[int]) -> Tensor:
        """Read texts once, and have a slot for each of `rows` write on after the first `lengths` tokens of its text.

        Returns the logits at the ends of the texts.
        """
        reading = self.read(texts)
        self._allocate(reading, self._whole)
        self._place(reading, rows, lengths, range(len(rows)), lengths)
        return reading.logits

    def _place(
        self,
        reading: Reading,
        which: Sequence[int],
        lengths: Sequence[int],
        slots: Sequence[int],
        prompts: Sequence[int],
    ) -> None:
        """Give slots to some of the texts that were read, of each its first tokens."""
        assert self._cache is not None
        padded = max(reading.lengths)
        begins = [padded - reading.lengths[i] for i in which]
        rows, at, begin, length, prompt = columns_on_device(self.device, which, slots, begins, lengths, prompts)
        self._cache.put(reading.cache, rows, begin, at, max(lengths))
        self.lengths[list(slots)] = lengths
        self.count = max(self.count, 1 + max(slots))
        self._positions[at], self._prompts[at] = length, prompt
        self._logits[at], self._hidden[at] = reading.logits[rows].to(self._logits.dtype), reading.hidden[rows]
        self._unit.index_fill_(0, at, 0.0)  # nothing to compare with yet
        self._greedy.index_fill_(0, at, False)
        self._n_forced.index_fill_(0, at, 0)
        if reading.draws is not None:
            self._uniform[at, : reading.draws.shape[1]] = reading.draws[rows]

    def _allocate(self, like: Reading, capacity: int) -> None:
        self._cache = SlotCache(self.size, like.cache, capacity)
        n, device = self._most, self.device

        def zeros(*shape: int, dtype: torch.dtype = torch.long) -> Tensor:
            return torch.zeros(n, *shape, dtype=dtype, device=device)

        self._logits, self._hidden = (one.new_zeros(n, one.shape[-1]) for one in (like.logits, like.hidden))
        self._boundary, self._unit = torch.zeros_like(self._hidden), torch.zeros_like(self._hidden)
        """Hidden states at the last boundary, and scaled to length one."""
        self._cosines = torch.full((n,), math.nan, device=device)
        """With the boundary before, of requests that have come to one since anybody took what was written."""
        self._last, self._positions, self._prompts = zeros(), zeros(), zeros()
        self._greedy = zeros(dtype=torch.bool)
        self._forced, self._n_forced, self._at_forced = zeros(_FORCED), zeros(), zeros()
        self._uniform = zeros(self._most_new if self._decoding.temperature > 0 else 0, dtype=torch.float64)
        self._ids = zeros(self._steps)
        self._signals = zeros(self._steps, N_SIGNALS, dtype=torch.float32)
        self._column = torch.zeros(1, dtype=torch.long, device=device)

    def force(self, slots: Sequence[int], lengths: Sequence[int], forced: Sequence[list[int]]) -> None:
        """Cut requests back to so many tokens, append some, and let them write on greedily."""
        self._read_on()
        longest = max(map(len, forced))
        if longest > self._forced.shape[1]:
            self._forced = torch.nn.functional.pad(self._forced, (0, longest - self._forced.shape[1]))
            self._forget_captured()
        numbers = np.zeros((len(slots), 3 + self._forced.shape[1]), dtype=np.int64)
        for line, slot, length, ids in zip(numbers, slots, lengths, forced, strict=True):
            line[: 3 + len(ids)] = [slot, length, len(ids), *ids]
        there = on_device(numbers, self.device)
        at = there[:, 0]
        self._positions[at], self._n_forced[at], self._forced[at] = there[:, 1], there[:, 2], there[:, 3:]
        self._at_forced.index_fill_(0, at, 0)
        self._greedy.index_fill_(0, at, True)
        self.lengths[list(slots)] = lengths

    def keep(self, order: Sequence[int]) -> None:
        """Keep the requests in the slots `order`, which moves few of them (see `survivors`)."""
        to = [new for new, old in enumerate(order) if new != old]
        slots = [order[new] for new in to]
        if to and self._cache is not None:
            here, there = columns_on_device(self.device, slots, to)
            self._cache.move(there, here, int(self.lengths[slots].max()))
            self.lengths[to] = self.lengths[slots]
            for buffer in (
                self._logits, self._hidden, self._unit, self._positions, self._prompts, self._greedy, self._forced,
                self._n_forced, self._at_forced, self._uniform, self._last,
            ):  # fmt: skip
                buffer[there] = buffer[here]
        self.count = len(order)
        self._due = self._due and self.count > 0

    def reserve(self, width: int) -> None:
        """Have columns for requests of so many tokens, and give up slots that there is no room for then."""
        assert self._cache is not None
        if width > self._cache.capacity:
            self._resize(bucket(width))

    def narrow(self, width: int) -> None:
        """Where requests have become much shorter than there is room for, have more of them instead."""
        if self._cache is not None and self.size < self._most and 2 * bucket(width) <= self._cache.capacity:
            self._resize(bucket(width))

    def _resize(self, width: int) -> None:
        assert self._cache is not None
        self._forget_captured()
        self.size = max(self.count, 1, min(self._most, self._fitting(width)))
        self._cache.resize(self.size, width)

    def run(self, steps: int, *, stop: Tensor | None = None) -> int:
        """Have every request write up to `steps` tokens, fewer where one writes a token of `stop`; how many."""
        if self._captured is not None:
            self._replay(steps)
            return steps
        for n in range(1, steps + 1):
            self._read_on()
            self._choose(self.count)
            self._due = True
            self._filled += 1
            if stop is not None and bool(torch.isin(self._last[: self.count], stop).any()):
                return n
        return steps

    def take(self, *, keep_hidden: bool = False) -> Steps:
        """What was written since the last time, on the host as soon as the device is done."""
        n, filled = self.count, self._filled
        self._copies.turn()
        ids = self._copies.of("ids", self._ids[:n, :filled])
        signals = self._copies.of("signals", self._signals[:n, :filled])
        cosines = self._copies.of("cosines", self._cosines[:n])
        hidden = self._copies.of("hidden", self._boundary[:n]) if keep_hidden else None
        self._filled = 0
        self._column.zero_()
        self._cosines.fill_(math.nan)
        if self.device.type != "cuda":
            return Steps(ids, signals, cosines, hidden)
        return Steps(ids, signals, cosines, hidden, self._begun, event_now())

    def suits(self, size: range, decoding: Decoding, *, steps: int, every: int, longest: int, most_new: int) -> bool:
        """Whether these slots, when they are free, will do for other requests; `size`: so many slots."""
        as_long = longest + most_new + 2 * steps <= self._whole and most_new <= self._most_new
        alike = (decoding, steps, every) == (self._decoding, self._steps, self._every)
        return self._most in size and alike and as_long

    def clear(self) -> None:
        """Nobody is in them any more; what was captured stays."""
        self.count, self._due, self._filled = 0, False, 0
        if self._cache is not None:
            self._column.zero_()
            self._cosines.fill_(math.nan)

    def release(self) -> None:
        """Give the memory back."""
        self._forget_captured()
        if self._cache is not None:
            self._cache.release()

    def _forget_captured(self) -> None:
        if self._captured is not None:
            self._captured.forget()

    def unit(self, slot: int) -> Tensor:
        """What the next comparison of hidden states is with, for a request that will come back."""
        return self._unit[slot].clone()

    def set_unit(self, slot: int, unit: Tensor) -> None:
        """Have a request that has come back compared with what it was."""
        self._unit[slot] = unit

    def _compare(self, n: int, every: int) -> None:
        """Where a request comes to a multiple of so many tokens: its hidden state with the one so many before."""
        written = self._positions[:n] - self._prompts[:n] + 1
        there = written % every == 0
        if self.device.type == "cpu" and not there.any():
            return
        hidden, before = self._hidden[:n], self._unit[:n]
        unit = unit_rows(hidden)
        # At its first boundary a request has nothing to be compared with.
        self._cosines[:n] = torch.where(there & (written > every), (unit * before).sum(-1), self._cosines[:n])
        self._unit[:n] = torch.where(there[:, None], unit, before)
        self._boundary[:n] = torch.where(there[:, None], hidden, self._boundary[:n])

    def _read_on(self) -> None:
        """Let the model read what was chosen last."""
        if self._due:
            width = self.longest + 1
            self.reserve(width)
            self._read(self.count, self._read_at_once(width))
            self.lengths[: self.count] += 1
            self._due = False

    def _read_at_once(self, width: int) -> int:
        """Columns that a processor reads of requests of so many: of a few numbers, where each would cost memory.

        In half precision oneDNN makes a kernel of some megabytes for every shape that it multiplies, and keeps them.
        """
        assert self._cache is not None
        if self._cache.dtype is torch.float32:
            return width
        return min(self._cache.capacity, -(-width // _COLUMNS) * _COLUMNS)

    def _replay(self, steps: int) -> None:
        """Whole steps, captured; rows up to a power of two, of which the last are nobody's."""
        assert self._captured is not None and self._cache is not None
        width = self.longest + steps
        self.reserve(width)
        rows = min(self.size, few_sizes(self.count))
        self._begun = event_now()
        for _ in range(steps):
            self._captured.run(rows, min(bucket(width), self._cache.capacity))
        self.lengths[: self.count] += steps
        self._filled += steps

    def _step(self, rows: int, width: int) -> None:
        self._choose(rows)
        self._read(rows, width)

    def _choose(self, n: int) -> None:
        """The next token of each of the first rows, and what is known of it."""
        logits = self._logits[:n]
        if self._decoding.temperature > 0:
            tokens = choose(logits, self._decoding, self._draws(n))
            tokens = torch.where(self._greedy[:n], logits.argmax(-1), tokens)
        else:
            tokens = choose(logits, self._decoding, None)
        at = self._at_forced[:n]
        forced = self._forced[:n].gather(1, at.clamp_max(self._forced.shape[1] - 1)[:, None])[:, 0]
        tokens = torch.where(at < self._n_forced[:n], forced, tokens)
        self._at_forced[:n] += 1
        self._ids[:n].index_copy_(1, self._column, tokens[:, None])
        self._signals[:n].index_copy_(1, self._column, token_signals(logits, tokens)[:, None])
        self._last[:n] = tokens
        self._column += 1
        if self._every is not None:
            self._compare(n, self._every)

    def _draws(self, n: int) -> Tensor:
        """Each row's next draw: its own sequence at the number of tokens it has."""
        at = (self._positions[:n] - self._prompts[:n]).clamp(0, self._most_new - 1)
        return self._uniform[:n].gather(1, at[:, None])[:, 0]

    def _read(self, n: int, width: int) -> None:
        """Let the model read the tokens of the first rows, with the first columns of their slots."""
        assert self._cache is not None
        # A row that has ended, and goes on until the host has seen it, stays within its slot.
        self._cache.columns, self._cache.width = self._positions[:n].clamp_max(width - 1), width
        logits, hidden = self._model.step(self._last[:n], self._cache)
        self._logits[:n], self._hidden[:n] = logits, hidden
        self._positions[:n] += 1


def bucket(width: int) -> int:
    """The next of a few widths: multiples of 256, then of an eighth to a quarter of themselves."""
    step = max(256, 1 << max(0, width.bit_length() - 3))
    return -(-width // step) * step


def few_sizes(count: int) -> int:
    """The next of a few numbers of rows: powers of two, small ones of four."""
    power = (count - 1).bit_length()
    return 1 << (power if power >= 7 else power + power % 2)
