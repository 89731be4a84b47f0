"""Intervals and paired tests, one a function, each with its reference."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

_NORMAL = NormalDist()


class Interval(NamedTuple):
    """An estimate with its lower and upper bound."""

    value: float
    low: float
    high: float


class McNemar(NamedTuple):
    """An exact paired test of two methods on the same items."""

    only_first: int
    only_second: int
    p_value: float


def wilson(successes: float, n: int, confidence: float = 0.95) -> Interval:
    """Score interval for a proportion (Wilson 1927); successes of clusters may be parts of them."""
    if n < 1 or not 0 <= successes <= n:
        raise ValueError(f"need 0 <= successes <= n and n >= 1, got {successes} of {n}")
    z = _z(confidence)
    p = successes / n
    centre = p + z * z / (2 * n)
    spread = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    scale = 1 + z * z / n
    # At 0 and at n the formula gives the bound itself, but for rounding.
    low = 0.0 if successes == 0 else (centre - spread) / scale
    high = 1.0 if successes == n else (centre + spread) / scale
    return Interval(p, low, high)


def mcnemar(first: ArrayLike, second: ArrayLike) -> McNemar:
    """Exact two-sided McNemar test on paired right/wrong outcomes (McNemar 1947; exact binomial form).

    Of the items on which exactly one method is right, each method is as likely to be that one if they are
    equally good.
    """
    a, b = _paired(first, second)
    only_first, only_second = int((a & ~b).sum()), int((~a & b).sum())
    n, k = only_first + only_second, min(only_first, only_second)
    tail = sum(math.comb(n, i) for i in range(k + 1)) / 2**n
    return McNemar(only_first, only_second, min(1.0, 2 * tail))


def not_worse_p_value(only_first: int, only_second: int, n: int, margin: float) -> float:
    """One-sided p-value of the first method being worse than the second by the margin or more (Tango 1998).

    A score test for paired proportions: the variance is that of the likeliest probabilities under which the first is
    worse by exactly the margin. Small: it is shown to be worse by less.

    Args:
        only_first: Items on which only the first is right.
        only_second: Items on which only the second is.
        n: Items in all.
        margin: As a share of the items, above 0.
    """
    if not 0 < margin < 1 or n < 1:
        raise ValueError(f"need 0 < margin < 1 and n >= 1, got {margin!r} and {n!r}")
    a, b = 2 * n, -only_first - only_second - (2 * n - only_first + only_second) * margin
    c = only_second * margin * (1 + margin)
    only_second_at_margin = (math.sqrt(max(0.0, b * b - 4 * a * c)) - b) / (2 * a)
    variance = n * (2 * only_second_at_margin - margin * (1 + margin))
    if variance <= 0:
        return 0.5
    return 1 - _NORMAL.cdf((only_first - only_second + n * margin) / math.sqrt(variance))


def paired_difference(first: ArrayLike, second: ArrayLike, confidence: float = 0.95) -> Interval:
    """Accuracy of the first less that of the second, on the same items (Agresti and Min 2005).

    The interval is Wald's with half a pseudo-item in each of the four cells, which keeps its coverage where
    few items differ; the value is the plain difference.
    """
    a, b = _paired(first, second)
    n = len(a)
    more, less = float((a & ~b).sum()) + 0.5, float((~a & b).sum()) + 0.5
    centre = (more - less) / (n + 2)
    error = math.sqrt(more + less - (more - less) ** 2 / (n + 2)) / (n + 2)
    z = _z(confidence)
    value = float(a.mean() - b.mean())
    return Interval(value, max(-1.0, centre - z * error), min(1.0, centre + z * error))


def holm(p_values: Sequence[float]) -> list[float]:
    """P-values corrected for having looked at all of them (Holm 1979), in the order given."""
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    corrected = [0.0] * len(p_values)
    highest = 0.0
    for rank, i in enumerate(order):
        highest = max(highest, (len(p_values) - rank) * p_values[i])
        corrected[i] = min(1.0, highest)
    return corrected


def savings(
    tokens: ArrayLike, full_tokens: ArrayLike, *, confidence: float = 0.95, draws: int = 2000, seed: int = 0
) -> Interval:
    """Share of tokens saved against the full decodes, with a paired bootstrap interval (Efron 1979).

    Items are drawn with replacement, both counts of an item together; bounds are percentiles.
    """
    used, full = np.asarray(tokens, dtype=np.float64), np.asarray(full_tokens, dtype=np.float64)
    if used.shape != full.shape or used.ndim != 1 or used.size == 0:
        raise ValueError(f"tokens and full_tokens must be equally long, got {used.shape} and {full.shape}")
    if full.sum() <= 0:
        return Interval(0.0, 0.0, 0.0)
    drawn = 1 - bootstrap_ratios(used, full, draws=draws, seed=seed)
    tail = 100 * (1 - confidence) / 2
    low, high = np.nanpercentile(drawn, [tail, 100 - tail])
    return Interval(float(1 - used.sum() / full.sum()), float(low), float(high))


def bootstrap_ratios(top: ArrayLike, bottom: ArrayLike, *, draws: int = 2000, seed: int = 0) -> NDArray[np.float64]:
    """Ratios of two sums over items drawn with replacement, both numbers of an item together; NaN for 0 / 0."""
    both = np.stack((np.asarray(top, dtype=np.float64), np.asarray(bottom, dtype=np.float64)), axis=1)
    n = len(both)
    if n * draws <= _KEPT_DRAWS:
        sums = _draws(n, draws, seed) @ both
    else:
        rng, few = np.random.default_rng(seed), max(1, _KEPT_DRAWS // n)
        sums = np.concatenate([_drawn(rng, n, min(few, draws - i)) @ both for i in range(0, draws, few)])
    with np.errstate(invalid="ignore"):
        ratios: NDArray[np.float64] = sums[:, 0] / sums[:, 1]
    return ratios


_KEPT_DRAWS = 1 << 24  # numbers: 128 MiB


@lru_cache(maxsize=1)  # a table has many rows of the same items
def _draws(n: int, draws: int, seed: int) -> NDArray[np.float64]:
    return _drawn(np.random.default_rng(seed), n, draws)


def _drawn(rng: np.random.Generator, n: int, draws: int) -> NDArray[np.float64]:
    """How often each of n items is drawn, in so many draws of n with replacement."""
    return rng.multinomial(n, np.full(n, 1 / n), size=draws).astype(np.float64)


def minimum_detectable_effect(
    n: int, discordant_rate: float | None = None, *, alpha: float = 0.05, power: float = 0.8
) -> float:
    """The smallest accuracy difference that McNemar's test would find on n items (Connor 1987).

    Args:
        n: Items.
        discordant_rate: Share of items on which exactly one method is right. Without it the most favourable
            case is taken: all differences in one direction.
        alpha: Two-sided level.
        power: Probability of finding the effect.
    """
    if n < 1:
        raise ValueError(f"n must be at least 1, got {n}")
    z_alpha, z_beta = _NORMAL.inv_cdf(1 - alpha / 2), _NORMAL.inv_cdf(power)

    def needed(effect: float) -> float:
        rate = effect if discordant_rate is None else discordant_rate
        return ((z_alpha * math.sqrt(rate) + z_beta * math.sqrt(max(rate - effect**2, 0.0))) / effect) ** 2

    low, high = 1e-9, 1.0 if discordant_rate is None else discordant_rate
    if high <= 0 or needed(high) > n:  # where nothing differs, nothing says how small a difference would show
        return math.inf
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (low, middle) if needed(middle) <= n else (middle, high)
    return high


def _paired(first: ArrayLike, second: ArrayLike) -> tuple[np.ndarray[tuple[int], np.dtype[np.bool_]], ...]:
    a, b = np.asarray(first, dtype=bool), np.asarray(second, dtype=bool)
    if a.shape != b.shape or a.ndim != 1 or a.size == 0:
        raise ValueError(f"paired outcomes must be equally long, got {a.shape} and {b.shape}")
    return a, b


def _z(confidence: float) -> float:
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must be between 0 and 1, got {confidence!r}")
    return _NORMAL.inv_cdf(0.5 + confidence / 2)
