from __future__ import annotations

import pytest

from bitcal_tts.evaluation.comparison import compare
from bitcal_tts.traces.outcome import Outcome


def outcomes(method: str, right: list[bool], budget: int = 64) -> list[Outcome]:
    return [Outcome(f"i{i}", method, 4, budget, 10, 0, "eos", "eos", "1", ok, ok, 10) for i, ok in enumerate(right)]


def test_a_resolved_difference_is_named_and_an_unresolved_one_is_not() -> None:
    fixed = outcomes("fixed", [True] * 90 + [False] * 10)
    poor = outcomes("poor", [False] * 20 + [True] * 70 + [False] * 10)
    near = outcomes("near", [True] * 89 + [False] * 11)
    rows = {(row["method"], row["against"]): row for row in compare([*fixed, *poor, *near])}
    assert set(rows) == {("poor", "fixed"), ("near", "fixed"), ("near", "poor")}
    worse = rows["poor", "fixed"]
    assert (worse["verdict"], worse["only_method_right"], worse["only_against_right"]) == ("worse", 0, 20)
    assert worse["difference"] == pytest.approx(-0.2)
    assert worse["p_value"] == pytest.approx(2 * 0.5**20)
    assert worse["p_corrected"] == pytest.approx(3 * 2 * 0.5**20)
    assert rows["near", "fixed"]["verdict"] == "not resolved"
    assert rows["near", "fixed"]["minimum_detectable_effect"] is None
    assert rows["near", "poor"]["verdict"] == "better"


def test_budgets_are_compared_apart() -> None:
    rows = compare([*outcomes("a", [True], 64), *outcomes("b", [True], 64), *outcomes("a", [True], 128)])
    assert [(row["budget"], row["method"], row["against"]) for row in rows] == [(64, "b", "a")]


def test_other_items_are_refused() -> None:
    with pytest.raises(ValueError, match="b and a at budget 64 were not run on the same items"):
        compare([*outcomes("a", [True, False]), *outcomes("b", [True])])
