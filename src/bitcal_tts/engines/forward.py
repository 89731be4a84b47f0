"""Running a Transformers model: prompts as a batch, then a token for every row."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import nullcontext
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import DynamicCache

from bitcal_tts.engines.attention import use_row_attention
from bitcal_tts.engines.base import EngineError
from bitcal_tts.engines.cache import SlotCache, on_device
from bitcal_tts.engines.checkpoint import Checkpoint
from bitcal_tts.engines.tap import tap_of

Tensor = torch.Tensor
# Of the kernels that oneDNN makes for shapes in half precision it would keep a thousand, which is gigabytes.
os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "64")
_KERNELS = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
"""What reads prompts on a GPU. cuDNN's attention is left out: it is built anew for every shape of a batch, which takes
some 40 ms a layer, and shapes change whenever requests join."""


class Forward:
    """The model of a checkpoint, as batches and forks run it."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.checkpoint = checkpoint
        self.device = checkpoint.device
        self.tokenizer = checkpoint.tokenizer
        self.eos_token_ids = checkpoint.eos_token_ids
        self.max_positions = checkpoint.max_positions
        self.vocabulary: int = checkpoint.model.config.vocab_size
        self._model = checkpoint.model
        use_row_attention(self._model)
        try:
            self._tap = tap_of(self._model)
        except ValueError as error:
            raise EngineError(f"{checkpoint.source}: {error}") from None

    @cached_property
    def bytes_per_token(self) -> int:
        """What the keys and values of a token take."""
        cache, _, _ = self.prefill([[0]])
        parts: list[Tensor] = [part for layer in cache.layers for part in (layer.keys, layer.values)]
        return max(1, sum(part.nbytes for part in parts))

    def encode(self, prompts: Sequence[str]) -> list[list[int]]:
        """Token ids of prompts, through the chat template."""
        return self.checkpoint.encode_all(prompts)

    def prefill(self, prompts: list[list[int]]) -> tuple[Any, Tensor, Tensor]:
        """Run left-padded prompts: their cache, and the logits and hidden states at their ends."""
        # Made without the config, the cache keeps the whole prompt for layers with a sliding window too.
        out = self._run(prompts, 1, past_key_values=DynamicCache(), use_cache=True)
        return out.past_key_values, out.logits[:, -1], self._last_hidden()

    def logits_of(self, texts: Sequence[list[int]], keep: int) -> tuple[Tensor, Tensor]:
        """Logits of the last `keep` positions of left-padded texts, and hidden states of all."""
        out = self._run(list(texts), keep, use_cache=False)
        assert self._tap.last is not None
        return out.logits, self._tap.last

    def step(self, tokens: Tensor, cache: SlotCache) -> tuple[Tensor, Tensor]:
        """One token for every row: logits and hidden states."""
        assert cache.columns is not None
        positions, mask = cache.columns, self._masks(cache)
        if self.max_positions is not None:
            positions = positions.clamp_max(self.max_positions - 1)
        out = self._model(
            input_ids=tokens[:, None],
            attention_mask=mask,
            position_ids=positions[:, None],
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        )
        return out.logits[:, -1], self._last_hidden()

    def _run(self, prompts: list[list[int]], keep: int, **options: Any) -> Any:
        """The model on left-padded prompts, with the logits of their last `keep` positions."""
        width = max(map(len, prompts))
        ids = np.zeros((len(prompts), width), dtype=np.int64)
        for row, prompt in zip(ids, prompts, strict=True):
            row[width - len(prompt) :] = prompt
        there = on_device(ids, self.device)
        padding = on_device(np.array([width - len(prompt) for prompt in prompts]), self.device)
        positions = torch.arange(width, device=self.device) - padding[:, None]
        padded = min(map(len, prompts)) < width
        with sdpa_kernel(_KERNELS) if self.device.type == "cuda" else nullcontext():
            return self._model(
                input_ids=there,
                attention_mask=(positions >= 0).long() if padded else None,
                position_ids=positions.clamp_min(0),
                logits_to_keep=keep,
                **options,
            )

    def _masks(self, cache: SlotCache) -> dict[str, Tensor] | Tensor:
        """What may be looked at; layers with a sliding window read the same cache through a mask of their own."""
        full, window = cache.mask(), self.checkpoint.sliding_window
        if window is None:
            return full
        assert cache.columns is not None
        age = cache.columns[:, None] - torch.arange(cache.width, device=full.device)
        near = full.masked_fill(age[:, None, None] >= window, torch.finfo(full.dtype).min)
        if getattr(self._model.config, "layer_types", None) is None:
            return near
        return {"full_attention": full, "sliding_attention": near}

    def _last_hidden(self) -> Tensor:
        assert self._tap.last is not None
        return self._tap.last[:, -1].float()
