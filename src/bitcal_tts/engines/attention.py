"""Attention for one new token a row, as two matrix products.

Fused kernels with a mask lose to this at a single query, and with grouped key-value heads Transformers
copies the whole cache at every step to feed them. Longer queries go to the fused kernel as usual.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

Tensor = torch.Tensor
NAME = "bitcal_rows"


def _attend(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    rows, heads, length, size = query.shape
    if length > 1:
        out: tuple[Tensor, None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, scaling=scaling, **kwargs
        )
        return out
    groups = key.shape[1]
    q = query.reshape(rows, groups, heads // groups, size) * (size**-0.5 if scaling is None else scaling)
    scores = torch.matmul(q, key.transpose(2, 3))
    if attention_mask is not None and attention_mask.dtype == torch.bool:
        scores = scores.masked_fill(~attention_mask, torch.finfo(scores.dtype).min)
    elif attention_mask is not None:
        scores = scores + attention_mask
    return torch.matmul(torch.softmax(scores, dim=-1), value).reshape(rows, 1, heads, value.shape[-1]), None


def _mask(*args: Any, attention_mask: Tensor | None = None, **kwargs: Any) -> Tensor | None:
    """Transformers' own, without reading on the host whether anything is padded: that would wait for the device."""
    skip = kwargs.pop("allow_is_causal_skip", True) and attention_mask is None
    mask: Tensor | None = sdpa_mask(*args, attention_mask=attention_mask, allow_is_causal_skip=skip, **kwargs)
    return mask


def use_row_attention(model: Any) -> None:
    """Switch a model that would use the fused kernel; others need what their own attention adds."""
    if getattr(model.config, "_attn_implementation", None) == "sdpa":
        AttentionInterface.register(NAME, _attend)
        AttentionMaskInterface.register(NAME, _mask)
        model.set_attn_implementation(NAME)
