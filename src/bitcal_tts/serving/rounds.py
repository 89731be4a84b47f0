"""How a promise is earned: a scorer from requests that have ended, thresholds, and bets on those that come after."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bitcal_tts.calibration.anytime import RarerThan
from bitcal_tts.calibration.fit import fit_scorer, telling
from bitcal_tts.calibration.risk import grid, nearly_cheapest
from bitcal_tts.halting.features import NAMES
from bitcal_tts.halting.profile import Profile, mean_of
from bitcal_tts.traces.looks import LookTable

FOLDS = 3
_THRESHOLDS = 8
_SMALL: dict[str, Any] = {"rounds": 100, "num_threads": 1}
"""Fitted beside the serving, and judged at every look of it."""
_REFERENCES = 500
WORTH = 0.02
"""A promise that saves less of the tokens is not worth stopping for."""


@dataclass
class Trial:
    """What stops of one request would have come to: at each threshold, or None where it was not tried.

    Attributes:
        lost: Whether the answer is another one.
        cost: Tokens, those of the landing included.
        full: Tokens of the whole request.
        first: The score at its first look.
    """

    lost: list[bool | None]
    cost: list[int | None]
    full: int
    first: float

    def kept(self, served: int | None) -> Kept | None:
        """What is known of one of the thresholds."""
        lost, cost = (None, None) if served is None else (self.lost[served], self.cost[served])
        return None if lost is None or cost is None else Kept(lost, cost, self.full)


class Kept(NamedTuple):
    """What a promise would have made of a request that ran to its end."""

    lost: bool
    cost: int
    full: int


class Tried(NamedTuple):
    """What side requests have told of one request: looks to learn from, with what stops there answer, and a trial.

    `kept` is of a promise that stands while another scorer is tried.
    """

    learned: LookTable
    trial: Trial | None
    spent: int
    kept: Kept | None = None


@dataclass
class Round:
    """A scorer, and what is known of stopping by it.

    Thresholds are tested strictest first, each from where the one before it has passed, and whenever anybody looks: so
    the probability that one passes whose losses come more often than `risk` is at most `level` in all.

    Attributes:
        scorer: Judges the looks.
        thresholds: Strictest first.
        risk: What is promised.
        level: How often the promise may be wrong.
        bets: Against each threshold's losses being too many.
        costs: Of each threshold: tokens of the trials, and tokens that the same requests took in full.
        passed: How many thresholds are promised.
        firsts: Scores at the first looks, by which drift will be noticed.
    """

    scorer: Profile
    thresholds: list[float]
    risk: float
    level: float
    bets: list[RarerThan] = field(default_factory=list)
    costs: list[list[int]] = field(default_factory=list)
    passed: int = 0
    firsts: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.bets = self.bets or [RarerThan(self.risk) for _ in self.thresholds]
        self.costs = self.costs or [[0, 0] for _ in self.thresholds]

    def take(self, trial: Trial) -> None:
        """Another request that ran to its end and was tried."""
        for bets, costs, lost, cost in zip(self.bets, self.costs, trial.lost, trial.cost, strict=True):
            if lost is not None and cost is not None:
                bets.take(lost=lost)
                costs[0] += cost
                costs[1] += trial.full
        while self.passed < len(self.bets) and self.bets[self.passed].refutes(self.level):
            self.passed += 1
        if len(self.firsts) < _REFERENCES:
            self.firsts.append(trial.first)

    @property
    def n(self) -> int:
        """Requests that it was tried on."""
        return max((bets.n for bets in self.bets), default=0)

    def share(self, which: int) -> float:
        """Of all tokens, how many a threshold takes."""
        cost, full = self.costs[which]
        return cost / full if full else 1.0

    @property
    def served(self) -> int | None:
        """The strictest threshold that takes nearly as little as the cheapest one that is promised."""
        if not self.passed:
            return None
        shares = [self.share(which) for which in range(self.passed)]
        if min(shares) > 1 - WORTH:
            return None
        return nearly_cheapest(shares)

    @property
    def saved(self) -> float:
        """Of all tokens, how many what is promised saves."""
        return 0.0 if self.served is None else 1 - self.share(self.served)

    def to_dict(self) -> dict[str, Any]:
        """As JSON types, without the scorer, which never changes."""
        bets = [[one.n, one.losses, one.highest] for one in self.bets]
        return {
            "thresholds": self.thresholds, "risk": self.risk, "level": self.level,
            "bets": bets, "costs": self.costs, "passed": self.passed, "firsts": self.firsts,
        }  # fmt: skip

    @classmethod
    def from_dict(cls, told: dict[str, Any], scorer: Profile) -> Round:
        """What `to_dict` wrote, with its scorer."""
        return cls(scorer, **{**told, "bets": [RarerThan(told["risk"], *counts) for counts in told["bets"]]})


def fit_round(tables: Sequence[LookTable], risk: float, level: float) -> Round:
    """A scorer that was fitted without gold answers, and thresholds that may keep the risk; ValueError where none can.

    Args:
        tables: Requests that ended, one table each.
        risk: What is to be promised.
        level: How often the promise may be wrong.
    """
    parts = [list(tables[fold::FOLDS]) for fold in range(FOLDS)]
    others = [[table for i, part in enumerate(parts) if i != fold for table in part] for fold in range(FOLDS)]
    features = _telling(others)
    scorers = [fit_scorer(part, "boosted", "final", features, **_SMALL) for part in others]
    unseen = LookTable.joined(
        [
            LookTable.joined(part).judged(scorer.scores)
            for part, scorer in zip(parts, scorers, strict=True)
            if sum(map(len, part))
        ]
    )
    thresholds = _thresholds(unseen, risk)
    if not thresholds:
        raise ValueError("no value is ever looked at in these requests")
    return Round(mean_of(scorers), thresholds, risk, level)


def _telling(groups: Sequence[Sequence[LookTable]]) -> list[str]:
    """Features that are known, and change, in every group."""
    tells: NDArray[np.bool_] = np.ones(len(NAMES), dtype=np.bool_)
    for group in groups:
        tells &= telling(np.concatenate([table.candidates.vectors for table in group]))
    return [name for name, one in zip(NAMES, tells, strict=True) if one]


def _thresholds(unseen: LookTable, risk: float) -> list[float]:
    """Strictest first, each saving about as much more than the one before it; at the looks that are known.

    The loosest loses no more than the risk there, where scorers had not seen the request: at all looks it loses more.
    """
    thresholds = grid(unseen.scores)
    if not thresholds:
        return []
    cuts = [unseen.cut(threshold) for threshold in thresholds]
    lost = np.maximum.accumulate([int(cut.changed.sum()) for cut in cuts])
    tried = max(1, int((lost <= risk * unseen.n).sum()))
    shares = np.array([cut.share for cut in cuts[:tried]])
    wanted = np.linspace(1.0, shares[-1], _THRESHOLDS + 1)[1:]
    return [thresholds[i] for i in sorted({int(np.abs(shares - share).argmin()) for share in wanted})]
