"""How peers choose a threshold for a promised share of lost answers, on the same scored looks as ours.

They differ from `risk.certify` in what they promise, not in what they look at: all take the scores as they are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from bitcal_tts.calibration.risk import check_levels

Losses = Sequence[int]
"""How many of n requests are lost at each threshold, strictest first."""


def conformal_risk_control(losses: Losses, costs: Sequence[float], n: int, risk: float) -> int | None:
    """Conformal Thinking, CRC: of thresholds with (losses + 1) / (n + 1) <= risk the cheapest; None where none has.

    It promises the mean over calibration sets, not that this one keeps the risk.
    """
    return _cheapest([(lost + 1) / (n + 1) <= risk for lost in losses], costs)


def upper_confidence_bound(
    losses: Losses, costs: Sequence[float], n: int, risk: float, confidence: float
) -> int | None:
    """Conformal Thinking, UCB: of thresholds with losses / n + sqrt(ln(1 / delta) / 2 n) <= risk the cheapest."""
    check_levels(risk, confidence)
    slack = math.sqrt(math.log(1 / (1 - confidence)) / (2 * n))
    return _cheapest([lost / n + slack <= risk for lost in losses], costs)


def split_conformal(scores: NDArray[np.float64], right: NDArray[np.bool_], risk: float) -> float:
    """LYNX: the score from which on a look's prediction set is {right}, with split conformal p-values a class.

    Each look is taken for an item of its own, though a request is looked at many times: what it promises holds for a
    look and not for a request.

    Args:
        scores: Of all looks of the calibration requests.
        right: Whether stopping there would have been right.
        risk: The level of both classes.
    """
    wrong, good = np.sort(scores[~right]), np.sort(scores[right])
    # `wrong` is not in the set where (1 + wrong looks that score as high) / (m + 1) <= risk.
    most = math.floor(risk * (len(wrong) + 1)) - 1
    if most < 0:
        return math.inf
    bar = math.nextafter(float(wrong[-1 - most]), math.inf) if most < len(wrong) else -math.inf
    # `right` is in the set where (1 + right looks that score as low) / (m + 1) > risk.
    fewest = math.floor(risk * (len(good) + 1))
    return max(bar, float(good[fewest - 1])) if 0 < fewest <= len(good) else bar


def _cheapest(allowed: Sequence[bool], costs: Sequence[float]) -> int | None:
    kept = [i for i, fits in enumerate(allowed) if fits]
    return min(kept, key=lambda i: costs[i]) if kept else None
