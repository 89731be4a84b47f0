from __future__ import annotations

import pytest

from bitcal_tts.evaluation.comparison import compare
from bitcal_tts.evaluation.statistics import minimum_detectable_effect
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


def test_a_method_that_loses_less_than_the_margin_is_not_worse() -> None:
    base = outcomes("landed", [True] * 1800 + [False] * 200)
    same = outcomes("same", [True] * 1799 + [False] * 201)
    rows = {row["against"]: row for row in compare([*base, *same], base="same")}
    assert set(rows) == {"landed"}
    assert rows["landed"]["verdict"] == "not worse" and rows["landed"]["difference"] == pytest.approx(-0.0005)
    worse = outcomes("worse", [True] * 1792 + [False] * 208)  # by 0.4 points: below the margin, and not shown to be
    (row,) = compare([*base, *worse], base="worse")
    assert row["p_not_worse"] > 0.05


def test_what_can_be_detected_is_told_for_the_corrected_level() -> None:
    right = [True] * 60 + [False] * 60
    others = [outcomes(name, right[10 * i :] + right[: 10 * i]) for i, name in enumerate("abcd")]
    alone = compare([*others[0], *others[3]])[0]["minimum_detectable_effect"]
    rows = compare([o for method in others for o in method])
    among = next(row for row in rows if (row["method"], row["against"]) == ("d", "a"))["minimum_detectable_effect"]
    assert alone == pytest.approx(minimum_detectable_effect(120, 0.5))
    assert among == pytest.approx(minimum_detectable_effect(120, 0.5, alpha=0.05 / 6)) and among > alone
