"""Every method and rule on the same traces, each swept over its own threshold: accuracy against tokens."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bitcal_tts.evaluation.metrics import summarise
from bitcal_tts.halting.gate import Gate, Rule
from bitcal_tts.halting.identity import Identity
from bitcal_tts.halting.paper import PaperRule
from bitcal_tts.tasks.base import Task
from bitcal_tts.traces.looks import Cut
from bitcal_tts.traces.outcome import Outcome
from bitcal_tts.traces.replay import outcomes
from bitcal_tts.traces.schema import Trace
from bitcal_tts.traces.sweep import Sweep
from bitcal_tts.traces.walk import gate_looks

TARGETS = (0.005, 0.01, 0.02, 0.05)
_POINTS = 200


@dataclass(frozen=True)
class Point:
    """A method at one threshold, None where it has none; `every` is how often it looks, where that was varied."""

    threshold: float | None
    cost: float
    """Mean tokens, probes included."""
    lost: float
    """Share of items halted and wrong where the full trace is right."""
    accuracy: float
    """Share of right answers."""
    find: Callable[[], Sequence[Outcome]]
    """The outcomes: thousands of points have millions, and only those of the chosen are wanted."""
    every: int | None = None

    @property
    def outcomes(self) -> Sequence[Outcome]:
        """One an item."""
        return self.find()


def frontier(
    traces: Sequence[Trace],
    method: Any,
    task: Task,
    *,
    identity: Identity | None = None,
    tick: Callable[[], None] | None = None,
) -> list[Point]:
    """All points of a method."""
    if isinstance(method, Gate):
        return _gate_points(traces, method, task, identity, tick)
    if isinstance(method, PaperRule) and method.parameters.halts:
        return _paper_points(traces, method, task)
    done = outcomes(traces, method, task, identity=identity, tick=tick)
    n = len(done)
    cost = sum(o.cost for o in done) / n
    return [Point(None, cost, sum(o.lost for o in done) / n, sum(o.correct for o in done) / n, lambda: done)]


def _gate_points(
    traces: Sequence[Trace], gate: Gate, task: Task, identity: Identity | None, tick: Callable[[], None] | None
) -> list[Point]:
    looks = gate_looks(traces, gate, task, identity=identity, tick=tick)
    scores = looks.score_values()
    grid = np.linspace(0, 1, _POINTS)
    chosen = np.unique(np.quantile(scores, grid, method="higher")) if scores.size else scores
    own = gate.thresholds() if isinstance(gate, Rule) else [gate.parameters.threshold]
    thresholds = sorted({*map(float, chosen), *own})
    p = gate.parameters
    return [_point(t, traces, looks.cut(t), p, p.every) for t in thresholds]


def _point(threshold: float, traces: Sequence[Trace], cut: Cut, p: Any, every: int | None) -> Point:
    return Point(
        threshold,
        float(cut.cost.mean()),
        float(cut.lost.mean()),
        float(cut.correct.mean()),
        lambda: cut.outcomes(traces, p),
        every,
    )


def _paper_points(traces: Sequence[Trace], method: PaperRule, task: Task) -> list[Point]:
    """The paper's methods, swept over the confidence from which on they stop."""
    p = method.parameters
    thresholds = sorted({p.stop_confidence, *(round(0.3 + 0.01 * i, 2) for i in range(50))})
    settings = [dataclasses.replace(p, stop_confidence=t) for t in thresholds]
    cuts = Sweep(traces, method, task).run(settings)
    return [_point(t, traces, cut, p, None) for t, cut in zip(thresholds, cuts, strict=True)]


def choose(points: Sequence[Point], target: float) -> Point | None:
    """The cheapest point that loses no more than the target; None where every one does."""
    kept = [point for point in points if point.lost <= target]
    return min(kept, key=lambda point: point.cost) if kept else None


def certified_row(found: Sequence[Outcome], identity: dict[str, Any], threshold: float) -> dict[str, Any]:
    """What a profile does at the threshold it promises something for; None where it could promise nothing."""
    shown = threshold if math.isfinite(threshold) else None
    row = summarise(found, identity)
    return {**row, "certified": True, "target": None, "threshold": shown, "every": None}


def rows_of(points: dict[str, list[Point]], identity: dict[str, Any]) -> list[dict[str, Any]]:
    """A row for each method at each target; a method without a threshold has one row."""
    rows = []
    for name, found in points.items():
        targets: Sequence[float | None] = TARGETS if found[0].threshold is not None else (None,)
        for target in targets:
            point = found[0] if target is None else choose(found, target)
            if point is None:
                continue
            rows.append({
                **summarise(point.outcomes, identity),
                "method": name,
                "certified": False,
                "target": target,
                "threshold": point.threshold,
                "every": point.every,
            })  # fmt: skip
    return rows
