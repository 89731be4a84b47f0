"""Evidence that may be looked at after every request: bets against a rate of losses, and intervals that always hold.

A fixed-sample test is spoilt by looking again until it passes. A bet is not: if the hypothesis is true, the capital
that fair bets against it make of 1 ever reaches 1/level with probability at most `level`, however often one looks
(Ville).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

BELOW = (0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7)
_ABOVE = (1.5, 2.0, 3.0, 5.0, 8.0, 13.0, 20.0, 30.0)
_LARGEST = 0.9
_STEPS = 60


@dataclass
class RarerThan:
    """Bets against "losses come at this rate or more often": refuting it is a promise.

    They are likelihood ratios of several lower rates, mixed.

    Attributes:
        rate: Where the hypothesis ends.
        n: Losses and non-losses so far.
        losses: Of them.
        highest: What the capital has been at most, as a logarithm.
    """

    rate: float
    n: int = 0
    losses: int = 0
    highest: float = 0.0

    @property
    def capital(self) -> float:
        """The logarithm of what the bets have made of 1."""
        others = np.array(BELOW) * self.rate
        kept = self.n - self.losses
        won = self.losses * np.log(others / self.rate) + kept * (np.log1p(-others) - math.log1p(-self.rate))
        return float(np.logaddexp.reduce(won) - math.log(len(won)))

    def take(self, *, lost: bool) -> None:
        """The next one."""
        self.n += 1
        self.losses += lost
        self.highest = max(self.highest, self.capital)

    def refutes(self, level: float) -> bool:
        """Whether the hypothesis was refuted at any time; that is wrong with probability `level` at most."""
        return self.highest >= -math.log(level)


@dataclass
class Alarm:
    """Goes off where losses have begun to come oftener than a rate, whenever that was.

    Bets against "they come at this rate or more rarely" are begun anew at every request, and their capital is added up
    (an e-detector; Shin, Ramdas and Rinaldo 2024): what went well before does not speak for what happens now. As long
    as the rate is kept, it takes `patience` requests on average, or more, until the alarm goes off.

    Attributes:
        rate: That is kept.
        patience: Requests between false alarms.
        n: Losses and non-losses so far.
        losses: Of them.
        capital: Of the bets on each of the other rates, as logarithms.
        rung: Whether it has gone off.
    """

    rate: float
    patience: float
    n: int = 0
    losses: int = 0
    capital: list[float] = field(default_factory=list)
    rung: bool = False

    def take(self, *, lost: bool) -> None:
        """The next one."""
        others = np.minimum(np.array(_ABOVE) * self.rate, max(_LARGEST, self.rate))
        before = np.array(self.capital) if self.capital else np.full(len(others), -np.inf)
        won = np.log(others / self.rate) if lost else np.log1p(-others) - math.log1p(-self.rate)
        after = np.logaddexp(before, 0.0) + won
        self.n += 1
        self.losses += lost
        self.capital = after.tolist()
        total = float(np.logaddexp.reduce(after)) - math.log(len(after))
        self.rung = self.rung or total >= math.log(self.patience)


def needed(rate: float, level: float) -> int:
    """How many requests without a loss refute that losses come at a rate or more often."""
    bets = RarerThan(rate)
    while bets.capital < -math.log(level):
        bets.n += max(1, bets.n // 64)
    return bets.n


def rate_interval(losses: int, n: int, level: float = 0.05) -> tuple[float, float]:
    """Where a rate lies, at all times at once but with probability `level` (Robbins 1970; Jeffreys' prior)."""
    if n == 0:
        return 0.0, 1.0
    half = 0.5
    mixture = math.lgamma(losses + half) + math.lgamma(n - losses + half) - math.lgamma(n + 1) - math.log(math.pi)
    bar = mixture + math.log(level)

    def inside(p: float) -> bool:
        likelihood = (losses * math.log(p) if losses else 0.0) + ((n - losses) * math.log1p(-p) if n > losses else 0.0)
        return likelihood > bar

    seen = losses / n
    low = 0.0 if losses == 0 else _edge(inside, seen, 0.0)
    high = 1.0 if losses == n else _edge(inside, seen, 1.0)
    return low, high


def _edge(inside: Callable[[float], bool], within: float, without: float) -> float:
    """Where a region ends between a point within it and one without."""
    for _ in range(_STEPS):
        middle = (within + without) / 2
        within, without = (middle, without) if inside(middle) else (within, middle)
    return without


@dataclass
class Mean:
    """The mean of numbers from 0 to 1, with an interval that holds at all times at once.

    Empirical Bernstein, with bets that were placed before each number was seen (Waudby-Smith and Ramdas 2023, thm. 2).

    Attributes:
        level: How often the interval may fail.
    """

    level: float = 0.05
    n: int = 0
    total: float = 0.0
    squares: float = 0.0
    staked: float = 0.0
    weighted: float = 0.0
    paid: float = 0.0

    def take(self, value: float) -> None:
        """The next number."""
        before = (0.5 + self.total) / (self.n + 1)
        spread = (0.25 + self.squares) / (self.n + 1)
        self.n += 1
        stake = min(0.5, math.sqrt(2 * math.log(2 / self.level) / (spread * self.n * math.log1p(self.n))))
        self.staked += stake
        self.weighted += stake * value
        self.paid += (value - before) ** 2 * (-math.log1p(-stake) - stake)
        self.total += value
        self.squares += (value - (0.5 + self.total) / (self.n + 1)) ** 2

    @property
    def mean(self) -> float:
        """Of all so far."""
        return self.total / max(1, self.n)

    @property
    def interval(self) -> tuple[float, float]:
        """Where the mean lies."""
        if self.n == 0:
            return 0.0, 1.0
        centre, radius = self.weighted / self.staked, (math.log(2 / self.level) + self.paid) / self.staked
        return max(0.0, centre - radius), min(1.0, centre + radius)
