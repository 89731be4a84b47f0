"""Outcomes to the numbers of a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bitcal_tts.evaluation.statistics import savings, wilson
from bitcal_tts.traces.outcome import Outcome


def summarise(found: Sequence[Outcome], identity: dict[str, Any]) -> dict[str, Any]:
    """One row: a method at a budget on a model at its bits.

    Savings are against the same traces decoded to the budget, probe tokens counted as cost. Overthinking is the
    paper's: the full budget used, and wrong. Cut off is what fills the budget where nothing stops it.
    """
    n = len(found)
    if n == 0:
        raise ValueError("no outcomes to summarise")
    right = sum(o.correct for o in found)
    accuracy = wilson(right, n)
    cost = np.array([o.cost for o in found])
    saved = savings(cost, [o.full_tokens for o in found])
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
        "accuracy": accuracy.value,
        "accuracy_low": accuracy.low,
        "accuracy_high": accuracy.high,
        "avg_tokens": float(cost.mean()),
        "median_tokens": float(np.median(cost)),
        "p95_tokens": float(np.percentile(cost, 95)),
        "probe_tokens": sum(o.probe_tokens for o in found) / n,
        "savings": saved.value,
        "savings_low": saved.low,
        "savings_high": saved.high,
        "premature_stop_rate": sum(o.premature for o in found) / n,
        "lost_correct_rate": sum(o.lost for o in found) / n,
        "rescued_rate": sum(o.rescued for o in found) / n,
        "answer_rate": sum(o.answer is not None for o in found) / n,
        "cut_off_rate": sum(o.full_tokens >= o.budget for o in found) / n,
        "overthinking_rate": sum(o.finish == "budget" and not o.correct for o in found) / n,
        "reasons": dict(sorted(reasons.items())),
    }
