"""Does what a profile sees still look like what it was fitted on? A conformal test martingale on its scores."""

from __future__ import annotations

import bisect
import math
import warnings
from collections.abc import Sequence

import numpy as np

_BETS = (-1.5, -0.75, 0.0, 0.75, 1.5)
_JUMP = 0.01
_WAITING = 10_000  # requests that may be unfinished before the oldest is given up
MIN_REFERENCE = 20
NO_LOOK = -1.0
"""What stands for the score of a request that ended without a single look: below every score there is."""


class DriftWarning(UserWarning):
    """What a profile sees no longer looks like what it was fitted on."""


class Turn:
    """One request's place in the order in which the monitor ranks scores: that of asking, not of finishing.

    A request that is dropped without an end (a client that went away) gives up its turn.
    """

    __slots__ = ("_monitor", "_number", "_taken", "score")

    def __init__(self, monitor: DriftMonitor, number: int) -> None:
        self._monitor, self._number = monitor, number
        self._taken = False
        self.score: float | None = None
        """What was reported."""

    def take(self, score: float | None) -> None:
        """Report the request's score; None withdraws it. Only the first report counts."""
        if not self._taken:
            self._taken, self.score = True, score
            self._monitor._report(self._number, score)

    def __del__(self) -> None:
        self.take(None)


class DriftMonitor:
    """Bets against the scores being drawn from the reference (Vovk et al. 2003; simple jumper, Vovk et al. 2021).

    Each request's score is ranked among the reference scores and all before it, ties broken at random. If nothing has
    changed the ranks are uniform, no betting wins in the long run, and the capital exceeds 1/level with probability at
    most `level` however many requests are watched (Ville). So an alarm is evidence, and asking again costs nothing.

    That holds for requests in an order that their texts have no part in. An engine finishes short ones first and takes
    long prompts first; so scores are ranked in the order of the turns that requests took, whenever they arrive.

    Args:
        reference: Scores at the first look of calibration items.
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
        self._turns = 0
        self._next = 0
        self._reported: dict[int, float | None] = {}
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

    def turn(self) -> Turn:
        """The next request's turn."""
        self._turns += 1
        return Turn(self, self._turns - 1)

    def _report(self, number: int, score: float | None) -> None:
        """Take the score of a request, and rank all whose turn has come."""
        if number < self._next:
            return  # it was given up
        self._reported[number] = score
        before = self.drifted
        while self._next in self._reported or len(self._reported) > _WAITING:
            ready = self._reported.pop(self._next, None)
            self._next += 1
            if ready is not None:
                self.update(ready)
        if self.drifted and not before:
            warnings.warn(
                f"after {self.requests} requests, scores have drifted from those the profile was fitted on: "
                "its promise may no longer hold; record and fit again",
                DriftWarning,
                stacklevel=2,
            )

    def update(self, score: float) -> bool:
        """Rank the next score; whether the alarm has gone off."""
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
