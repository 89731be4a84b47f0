"""The point that a method would choose for a lost-correct rate."""

from __future__ import annotations

from typing import Any

import pytest

from bitcal_tts import build_method
from bitcal_tts.evaluation.frontier import Point, choose, frontier
from bitcal_tts.tasks import load_task
from bitcal_tts.traces.replay import outcomes


def point(cost: float, lost: float) -> Point:
    return Point(0.5, cost, lost, 0.9, list)


def test_the_cheapest_that_loses_no_more_is_chosen() -> None:
    points = [point(100, 0.0), point(60, 0.01), point(70, 0.005), point(40, 0.011), point(65, 0.01)]
    chosen = choose(points, 0.01)
    assert chosen is not None and (chosen.cost, chosen.lost) == (60, 0.01)  # at the target, not above it
    exact = choose(points, 0.0)
    assert exact is not None and exact.cost == 100
    assert choose([point(10, 0.2)], 0.05) is None


@pytest.mark.parametrize("name", ["truncate", "deer", "adaptive", "complete"])
def test_points_are_outcomes(probed: Any, name: str) -> None:
    task, traces = load_task(), probed.read()[:16]
    opening, close = probed.description["thinking"]
    options = {} if name == "adaptive" else {"opening": opening, "close": close}
    method = build_method(name, bits=32, budget=320, **options)
    points = frontier(traces, method, task)
    assert len(points) == 1 if name == "complete" else len(points) > 10
    for found in points[:: max(1, len(points) // 5)]:
        done = found.outcomes
        assert found.cost == pytest.approx(sum(o.cost for o in done) / 16)
        assert found.lost == pytest.approx(sum(o.lost for o in done) / 16)
        assert found.accuracy == pytest.approx(sum(o.correct for o in done) / 16)
    if name == "complete":
        assert list(points[0].outcomes) == outcomes(traces, method, task)
