"""The three online signals of the paper, incremental: O(1) work and memory a step."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

MIN_CHUNK_CHARS = 8
_EPSILON = 1e-12


def entropy(logits: ArrayLike) -> float:
    """Shannon entropy in nats of softmax(logits), Eq. 1."""
    z = np.asarray(logits, dtype=np.float64)
    if z.ndim != 1 or z.size == 0:
        raise ValueError(f"logits must be a non-empty 1-D array, got shape {z.shape}")
    if np.isnan(z).any() or not np.isfinite(z.max()):
        raise ValueError("logits hold NaN or an infinite maximum")
    z = z - z.max()
    p = np.exp(z)
    total = p.sum()
    return max(0.0, float(math.log(total) - np.dot(p, np.where(p > 0, z, 0.0)) / total))


class TraceStability:
    """Share of consecutive chunk pairs that repeat literally, Eq. 2.

    A pair counts when both stripped chunks have at least eight characters; below two such pairs the
    signal is 1, as the paper defines it.
    """

    __slots__ = ("_eligible", "_equal", "_previous")

    def __init__(self) -> None:
        self._previous = ""
        self._eligible = 0
        self._equal = 0

    def update(self, chunk: str) -> float:
        """Take the next chunk of text and return the signal."""
        current = chunk.strip()
        if len(self._previous) >= MIN_CHUNK_CHARS and len(current) >= MIN_CHUNK_CHARS:
            self._eligible += 1
            self._equal += self._previous == current
        self._previous = current
        return self._equal / self._eligible if self._eligible >= 2 else 1.0


class HiddenStability:
    """Mean cosine of consecutive last-layer hidden states, Eq. 3, over the steps that have one."""

    __slots__ = ("_pairs", "_previous", "_total")

    def __init__(self) -> None:
        self._previous: NDArray[np.float64] | None = None
        self._total = 0.0
        self._pairs = 0

    @property
    def value(self) -> float:
        """The signal now; 1 below two vectors."""
        return self._total / self._pairs if self._pairs else 1.0

    def update(self, hidden: ArrayLike) -> float:
        """Take the hidden vector at the end of a step and return the signal."""
        unit = _unit(hidden)
        previous, self._previous = self._previous, unit
        if previous is None:
            return self.value
        if previous.shape != unit.shape:
            raise ValueError(f"hidden has {unit.size} numbers, the step before had {previous.size}")
        return self.update_similarity(float(previous @ unit))

    def update_similarity(self, cosine: float) -> float:
        """Take the cosine to the vector before, where the engine has computed it on its device."""
        self._total += cosine
        self._pairs += 1
        return self.value


def _unit(hidden: ArrayLike) -> NDArray[np.float64]:
    vector: NDArray[Any] = np.asarray(hidden)
    if vector.ndim != 1 or vector.size == 0:
        raise ValueError(f"hidden must be a non-empty 1-D array, got shape {vector.shape}")
    vector = vector.astype(np.float64, copy=False)
    norm = float(np.sqrt(vector @ vector))
    if not math.isfinite(norm):
        raise ValueError("hidden holds NaN or infinite numbers")
    return vector / (norm + _EPSILON)
