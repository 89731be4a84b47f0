"""Outcomes to the numbers of a table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from bitcal_tts.traces.replay import Outcome


def wilson(successes: int, n: int, z: float = 1.959963984540054) -> tuple[float, float]:
    """Wilson's score interval for a proportion (Wilson 1927), 95 % by default."""
    if n < 1 or not 0 <= successes <= n:
        raise ValueError(f"need 0 <= successes <= n and n >= 1, got {successes} of {n}")
    p = successes / n
    centre = p + z * z / (2 * n)
    spread = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    scale = 1 + z * z / n
    # At 0 and at n the formula gives the bound itself, but for rounding.
    low = 0.0 if successes == 0 else (centre - spread) / scale
    high = 1.0 if successes == n else (centre + spread) / scale
    return low, high


def summarise(found: Sequence[Outcome], identity: dict[str, Any]) -> dict[str, Any]:
    """One row: a method at a budget on a model at its bits.

    Savings are against the same traces decoded to the budget, probe tokens counted as cost.
    """
    n = len(found)
    if n == 0:
        raise ValueError("no outcomes to summarise")
    right = sum(o.correct for o in found)
    low, high = wilson(right, n)
    tokens = sum(o.tokens + o.probe_tokens for o in found)
    full = sum(o.full_tokens for o in found)
    reasons: dict[str, int] = {}
    for o in found:
        reasons[o.reason] = reasons.get(o.reason, 0) + 1
    return {
        "model": identity["model"],
        "bits": identity["bits"],
        "task": identity["task"],
        "style": identity.get("style"),
        "temperature": identity["decoding"]["temperature"],
        "method": found[0].method,
        "budget": found[0].budget,
        "n": n,
        "accuracy": right / n,
        "accuracy_low": low,
        "accuracy_high": high,
        "avg_tokens": tokens / n,
        "savings": 1 - tokens / full if full else 0.0,
        "premature_stop_rate": sum(o.premature for o in found) / n,
        "lost_correct_rate": sum(o.lost for o in found) / n,
        "rescued_rate": sum(o.rescued for o in found) / n,
        "reasons": dict(sorted(reasons.items())),
    }
