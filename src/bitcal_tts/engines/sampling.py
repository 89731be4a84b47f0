"""From logits to the next tokens, and to the signals that come with them; on the device, for all rows at once."""

from __future__ import annotations

import torch

from bitcal_tts.engines.base import Decoding
from bitcal_tts.halting.signals import TOP

Tensor = torch.Tensor

N_SIGNALS = 4
_LOWEST = -1e4  # what a masked logit counts as in a mean


def token_signals(logits: Tensor, chosen: Tensor) -> Tensor:
    """Entropy, log-probability of the chosen token, top-2 margin and mean top-20 log-probability, [rows, 4]."""
    logp = torch.log_softmax(logits.float(), dim=-1)
    entropy = (logp.exp() * logp.clamp_min(torch.finfo(logp.dtype).min)).sum(-1).abs()
    top = logp.topk(min(TOP, logp.shape[-1]), dim=-1).values
    mean = top.clamp_min(_LOWEST).mean(-1)
    return torch.stack((entropy, logp.gather(-1, chosen[:, None])[:, 0], top[:, 0] - top[:, 1], mean), dim=-1)


def unit_rows(hidden: Tensor) -> Tensor:
    """Hidden states scaled to length one, so that a product of two is their cosine."""
    length: Tensor = hidden.norm(dim=-1, keepdim=True)
    return hidden / (length + 1e-12)


def choose(logits: Tensor, decoding: Decoding, uniform: Tensor | None) -> Tensor:
    """The next tokens: the likeliest, or the inverse of the cumulative distribution at `uniform`."""
    if uniform is None:
        return logits.argmax(-1)
    kept = _kept(torch.softmax(logits.double() / decoding.temperature, dim=-1), decoding)
    cumulative = kept.cumsum(-1)
    at = uniform[:, None] * cumulative[:, -1:]
    return torch.searchsorted(cumulative, at, right=True)[:, 0].clamp_max(logits.shape[-1] - 1)


def _kept(probabilities: Tensor, decoding: Decoding) -> Tensor:
    """Top-k, then top-p of what is left, then min-p: what is not kept has probability 0."""
    if decoding.top_k == 0 and decoding.top_p == 1.0 and decoding.min_p == 0.0:
        return probabilities
    k = min(decoding.top_k or probabilities.shape[-1], probabilities.shape[-1])
    likeliest = probabilities.topk(k, dim=-1).values
    floor = likeliest[:, -1:]
    if decoding.top_p < 1.0:
        share = likeliest / likeliest.sum(-1, keepdim=True)
        before = share.cumsum(-1) - share  # the mass of all that are likelier
        last = (before < decoding.top_p).sum(-1, keepdim=True) - 1
        floor = torch.maximum(floor, likeliest.gather(-1, last))
    floor = torch.maximum(floor, decoding.min_p * likeliest[:, :1])
    return probabilities.masked_fill(probabilities < floor, 0.0)
