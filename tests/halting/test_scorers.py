"""Scorers: what is looked at all at once is what a walk down each tree comes to."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bitcal_tts.halting.scorers import MOST_LEAVES, Boosted

WIDTH = 5


def grown(rng: np.random.Generator, leaves: int) -> dict[str, list[Any]]:
    """A tree of any shape; its thresholds are such that numbers lie on them too."""
    tree: dict[str, list[Any]] = {"feature": [], "threshold": [], "left": [], "right": [], "value": []}

    def add(n: int) -> int:
        at = len(tree["feature"])
        tree["feature"].append(int(rng.integers(WIDTH)))
        tree["threshold"].append(float(rng.choice([rng.normal(), np.float32(rng.normal()), rng.integers(-2, 3)])))
        tree["value"].append(float(rng.normal()))
        tree["left"].append(at)
        tree["right"].append(at)
        if n > 1:
            left = int(rng.integers(1, n))
            tree["left"][at], tree["right"][at] = add(left), add(n - left)
        return at

    add(leaves)
    return tree


def walked(tree: dict[str, list[Any]], row: Any) -> float:
    node = 0
    while tree["left"][node] != node:
        above = float(row[tree["feature"][node]]) > tree["threshold"][node]
        node = tree["right" if above else "left"][node]
    return float(tree["value"][node])


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.lists(st.integers(1, MOST_LEAVES), min_size=1, max_size=6), st.integers(1, 70))
def test_trees_come_to_what_a_walk_down_them_does(seed: int, leaves: list[int], n: int) -> None:
    rng = np.random.default_rng(seed)
    trees = [grown(rng, size) for size in leaves]
    rows = rng.normal(size=(n, WIDTH)).astype(np.float32)
    thresholds = np.array([value for tree in trees for value in tree["threshold"]], dtype=np.float32)
    rows = np.where(rng.random(rows.shape) < 0.4, rng.choice(thresholds, rows.shape), rows)  # on a threshold, or by it
    rows[rng.random(rows.shape) < 0.1] = np.nan
    expected = [np.array([walked(tree, row) for tree in trees]).sum() + 0.25 for row in rows]
    assert Boosted({"trees": trees, "start": 0.25})(rows).tolist() == pytest.approx(expected, rel=1e-12)


def test_many_rows_are_judged_as_few_are() -> None:
    rng = np.random.default_rng(1)
    scorer = Boosted({"trees": [grown(rng, 24) for _ in range(7)], "start": 0.0})
    rows = rng.normal(size=(3000, WIDTH)).astype(np.float32)
    assert scorer(rows).tolist() == [float(scorer(row[None])[0]) for row in rows]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t["left"].__setitem__(0, 0), "each of its nodes once"),
        (lambda t: t["right"].__setitem__(0, t["left"][0]), "each of its nodes once"),
        (lambda t: t["right"].__setitem__(0, 99), "leads to 99 of 5"),
        (lambda t: t["right"].__setitem__(0, -1), "leads to -1 of 5"),
        (lambda t: t["value"].pop(), "as many entries as it has nodes"),
        (lambda t: t["feature"].__setitem__(0, -1), "features must be at least 0"),
    ],
)
def test_a_tree_that_is_none_is_refused(change: Any, message: str) -> None:
    tree = grown(np.random.default_rng(2), 3)
    change(tree)
    with pytest.raises(ValueError, match=message):
        Boosted({"trees": [tree], "start": 0.0})


def test_a_tree_with_too_many_leaves_is_refused() -> None:
    with pytest.raises(ValueError, match="at most 53 leaves"):
        Boosted({"trees": [grown(np.random.default_rng(3), 54)], "start": 0.0})


def test_a_feature_that_is_not_there_is_named() -> None:
    tree = {"feature": [7, 0, 0], "threshold": [0.0] * 3, "left": [1, 1, 2], "right": [2, 1, 2], "value": [0.0] * 3}
    with pytest.raises(IndexError, match="looks at feature 7 of 5"):
        Boosted({"trees": [tree], "start": 0.0})(np.zeros((1, 5), dtype=np.float32))
