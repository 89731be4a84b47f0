"""The point that a method would choose for a lost-correct rate."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
from short_task import short_task

from bitcal_tts import build_method
from bitcal_tts.calibration.recording import BLANK, Walker
from bitcal_tts.evaluation.frontier import Point, choose, frontier, rows_of
from bitcal_tts.halting.settled import SettledParameters
from bitcal_tts.traces.replay import outcomes
from bitcal_tts.traces.walk import walk


def point(cost: float, lost: float) -> Point:
    return Point(0.5, cost, cost / 2, lost, 0.9, list)


def test_the_cheapest_that_loses_no_more_is_chosen() -> None:
    points = [point(100, 0.0), point(60, 0.01), point(70, 0.005), point(40, 0.011), point(65, 0.01)]
    chosen = choose(points, 0.01)
    assert chosen is not None and (chosen.cost, chosen.lost) == (60, 0.01)  # at the target, not above it
    exact = choose(points, 0.0)
    assert exact is not None and exact.cost == 100
    assert choose([point(10, 0.2)], 0.05) is None


@pytest.mark.parametrize("name", ["truncate", "deer", "adaptive", "complete"])
def test_points_are_outcomes(probed: Any, name: str) -> None:
    task, traces = short_task(), probed.read()[:16]
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


@pytest.mark.parametrize("looks", ["statements", "sentences"])
def test_rules_look_where_settled_does(probed: Any, looks: str) -> None:
    task, traces = short_task(), probed.read()[:16]
    opening, close = probed.description["thinking"]
    shared: dict[str, Any] = {"bits": 32.0, "budget": 320, "opening": opening, "close": close, "looks": looks}
    settled = SettledParameters(name="settled", profile=BLANK, fallback_after=10_000, guard=False, **shared)
    ours = walk(traces, Walker(settled), task)
    for name in ("truncate", "deer"):
        method = build_method(name, **shared, **({"max_probes": 10_000} if name == "deer" else {}))
        never = type(method)(dataclasses.replace(method.parameters, threshold=math.inf))
        theirs = walk(traces, never, task)
        assert theirs.trace.tolist() == ours.trace.tolist() and theirs.at.tolist() == ours.at.tolist()
    assert len(ours) > 16
    assert (theirs.stops.probe_tokens > 0).all() and not ours.stops.probe_tokens.any()


def test_rules_that_do_the_same_are_told_once_and_probes_may_be_free(probed: Any) -> None:
    task, traces = short_task(), probed.read()[:32]
    opening, close = probed.description["thinking"]
    points = {
        label: frontier(traces, build_method(name, bits=32, budget=320, opening=opening, close=close), task)
        for label, name in (("deer", "deer"), ("s1", "s1"), ("truncate", "truncate"), ("landed", "landed"))
    }
    rows = rows_of(points, probed.description)
    assert {row["method"]: row["same_as"] for row in rows} == {"deer": [], "s1": ["truncate"], "landed": []}
    deer = [row for row in rows if row["method"] == "deer"]
    assert deer and all(row["savings_probes_free"] > row["savings"] for row in deer)
    (landed,) = (row for row in rows if row["method"] == "landed")
    assert landed["target"] is None and landed["savings_probes_free"] == pytest.approx(landed["savings"])
