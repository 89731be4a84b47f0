"""Signals: what an engine may hand over with a token, and the three of the paper, incremental, O(1) a step."""

from __future__ import annotations

import math
from collections.abc import Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bitcal_tts.halting.words import Word

MIN_CHUNK_CHARS = 8
TOP = 20
"""How many of the likeliest tokens the mean log-probability is taken over."""
_EPSILON = 1e-12


class Signal(Word):
    """A signal that a method may need."""

    ENTROPY = "entropy"
    LOGPROB = "logprob"
    MARGIN = "margin"
    TOP_LOGPROB = "top_logprob"
    HIDDEN = "hidden"
    PROBE = "probe"

    @property
    def words(self) -> str:
        """What it is, in a sentence."""
        return _WORDS[self]


_WORDS = {
    Signal.ENTROPY: "the entropy",
    Signal.LOGPROB: "the log-probability",
    Signal.MARGIN: "the margin between the two likeliest tokens",
    Signal.TOP_LOGPROB: f"the mean log-probability of the {TOP} likeliest tokens",
    Signal.HIDDEN: "the hidden state",
    Signal.PROBE: "a probe",
}
COLUMNS = {
    Signal.ENTROPY: "entropies",
    Signal.LOGPROB: "logprobs",
    Signal.MARGIN: "margins",
    Signal.TOP_LOGPROB: "top_logprobs",
}
"""Where a step has them, of every token."""


@dataclass(frozen=True)
class Signals:
    """What an engine hands over with every token, and what it does not.

    Attributes:
        distribution: Of the next token: `full`, `top` where only the k likeliest are known, or `absent`.
        k: How many of the likeliest, where they are `top`.
        hidden_every: Hidden states are compared at multiples of so many tokens; None where there are none.
        probes: Whether the model can be made to answer along the way.
    """

    distribution: Literal["full", "top", "absent"] = "full"
    k: int | None = None
    hidden_every: int | None = None
    probes: bool = False

    def __post_init__(self) -> None:
        if self.distribution not in ("full", "top", "absent"):
            raise ValueError(f"distribution must be full, top or absent, got {self.distribution!r}")
        if (self.distribution == "top") != (self.k is not None) or (self.k is not None and self.k < 1):
            raise ValueError(f"k goes with a truncated distribution and is at least 1, got {self.k!r}")

    def __str__(self) -> str:
        return {"full": "full", "top": f"top-{self.k}", "absent": "text only"}[self.distribution]

    @cached_property
    def present(self) -> frozenset[Signal]:
        """What is there, truncated or not."""
        there = {Signal.HIDDEN} if self.hidden_every is not None else set()
        there |= {Signal.PROBE} if self.probes else set()
        if self.distribution == "absent":
            return frozenset(there)
        k = math.inf if self.k is None else self.k
        there |= {Signal.ENTROPY, Signal.LOGPROB}
        there |= {Signal.MARGIN} if k >= 2 else set()
        there |= {Signal.TOP_LOGPROB} if k >= TOP else set()
        return frozenset(there)

    def lacks(self, needs: Set[Signal]) -> list[Signal]:
        """What a method needs and is not there."""
        return sorted(needs - self.present)


TEXT_ONLY = Signals("absent")


class TopSignals(NamedTuple):
    """Signals from the k likeliest tokens alone; the entropy lies between `entropy_low` and `entropy_high`."""

    entropy: float
    entropy_low: float
    entropy_high: float
    missing: float
    margin: float | None
    top_logprob: float | None


def from_top(logprobs: Sequence[float], vocabulary: int) -> TopSignals:
    """Signals where only the likeliest tokens are known, with the mass that is missing accounted for.

    That mass is at least one token's (the lower bound) and at most spread evenly over the rest of the vocabulary (the
    upper bound), which is also the estimate: the tail of a language model is long and flat.

    Args:
        logprobs: Of the likeliest tokens, in any order.
        vocabulary: How many tokens there are in all.
    """
    top = sorted((float(value) for value in logprobs), reverse=True)
    if not top or not all(math.isfinite(value) and value <= 1e-6 for value in top):
        raise ValueError(f"log-probabilities must be finite and at most 0, and at least one is needed, got {top[:3]}")
    rest = vocabulary - len(top)
    if rest < 0:
        raise ValueError(f"{len(top)} log-probabilities are more than the vocabulary of {vocabulary}")
    mass = [math.exp(value) for value in top]
    known = -sum(p * value for p, value in zip(mass, top, strict=True))
    missing = max(0.0, 1.0 - sum(mass)) if rest else 0.0
    low = known - (missing * math.log(missing) if missing else 0.0)
    high = low + (missing * math.log(rest) if missing else 0.0)
    return TopSignals(
        entropy=high,
        entropy_low=low,
        entropy_high=high,
        missing=missing,
        margin=top[0] - top[1] if len(top) > 1 else None,
        top_logprob=sum(top[:TOP]) / TOP if len(top) >= TOP else None,
    )


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
