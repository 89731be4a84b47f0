"""The table of looks is exactly the replay, for every gate, also at the very scores that occur."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from short_task import short_task

from bitcal_tts import build_method
from bitcal_tts.halting.gate import Gate
from bitcal_tts.halting.rules import RULES
from bitcal_tts.traces.looks import LookTable
from bitcal_tts.traces.replay import outcomes
from bitcal_tts.traces.walk import gate_looks

GATES = [name for name in RULES if name not in ("guard", "marker")]


def gate(name: str, probed: Any, **options: Any) -> Any:
    opening, close = probed.description["thinking"]
    return build_method(name, bits=32, budget=320, opening=opening, close=close, **options)


@pytest.mark.parametrize("name", GATES)
def test_a_cut_is_what_replay_does(probed: Any, name: str) -> None:
    task, traces = short_task(), probed.read()[:24]
    options: dict[str, Any] = {"alpha": 0.8} if name == "eat" else {"window": 32} if name == "deepconf" else {}
    method = gate(name, probed, **options)
    looks = gate_looks(traces, method, task)
    scores = looks.score_values()
    assert len(scores) > 0
    halted = set()
    for threshold in {*np.quantile(scores, [0.0, 0.3, 0.8, 1.0], method="nearest").tolist(), 1e9}:
        told = outcomes(traces, gate(name, probed, threshold=threshold, **options), task)
        cut = looks.cut(threshold)
        assert cut.outcomes(traces, method.parameters) == [dataclasses.replace(o, answer=None) for o in told]
        assert cut.lost.tolist() == [o.lost for o in told]
        assert cut.cost.tolist() == [o.cost for o in told]
        halted.add(sum(o.reason == str(type(method).reason) for o in told))
    assert len(halted) > 1 or name.startswith("oracle")


def test_a_score_must_exceed_a_strict_threshold_and_may_meet_another(probed: Any) -> None:
    task, traces = short_task(), probed.read()[:24]
    for name, strict in (("deer", True), ("dynasor", False)):
        looks = gate_looks(traces, gate(name, probed), task)
        assert looks.strict is strict
        highest = float(looks.score_values()[-1])
        assert bool((looks.cut(highest).reasons == "exit").any()) is not strict


def test_tables_are_joined_and_parted(probed: Any) -> None:
    task, traces = short_task(), probed.read()[:12]
    method = gate("dynasor", probed)
    whole = gate_looks(traces, method, task)
    parts = [gate_looks(traces[:5], method, task), gate_looks(traces[5:], method, task)]
    joined = LookTable.joined(parts)
    for threshold in (1.0, 2.0, 4.0, 99.0):
        assert joined.cut(threshold).cost.tolist() == whole.cut(threshold).cost.tolist()
        chosen = [7, 2, 11]
        expected = whole.cut(threshold)
        assert whole.of(chosen).cut(threshold).tokens.tolist() == expected.tokens[chosen].tolist()
    assert whole.full().cost.tolist() == whole.full_tokens.tolist()
    nothing = whole.of([])
    assert nothing.n == 0 and nothing.cut(1.0).cost.tolist() == []


def test_what_is_lost_is_changed_but_not_the_other_way_round(probed: Any) -> None:
    task, traces = short_task(), probed.read()
    cut = gate_looks(traces, gate("truncate", probed), task).cut(48.0)
    stopped = outcomes(traces, gate("truncate", probed, threshold=48.0), task)
    full = outcomes(traces, gate("truncate", probed, reserve=0), task)
    same = [
        f.answer is None or (s.answer is not None and task.format.equal(s.answer, f.answer))
        for s, f in zip(stopped, full, strict=True)
    ]
    assert cut.same.tolist() == same
    assert cut.changed.tolist() == [o.finish == "halted" and not kept for o, kept in zip(stopped, same, strict=True)]
    assert cut.lost.any() and cut.changed.any()
    assert not (cut.lost & ~cut.changed).any()
    assert (cut.changed & ~cut.lost).any()  # a wrong answer made another wrong one


def test_a_gate_is_a_gate() -> None:
    assert all(isinstance(build_method(name, bits=4, budget=64), Gate) for name in GATES)


def test_without_gold_any_other_answer_is_a_loss() -> None:
    """By hand: kept, changed from right to wrong, from wrong to right, from wrong to wrong, not halted."""
    from bitcal_tts.traces.cut import Cut

    ints = np.zeros(5, dtype=np.int64)
    cut = Cut(
        tokens=ints, probe_tokens=ints, correct=np.array([True, False, True, False, False]),
        same=np.array([True, False, False, False, False]), halted=np.array([True, True, True, True, False]),
        reasons=np.full(5, ""), full_tokens=ints, full_correct=np.array([True, True, False, False, True]),
    )  # fmt: skip
    assert cut.lost.tolist() == [False, True, False, False, False]
    assert cut.changed.tolist() == [False, True, True, True, False]
