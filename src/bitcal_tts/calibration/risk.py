"""Choosing a threshold that carries a guarantee: Learn-then-Test (Angelopoulos et al. 2021), fixed sequence.

The loss of a sequence is 0 or 1: the full run is right and the stopped run is wrong. It is counted once a sequence,
however many looks the gate took along it, so the guarantee holds for sequences and not for looks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike


def check_levels(risk: float, confidence: float) -> None:
    """Refuse levels that promise nothing or everything."""
    for name, value in (("risk", risk), ("confidence", confidence)):
        if not (isinstance(value, (int, float)) and 0 < value < 1):
            share = isinstance(value, (int, float)) and 1 <= value < 100
            hint = f" ({value:g} % is {value / 100:g})" if share else ""
            raise ValueError(f"{name} must be above 0 and below 1, got {value!r}{hint}")


def binomial_p_value(losses: int, n: int, risk: float) -> float:
    """P(at most so many losses among n) if the risk were exactly `risk`: exact for 0/1 losses."""
    _check(losses, n)
    log_odds = math.log(risk) - math.log1p(-risk)
    term = n * math.log1p(-risk)
    total = 0.0
    for k in range(losses + 1):
        total += math.exp(term)
        term += math.log(n - k) - math.log(k + 1) + log_odds if k < n else 0.0
    return min(1.0, total)


def hoeffding_bentkus_p_value(losses: int, n: int, risk: float) -> float:
    """The smaller of Hoeffding's and Bentkus's bounds (Bates et al. 2021): valid for any loss in [0, 1]."""
    _check(losses, n)
    mean = losses / n
    hoeffding = 1.0
    if mean < risk:
        divergence = (mean * math.log(mean / risk) if mean > 0 else 0.0) + (
            (1 - mean) * math.log((1 - mean) / (1 - risk)) if mean < 1 else 0.0
        )
        hoeffding = math.exp(-n * divergence)
    return min(hoeffding, math.e * binomial_p_value(losses, n, risk), 1.0)


P_VALUES: dict[str, Callable[[int, int, float], float]] = {
    "binomial": binomial_p_value,
    "hoeffding_bentkus": hoeffding_bentkus_p_value,
}


@dataclass(frozen=True)
class Certificate:
    """What could be certified.

    Attributes:
        threshold: The chosen one of those that passed; infinite where none did.
        losses: At that threshold, or at the strictest where none passed.
        n: Sequences.
        p_value: At that threshold.
        more: How many more sequences would be needed where none passed, if losses stay as rare as they were, or
            without a loss where there are too few to tell; None where they are too frequent for any number to do.
    """

    threshold: float
    losses: int
    n: int
    p_value: float
    more: int | None


def certify(
    losses_at: Callable[[float], int],
    n: int,
    thresholds: Sequence[float],
    *,
    risk: float,
    confidence: float,
    p_value: str = "binomial",
    cost_at: Callable[[float], float] | None = None,
) -> Certificate:
    """The threshold that saves most among those that keep the risk.

    With probability `confidence` over the calibration sequences, P(loss) is at most `risk` at every threshold,
    strictest first, up to the first that fails: testing stops there, so the level needs no division (ibid., prop. 3).
    Any of them may be chosen. Of those that cost nearly as little as the cheapest, the strictest is: the last looks
    before the risk is used up save next to nothing.

    Args:
        losses_at: How many of the calibration sequences are lost at a threshold.
        n: How many there are.
        thresholds: Strictest first, chosen without looking at these sequences.
        risk: The promise.
        confidence: How surely it holds.
        p_value: `binomial` or `hoeffding_bentkus`.
        cost_at: Mean tokens at a threshold; without it the loosest that passes is chosen.
    """
    check_levels(risk, confidence)
    if n < 1:
        raise ValueError("there are no sequences to calibrate on")
    if list(thresholds) != sorted(thresholds, reverse=True):
        raise ValueError("thresholds must come strictest first")
    test = P_VALUES[p_value]
    passed: list[Certificate] = []
    for threshold in thresholds:
        losses = losses_at(threshold)
        p = test(losses, n, risk)
        if p > 1 - confidence:
            if not passed:
                frequent = losses / n >= risk  # of few that says little: what would do without a loss is told then
                needed = _needed(0.0 if frequent else losses / n, risk, confidence, test)
                return Certificate(math.inf, losses, n, p, None if frequent and needed <= n else max(1, needed - n))
            break
        passed.append(Certificate(float(threshold), losses, n, p, 0))
    if not passed:  # there was nowhere to stop: too few sequences may be why
        more = fewest(risk, confidence, p_value) - n
        return Certificate(math.inf, 0, n, 1.0, more if more > 0 else None)
    if cost_at is None:
        return passed[-1]
    return passed[nearly_cheapest([cost_at(one.threshold) for one in passed])]


def nearly_cheapest(costs: Sequence[float]) -> int:
    """The first that costs at most a hundredth more than the cheapest."""
    return next(i for i, cost in enumerate(costs) if cost <= 1.01 * min(costs))


def fewest(risk: float, confidence: float, p_value: str = "binomial") -> int:
    """Sequences of which none may be lost, below which nothing can be certified."""
    return _needed(0.0, risk, confidence, P_VALUES[p_value])


def _needed(rate: float, risk: float, confidence: float, test: Callable[[int, int, float], float]) -> int:
    """Sequences at which a loss rate below the risk would pass."""
    low, high = 1, 1
    while test(math.ceil(rate * high), high, risk) > 1 - confidence:
        high *= 2
    while low < high:
        middle = (low + high) // 2
        if test(math.ceil(rate * middle), middle, risk) <= 1 - confidence:
            high = middle
        else:
            low = middle + 1
    return low


def grid(scores: ArrayLike, size: int = 200) -> list[float]:
    """Thresholds, strictest first, from scores of other sequences than those they will be tested on."""
    values = np.unique(np.asarray(scores, dtype=np.float64))
    if values.size == 0:
        return []
    return [float(v) for v in np.unique(np.quantile(values, np.linspace(0, 1, size)))[::-1]]


def _check(losses: int, n: int) -> None:
    if n < 1 or not 0 <= losses <= n:
        raise ValueError(f"need 0 <= losses <= n and n >= 1, got {losses} of {n}")
