"""From logits to the next token and its signals, with numpy alone: for engines that live on the host."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bitcal_tts.engines.base import Decoding
from bitcal_tts.halting.signals import TOP

Rows = NDArray[np.float32]
_NEAR = 10.0
"""How far below the largest logit the likeliest tokens are looked for first: most of a vocabulary is far below."""


class Seen(NamedTuple):
    """What a model said of one place.

    Attributes:
        logits: Of the next token; a view that the next step overwrites.
        entropy: In nats.
        total: The logarithm of what the exponentials of the logits sum to.
        margin: Between the two likeliest tokens.
        top_logprob: Mean log-probability of the likeliest 20.
        hidden: The last hidden state, where it is asked for.
    """

    logits: Rows
    entropy: float
    total: float
    margin: float
    top_logprob: float
    hidden: Rows | None = None

    def logprob(self, token: int) -> float:
        """Of a token."""
        return float(self.logits[token]) - self.total


def seen(rows: Rows) -> list[Seen]:
    """What logits say, for all rows at once.

    Args:
        rows: [rows, vocabulary], which are not changed.
    """
    largest = rows.max(axis=1)
    below = rows - largest[:, None]
    mass = np.exp(below)
    sums = mass.sum(axis=1, dtype=np.float64)
    weighted = np.einsum("ij,ij->i", mass, np.maximum(below, np.float32(-1e4)), dtype=np.float64)
    logs = np.log(sums)
    entropies, totals = np.maximum(0.0, logs - weighted / sums), largest + logs
    found = []
    for i, row in enumerate(rows):
        top = _likeliest(row, below[i])
        margin, mean = float(top[-1] - top[-2]), float(np.maximum(top - totals[i], -1e4).mean())
        found.append(Seen(row, float(entropies[i]), float(totals[i]), margin, mean))
    return found


def _likeliest(row: Rows, below: Rows) -> NDArray[np.float64]:
    """The largest logits, in rising order."""
    k = min(TOP, len(row))
    near = row[below > -_NEAR]
    some = near if len(near) >= k else row
    largest: NDArray[np.float64] = np.sort(np.partition(some, len(some) - k)[-k:]).astype(np.float64)
    return largest


def choose(logits: Rows, decoding: Decoding, uniform: float | None) -> int:
    """The next token: the likeliest, or the inverse of the cumulative distribution at `uniform`."""
    if uniform is None:
        return int(logits.argmax())
    scaled = logits.astype(np.float64) / decoding.temperature
    mass = np.exp(scaled - scaled.max())
    kept = _kept(mass / mass.sum(), decoding)
    cumulative = kept.cumsum()
    at = int(np.searchsorted(cumulative, uniform * cumulative[-1], side="right"))
    return min(at, len(logits) - 1)


def _kept(probabilities: NDArray[np.float64], decoding: Decoding) -> NDArray[np.float64]:
    """Top-k, then top-p of what is left, then min-p: what is not kept has probability 0."""
    if decoding.top_k == 0 and decoding.top_p == 1.0 and decoding.min_p == 0.0:
        return probabilities
    k = min(decoding.top_k or len(probabilities), len(probabilities))
    likeliest = np.sort(probabilities)[::-1][:k]
    floor = likeliest[-1]
    if decoding.top_p < 1.0:
        share = likeliest / likeliest.sum()
        before = share.cumsum() - share
        floor = max(floor, likeliest[int((before < decoding.top_p).sum()) - 1])
    floor = max(floor, decoding.min_p * likeliest[0])
    return np.where(probabilities < floor, 0.0, probabilities)
