"""Does what a profile sees still look like what it was fitted on? A conformal test martingale on its scores."""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence

import numpy as np

_BETS = (-1.5, -0.75, 0.0, 0.75, 1.5)
_JUMP = 0.01
MIN_REFERENCE = 20


class DriftWarning(UserWarning):
    """What a profile sees no longer looks like what it was fitted on."""


class DriftMonitor:
    """Bets against the scores being drawn from the reference (Vovk et al. 2003; simple jumper, Vovk et al. 2021).

    Each request's score is ranked among the reference scores, ties broken at random. If nothing has changed the ranks
    are uniform, no betting wins in the long run, and the capital exceeds 1/level with probability at most `level`
    however many requests are watched (Ville). So an alarm is evidence, and asking again costs nothing.

    Args:
        reference: Scores at the first strong statement of calibration items.
        level: Probability of a false alarm, over the whole lifetime.
        seed: For ties.
    """

    def __init__(self, reference: Sequence[float], *, level: float = 0.01, seed: int = 0) -> None:
        if len(reference) < MIN_REFERENCE:
            raise ValueError(f"at least {MIN_REFERENCE} reference scores are needed, got {len(reference)}")
        if not 0 < level < 1:
            raise ValueError(f"level must be between 0 and 1, got {level!r}")
        self._reference = sorted(reference)
        self._level = level
        self._capital = np.full(len(_BETS), 1.0 / len(_BETS))
        self._bets = np.array(_BETS)
        self._rng = np.random.default_rng(seed)
        self.requests = 0
        self.highest = 1.0

    @property
    def capital(self) -> float:
        """What the bets have made of 1."""
        return float(self._capital.sum())

    @property
    def drifted(self) -> bool:
        """Whether the alarm has gone off."""
        return self.highest >= 1.0 / self._level

    def update(self, score: float) -> bool:
        """Take the score of a request; whether the alarm has gone off."""
        if not math.isfinite(score):
            raise ValueError(f"score must be a finite number, got {score!r}")
        low = bisect.bisect_left(self._reference, score)
        high = bisect.bisect_right(self._reference, score)
        p = (low + self._rng.random() * (high - low + 1)) / (len(self._reference) + 1)
        total = self._capital.sum()
        self._capital = (1 - _JUMP) * self._capital + _JUMP * total / len(_BETS)
        self._capital *= 1.0 + self._bets * (p - 0.5)
        bisect.insort(self._reference, score)  # the next rank is among all seen: that is what makes them uniform
        self.requests += 1
        self.highest = max(self.highest, self.capital)
        return self.drifted
