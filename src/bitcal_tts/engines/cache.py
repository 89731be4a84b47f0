"""A key-value cache whose rows come and go.

Transformers' own dynamic cache copies itself at every token and keeps finished rows. Here rows are
right-aligned in one preallocated buffer: a token is written in place, a row that leaves is overwritten by
the last one, and a row that joins is copied in once, after its prefill.
"""

from __future__ import annotations

import torch
from transformers.cache_utils import Cache, DynamicLayer

Tensor = torch.Tensor


class _RowLayer(DynamicLayer):  # type: ignore[misc]
    """One layer's buffers, read through the window its owner holds."""

    def __init__(self, owner: RowCache) -> None:
        super().__init__()
        self.owner = owner

    def update(self, key_states: Tensor, value_states: Tensor, *_: object, **__: object) -> tuple[Tensor, Tensor]:
        """Write one token for every row and return the window of all keys and values."""
        o = self.owner
        rows, at = o.count, o.end
        self.keys[:rows, :, at] = key_states[:, :, 0]
        self.values[:rows, :, at] = value_states[:, :, 0]
        return self.keys[:rows, :, o.begin : at + 1], self.values[:rows, :, o.begin : at + 1]

    def get_seq_length(self, *_: object) -> int:
        """Tokens in the window."""
        return self.owner.end - self.owner.begin

    def get_mask_sizes(self, query_length: int, *_: object) -> tuple[int, int]:
        """Width of the window with the query, and its offset."""
        return self.get_seq_length() + int(query_length), 0


class RowCache(Cache):  # type: ignore[misc]
    """Right-aligned rows: row r holds columns `starts[r] .. end`."""

    def __init__(self, *, rows: int, longest_prompt: int, max_new: int) -> None:
        super().__init__(layers=[])
        self.rows = rows
        self.longest_prompt = longest_prompt
        # Room to decode a while before the window is moved back to the front: the move is amortised away.
        self.capacity = longest_prompt + max_new + 128
        self.count = 0
        self.begin = longest_prompt
        self.end = longest_prompt
        self.starts: list[int] = []
        self.mask: Tensor | None = None

    def admit(self, prefill: Cache, lengths: list[int]) -> None:
        """Copy left-padded, prefilled prompts in as new rows."""
        first, last = self._join(prefill, lengths)
        width = max(lengths)
        for mine, theirs in zip(self.layers, prefill.layers, strict=True):
            for buffer, new in ((mine.keys, theirs.keys), (mine.values, theirs.values)):
                # Masked columns weigh nothing, but must be finite: what was never written may not be.
                buffer[first:last, :, self.begin : self.end - width] = 0
                buffer[first:last, :, self.end - width : self.end] = new[:, :, -width:]

    def admit_copies(self, prefill: Cache, rows: list[int], ends: list[int], lengths: list[int]) -> None:
        """Copy parts of prefilled texts in as new rows: of text `rows[i]` the `lengths[i]` columns before `ends[i]`."""
        first, last = self._join(prefill, lengths)
        device = prefill.layers[0].keys.device
        row = torch.tensor(rows, device=device)
        # What lies before a text is masked; any column of it will do, for it is finite.
        back = torch.arange(-max(lengths), 0, device=device)
        column = (torch.tensor(ends, device=device)[:, None] + back).clamp_min(0)
        for mine, theirs in zip(self.layers, prefill.layers, strict=True):
            for buffer, new in ((mine.keys, theirs.keys), (mine.values, theirs.values)):
                buffer[first:last, :, self.begin : self.end - len(back)] = 0
                for head in range(new.shape[1]):  # one at a time: the copy is in memory once
                    buffer[first:last, head, self.end - len(back) : self.end] = new[row[:, None], head, column]

    def _join(self, prefill: Cache, lengths: list[int]) -> tuple[int, int]:
        """Make room for new rows of these lengths, and mask what lies before them; which rows they are."""
        if max(lengths) > self.longest_prompt:
            raise ValueError(f"a prompt of {max(lengths)} tokens does not fit a cache made for {self.longest_prompt}")
        first, last = self.count, self.count + len(lengths)
        if not self.layers:
            self._allocate(prefill)
        assert self.mask is not None
        self.starts += [self.end - n for n in lengths]
        self.begin = min(self.starts)
        floor = torch.finfo(self.mask.dtype).min
        columns = torch.arange(self.capacity, device=self.mask.device)
        starts = torch.tensor(self.starts[first:], device=self.mask.device)
        self.mask[first:last, 0, 0] = torch.where(columns >= starts[:, None], 0.0, floor).to(self.mask.dtype)
        self.count = last
        return first, last

    def keep(self, order: list[int]) -> None:
        """Keep the rows in `order`, which moves few of them (see `survivors`)."""
        moves = [(to, row) for to, row in enumerate(order) if to != row]
        if moves and self.mask is not None:
            to, row = [m[0] for m in moves], [m[1] for m in moves]
            window = slice(self.begin, self.end)
            for layer in self.layers:
                layer.keys[to, :, window] = layer.keys[row, :, window]
                layer.values[to, :, window] = layer.values[row, :, window]
            self.mask[to] = self.mask[row]
        self.starts = [self.starts[row] for row in order]
        self.count = len(order)
        self.begin = min(self.starts, default=self.end)

    def release(self) -> None:
        """Let the buffers go now: layers and cache hold each other, and would wait for the garbage collector."""
        self.layers.clear()
        self.mask = None

    def advance(self) -> None:
        """After a forward pass: its token is part of every row."""
        self.end += 1
        if self.end == self.capacity:
            self._rewind()

    def window_mask(self) -> Tensor | None:
        """Additive mask of the next forward pass, [rows, 1, 1, width]; None where no row is padded."""
        if self.mask is None or all(start == self.begin for start in self.starts):
            return None
        return self.mask[: self.count, :, :, self.begin : self.end + 1]

    def _allocate(self, prefill: Cache) -> None:
        for theirs in prefill.layers:
            _, heads, _, size = theirs.keys.shape
            mine = _RowLayer(self)
            mine.keys = theirs.keys.new_empty(self.rows, heads, self.capacity, size)
            mine.values = theirs.values.new_empty(self.rows, heads, self.capacity, theirs.values.shape[-1])
            mine.dtype, mine.device, mine.is_initialized = theirs.keys.dtype, theirs.keys.device, True
            self.layers.append(mine)
        keys = self.layers[0].keys
        self.mask = keys.new_zeros(self.rows, 1, 1, self.capacity)

    def _rewind(self) -> None:
        """Move the window to the front, leaving room on its left for the longest prompt."""
        width = self.end - self.begin
        shift = self.end - max(width, self.longest_prompt)
        if shift <= 0 or self.mask is None:
            raise RuntimeError("a row outgrew the cache: max_tokens was exceeded")
        old = slice(self.begin, self.end)
        new = slice(self.begin - shift, self.end - shift)
        for layer in self.layers:
            layer.keys[: self.count, :, new] = layer.keys[: self.count, :, old].clone()
            layer.values[: self.count, :, new] = layer.values[: self.count, :, old].clone()
        floor = torch.finfo(self.mask.dtype).min
        self.starts = [start - shift for start in self.starts]
        for row, start in enumerate(self.starts):
            self.mask[row, 0, 0, :start] = floor
            self.mask[row, 0, 0, start:] = 0.0
        self.begin, self.end = self.begin - shift, self.end - shift


def survivors(count: int, leaving: set[int]) -> list[int]:
    """An order of the rows that stay, in which holes are filled from the back."""
    order = [row for row in range(count) if row not in leaving]
    stay = len(order)
    holes = [row for row in range(stay) if row in leaving]
    tail = [row for row in order if row >= stay]
    result = list(range(stay))
    for hole, row in zip(holes, reversed(tail), strict=True):
        result[hole] = row
    return result
