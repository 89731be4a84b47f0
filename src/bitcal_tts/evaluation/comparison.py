"""Paired comparisons of methods on the same items, corrected for how many are made."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from itertools import combinations
from typing import Any

from bitcal_tts.evaluation.statistics import (
    holm,
    mcnemar,
    minimum_detectable_effect,
    not_worse_p_value,
    paired_difference,
)
from bitcal_tts.traces.outcome import Outcome

LEVEL = 0.05
MARGIN = 0.005
"""Of accuracy: a method that is shown to lose less than this to another counts as not worse."""
BASELINES = ("landed", "fixed")
"""What a method is measured against, the first that is there."""


def compare(
    found: Sequence[Outcome], against: Collection[str] | None = None, *, base: str | None = None
) -> list[dict[str, Any]]:
    """Every pair of methods at every budget: difference, discordant items, corrected p-values, verdict.

    The verdict is `better` or `worse` only where the test says so after Holm's correction over all rows, else `not
    worse` where the difference is shown to be less than `MARGIN`, again after Holm's correction, and `not resolved`
    where nothing is shown.

    Args:
        found: Outcomes of the methods on the same items.
        against: Only pairs with one of these methods (all pairs).
        base: Only this method, against each of the others.
    """
    cells: dict[int, dict[str, dict[str, bool]]] = {}
    for outcome in found:
        cell = cells.setdefault(outcome.budget, {}).setdefault(outcome.method, {})
        if outcome.item in cell:
            raise ValueError(f"item {outcome.item!r} comes twice: pairs are found by the items' names")
        cell[outcome.item] = outcome.correct
    rows = []
    for budget, methods in cells.items():
        if base is not None:
            rows += [_pair(budget, base, name, methods[base], methods[name]) for name in methods if name != base]
            continue
        # What the others are compared with comes first.
        order = sorted(methods, key=lambda name: (name not in (against or ()), *(name != one for one in BASELINES)))
        for first, method in combinations(order, 2):
            if against is None or first in against:
                rows.append(_pair(budget, method, first, methods[method], methods[first]))
    return corrected(rows)


def corrected(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same rows with p-values and verdicts corrected over all of them."""
    differ = holm([row["p_value"] for row in rows])
    not_worse = holm([row["p_not_worse_alone"] for row in rows])
    for row, p, other in zip(rows, differ, not_worse, strict=True):
        row["p_corrected"], row["p_not_worse"] = p, other
        undecided = "not worse" if other < LEVEL else "not resolved"
        row["verdict"] = undecided if p >= LEVEL else ("better" if row["difference"] > 0 else "worse")
        discordant = (row["only_method_right"] + row["only_against_right"]) / row["n"]
        first_step = LEVEL / len(rows)  # of Holm's
        effect = minimum_detectable_effect(row["n"], discordant, alpha=first_step)
        row["minimum_detectable_effect"] = effect if math.isfinite(effect) else None
    return rows


def _pair(budget: int, method: str, base: str, one: dict[str, bool], other: dict[str, bool]) -> dict[str, Any]:
    if one.keys() != other.keys():
        raise ValueError(f"{method} and {base} at budget {budget} were not run on the same items")
    items = sorted(one)
    first, second = [one[item] for item in items], [other[item] for item in items]
    test, difference = mcnemar(first, second), paired_difference(first, second)
    return {
        "budget": budget,
        "method": method,
        "against": base,
        "n": len(items),
        "difference": difference.value,
        "difference_low": difference.low,
        "difference_high": difference.high,
        "only_method_right": test.only_first,
        "only_against_right": test.only_second,
        "p_value": test.p_value,
        "p_not_worse_alone": not_worse_p_value(test.only_first, test.only_second, len(items), MARGIN),
    }
