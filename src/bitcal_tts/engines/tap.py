"""The last hidden states of a model, read where they enter its output embedding: one hook a model, whoever asks."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import torch

_TAPS: WeakKeyDictionary[Any, HiddenTap] = WeakKeyDictionary()


class HiddenTap:
    """What entered a model's output embedding last."""

    def __init__(self) -> None:
        self.last: torch.Tensor | None = None

    def __call__(self, _: Any, inputs: tuple[torch.Tensor, ...]) -> None:
        """Take what enters the output embedding."""
        self.last = inputs[0]


def tap_of(model: Any) -> HiddenTap:
    """The model's tap; the same one however often it is asked for."""
    if model not in _TAPS:
        head = model.get_output_embeddings()
        if head is None:
            raise ValueError("the model has no output embedding: not a causal language model")
        tap = HiddenTap()
        head.register_forward_pre_hook(tap)
        _TAPS[model] = tap
    return _TAPS[model]
