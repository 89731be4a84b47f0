"""Paired comparisons of methods on the same items, corrected for how many are made."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from itertools import combinations
from typing import Any

from bitcal_tts.evaluation.statistics import holm, mcnemar, minimum_detectable_effect, paired_difference
from bitcal_tts.traces.outcome import Outcome

LEVEL = 0.05


def compare(found: Sequence[Outcome], against: Collection[str] | None = None) -> list[dict[str, Any]]:
    """Every pair of methods at every budget: difference, discordant items, corrected p-value, verdict.

    The verdict is `better` or `worse` only where the test says so after Holm's correction over all rows.

    Args:
        found: Outcomes of the methods on the same items.
        against: Only pairs with one of these methods (all pairs).
    """
    cells: dict[int, dict[str, dict[str, bool]]] = {}
    for outcome in found:
        cells.setdefault(outcome.budget, {}).setdefault(outcome.method, {})[outcome.item] = outcome.correct
    rows = []
    for budget, methods in cells.items():
        # What the others are compared with comes first.
        order = sorted(methods, key=lambda name: (name not in (against or ()), name != "fixed"))
        for base, method in combinations(order, 2):
            if against is None or base in against:
                rows.append(_pair(budget, method, base, methods[method], methods[base]))
    return corrected(rows)


def corrected(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same rows with p-values and verdicts corrected over all of them."""
    for row, p in zip(rows, holm([row["p_value"] for row in rows]), strict=True):
        row["p_corrected"] = p
        row["verdict"] = "not resolved" if p >= LEVEL else ("better" if row["difference"] > 0 else "worse")
    return rows


def _pair(budget: int, method: str, base: str, one: dict[str, bool], other: dict[str, bool]) -> dict[str, Any]:
    if one.keys() != other.keys():
        raise ValueError(f"{method} and {base} at budget {budget} were not run on the same items")
    items = sorted(one)
    first, second = [one[item] for item in items], [other[item] for item in items]
    test, difference = mcnemar(first, second), paired_difference(first, second)
    n = len(items)
    effect = minimum_detectable_effect(n, (test.only_first + test.only_second) / n)
    return {
        "budget": budget,
        "method": method,
        "against": base,
        "n": n,
        "difference": difference.value,
        "difference_low": difference.low,
        "difference_high": difference.high,
        "only_method_right": test.only_first,
        "only_against_right": test.only_second,
        "p_value": test.p_value,
        "minimum_detectable_effect": effect if math.isfinite(effect) else None,
    }
