"""Every method and rule on the same traces, each swept over its own threshold: accuracy against tokens."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bitcal_tts.evaluation.metrics import summarise
from bitcal_tts.halting.gate import Gate, Rule
from bitcal_tts.halting.identity import Identity
from bitcal_tts.halting.landed import Landed
from bitcal_tts.halting.paper import PaperRule
from bitcal_tts.tasks.base import Task
from bitcal_tts.traces.cut import Cut
from bitcal_tts.traces.looks import LookTable
from bitcal_tts.traces.outcome import Outcome
from bitcal_tts.traces.parallel import Tick
from bitcal_tts.traces.replay import outcomes
from bitcal_tts.traces.sweep import Sweep
from bitcal_tts.traces.trace import Trace
from bitcal_tts.traces.walk import gate_looks

TARGETS = (0.005, 0.01, 0.02, 0.05)
_POINTS = 200


@dataclass(frozen=True)
class Point:
    """A method at one threshold, None where it has none; `setting` is what else of it was varied."""

    threshold: float | None
    cost: float
    """Mean tokens, probes included."""
    unprobed: float
    """Mean tokens, as if probes were free."""
    lost: float
    """Share of items halted and wrong where the full trace is right."""
    accuracy: float
    """Share of right answers."""
    find: Callable[[], Sequence[Outcome]]
    """The outcomes: thousands of points have millions, and only those of the chosen are wanted."""
    setting: Mapping[str, Any] = field(default_factory=dict)

    @property
    def outcomes(self) -> Sequence[Outcome]:
        """One an item."""
        return self.find()


Walk = Any
"""What a method does on traces at any threshold: a gate's looks, a paper's rule cut at each of its thresholds, or the
outcomes of a method that has none."""


def frontier(
    traces: Sequence[Trace], method: Any, task: Task, *, identity: Identity | None = None, tick: Tick | None = None
) -> list[Point]:
    """All points of a method.

    Args:
        traces: Recorded with probes where the method asks or lands.
        method: Its own threshold is one of many.
        task: Scores answers.
        identity: Of the recording, for a method whose promise is tied to one.
        tick: Told of each trace.
    """
    walk = walk_along(traces, method, task, identity=identity, tick=tick or (lambda: None))
    return points_of([walk], traces, method, {})


def walk_along(traces: Sequence[Trace], method: Any, task: Task, *, identity: Identity | None, tick: Tick) -> Walk:
    """Walk a method along some of the traces."""
    if isinstance(method, Gate) and not isinstance(method, Landed):
        return gate_looks(traces, method, task, identity=identity, tick=tick)
    if isinstance(method, PaperRule) and method.parameters.halts:
        cuts = Sweep(traces, method, task).run(_paper_settings(method))
        for _ in traces:
            tick()
        return cuts
    return outcomes(traces, method, task, identity=identity, tick=tick)


def points_of(walks: Sequence[Walk], traces: Sequence[Trace], method: Any, setting: Mapping[str, Any]) -> list[Point]:
    """All points of a method that was walked along shares of the traces, in their order.

    Args:
        walks: One a share.
        traces: All of them.
        method: The one that was walked.
        setting: What of it was varied, to be told with its points.
    """
    p = method.parameters
    if isinstance(method, Gate) and not isinstance(method, Landed):
        return _gate_points(LookTable.joined(walks), traces, method, setting)
    if isinstance(method, PaperRule) and p.halts:
        cuts = [Cut.joined(parts) for parts in zip(*walks, strict=True)]
        thresholds = [one.stop_confidence for one in _paper_settings(method)]
        return [_point(t, traces, cut, p, setting) for t, cut in zip(thresholds, cuts, strict=True)]
    done = [outcome for walk in walks for outcome in walk]
    cost, unprobed, lost, right = (
        float(np.mean(column)) for column in zip(*((o.cost, o.tokens, o.lost, o.correct) for o in done), strict=True)
    )
    return [Point(None, cost, unprobed, lost, right, lambda: done, setting)]


def _gate_points(looks: LookTable, traces: Sequence[Trace], gate: Gate, setting: Mapping[str, Any]) -> list[Point]:
    scores = looks.score_values()
    grid = np.linspace(0, 1, _POINTS)
    chosen = np.unique(np.quantile(scores, grid, method="higher")) if scores.size else scores
    own = gate.thresholds() if isinstance(gate, Rule) else [gate.parameters.threshold]
    thresholds = sorted({*map(float, chosen), *own})
    p = gate.parameters
    return [_point(t, traces, looks.cut(t), p, setting) for t in thresholds]


def _point(threshold: float, traces: Sequence[Trace], cut: Cut, p: Any, setting: Mapping[str, Any]) -> Point:
    return Point(
        threshold,
        float(cut.cost.mean()),
        float(cut.tokens.mean()),
        float(cut.lost.mean()),
        float(cut.correct.mean()),
        lambda: cut.outcomes(traces, p),
        setting,
    )


def _paper_settings(method: PaperRule) -> list[Any]:
    """The paper's methods are swept over the confidence from which on they stop."""
    p = method.parameters
    thresholds = sorted({p.stop_confidence, *(round(0.3 + 0.01 * i, 2) for i in range(50))})
    return [dataclasses.replace(p, stop_confidence=t) for t in thresholds]


def choose(points: Sequence[Point], target: float, *, probes_free: bool = False) -> Point | None:
    """The cheapest point that loses no more than the target; None where every one does."""
    kept = [point for point in points if point.lost <= target]
    return min(kept, key=lambda point: point.unprobed if probes_free else point.cost) if kept else None


def certified_row(found: Sequence[Outcome], identity: dict[str, Any], threshold: float) -> dict[str, Any]:
    """What a profile does at the threshold it promises something for; None where it could promise nothing."""
    shown = threshold if math.isfinite(threshold) else None
    row = _row(found, identity)
    free = _saved_if_probes_were_free(found)
    return {**row, "certified": True, "target": None, "threshold": shown, "setting": {}, "savings_probes_free": free}


def rows_of(points: dict[str, list[Point]], identity: dict[str, Any]) -> list[dict[str, Any]]:
    """A row for each method at each target; a method without a threshold has one row.

    Rules that do the same to every trace at every target are told once: `same_as` names the others.
    """
    rows: dict[str, list[dict[str, Any]]] = {}
    known: dict[Any, str] = {}
    for name, found in points.items():
        mine, done = [], []
        targets: Sequence[float | None] = TARGETS if found[0].threshold is not None else (None,)
        for target in targets:
            point = found[0] if target is None else choose(found, target)
            free = point if target is None else choose(found, target, probes_free=True)
            if point is None or free is None:
                continue
            outcomes = point.outcomes
            done.append((target, tuple((o.cost, o.correct) for o in outcomes)))
            mine.append({
                **_row(outcomes, identity),
                "method": name,
                "same_as": [],
                "certified": False,
                "target": target,
                "threshold": point.threshold,
                "setting": dict(point.setting),
                "savings_probes_free": _saved_if_probes_were_free(outcomes if free is point else free.outcomes),
            })  # fmt: skip
        first = known.setdefault(tuple(done), name) if done and found[0].threshold is not None else name
        if first == name:
            rows[name] = mine
        else:
            for row in rows[first]:
                row["same_as"].append(name)
    return [row for mine in rows.values() for row in mine]


def _row(found: Sequence[Outcome], identity: dict[str, Any]) -> dict[str, Any]:
    """As any table has it, but for how many answer at all: a cut does not tell what was answered."""
    row = summarise(found, identity)
    del row["answer_rate"]
    return row


def _saved_if_probes_were_free(found: Sequence[Outcome]) -> float:
    return 1 - sum(o.tokens for o in found) / max(1, sum(o.full_tokens for o in found))
