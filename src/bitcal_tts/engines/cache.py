"""A key-value cache with slots: requests come into one, write on in it, and leave it to another.

Transformers' own dynamic cache copies itself at every token and keeps finished rows. Here the keys and values of a
request lie from column 0 of its slot on, so that a token is written in place, a request is cut back by setting its
position, and the buffers grow with what requests really use.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from transformers.cache_utils import Cache, DynamicLayer

Tensor = torch.Tensor
_COPIED = 2**26  # bytes at a time


class _SlotLayer(DynamicLayer):  # type: ignore[misc]
    """One layer's buffers, read through the view that its owner holds."""

    def __init__(self, owner: SlotCache) -> None:
        super().__init__()
        self.owner = owner

    def update(self, key_states: Tensor, value_states: Tensor, *_: object, **__: object) -> tuple[Tensor, Tensor]:
        """Write one token for every row and return the view of all keys and values."""
        o = self.owner
        assert o.columns is not None
        rows = len(o.columns)
        self.keys[o.slots[:rows], :, o.columns] = key_states[:, :, 0]
        self.values[o.slots[:rows], :, o.columns] = value_states[:, :, 0]
        return self.keys[:rows, :, : o.width], self.values[:rows, :, : o.width]

    def get_seq_length(self, *_: object) -> int:
        """Tokens in the view, without the one being written."""
        return self.owner.width - 1

    def get_mask_sizes(self, query_length: int, *_: object) -> tuple[int, int]:
        """Width of the view, and its offset."""
        return self.owner.width, 0


class SlotCache(Cache):  # type: ignore[misc]
    """Keys and values of the requests in `size` slots, `capacity` columns each.

    Args:
        size: Slots.
        prefill: A cache of the model, whose layers tell what is kept of a token.
        capacity: Columns to begin with.
    """

    def __init__(self, size: int, prefill: Cache, capacity: int) -> None:
        super().__init__(layers=[])
        self.size, self.capacity = size, capacity
        self.device = prefill.layers[0].keys.device
        self.slots = torch.arange(size, device=self.device)
        self.columns: Tensor | None = None
        """Of the first rows: where each writes its next token."""
        self.width = 1
        """Columns that are read."""
        for theirs in prefill.layers:
            mine = _SlotLayer(self)
            # Columns past a request's end are masked and weigh nothing, but must be finite.
            mine.keys = theirs.keys.new_zeros(size, theirs.keys.shape[1], capacity, theirs.keys.shape[-1])
            mine.values = theirs.values.new_zeros(size, theirs.values.shape[1], capacity, theirs.values.shape[-1])
            mine.dtype, mine.device, mine.is_initialized = theirs.keys.dtype, theirs.keys.device, True
            self.layers.append(mine)

    @property
    def dtype(self) -> torch.dtype:
        """Of the keys."""
        kind: torch.dtype = self.layers[0].keys.dtype
        return kind

    def resize(self, size: int, capacity: int) -> None:
        """Make room for longer requests, or for fewer; what fits of the slots and columns is kept."""
        rows, width = min(size, self.size), min(capacity, self.capacity)
        for layer in self.layers:  # one at a time: no more than a layer is in memory twice
            for name in ("keys", "values"):
                old = getattr(layer, name)
                new = old.new_zeros(size, old.shape[1], capacity, old.shape[-1])
                new[:rows, :, :width] = old[:rows, :, :width]
                setattr(layer, name, new)
                del old
        self.size, self.capacity = size, capacity
        self.slots = torch.arange(size, device=self.device)

    def put(self, prefill: Cache, row: Tensor, begin: Tensor, slot: Tensor, width: int) -> None:
        """Copy prefilled texts into slots: of row `row[i]` the `width` columns from `begin[i]` on.

        What is copied past the end of a text lies past its position, and weighs nothing.
        """
        last = prefill.layers[0].keys.shape[2] - 1
        ahead = torch.arange(width, device=self.device)
        column = (begin[:, None] + ahead).clamp_max(last)[:, None]
        for mine, theirs in zip(self.layers, prefill.layers, strict=True):
            for buffer, new in ((mine.keys, theirs.keys), (mine.values, theirs.values)):
                heads = torch.arange(new.shape[1], device=self.device)[:, None]
                together = max(1, _COPIED // (len(row) * width * new.shape[-1] * new.element_size()))
                for some in torch.split(heads, together):  # the copy is in memory once more
                    buffer[slot[:, None, None], some, ahead] = new[row[:, None, None], some, column]

    def move(self, to: Tensor, slots: Tensor, width: int) -> None:
        """Move requests of at most `width` tokens to other slots."""
        for layer in self.layers:
            layer.keys[to, :, :width] = layer.keys[slots, :, :width]
            layer.values[to, :, :width] = layer.values[slots, :, :width]

    def mask(self) -> Tensor:
        """What a token may look at, as a number added to its scores, [rows, 1, 1, width]."""
        assert self.columns is not None
        seen = torch.arange(self.width, device=self.device) <= self.columns[:, None]
        floor = torch.finfo(self.dtype).min
        return torch.zeros_like(seen, dtype=self.dtype).masked_fill(~seen, floor)[:, None, None]

    def release(self) -> None:
        """Let the buffers go now: layers and cache hold each other, and would wait for the garbage collector."""
        self.layers.clear()


def on_device(values: Any, device: torch.device) -> Tensor:
    """Numbers brought to a device, which does not have to be waited for."""
    tensor = torch.as_tensor(values)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor


def columns_on_device(device: torch.device, *columns: Sequence[int]) -> tuple[Tensor, ...]:
    """Several numbers of each request, brought to a device together."""
    return on_device(np.array(columns, dtype=np.int64), device).unbind()


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
