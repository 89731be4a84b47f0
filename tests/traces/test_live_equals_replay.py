"""One recorded trace answers for every method, budget and batch: the live engine does what replay says.

In float32, where the composition of a batch does not change the tokens of this model.
"""

from __future__ import annotations

from typing import Any

import pytest

from bitcal_tts import build_method
from bitcal_tts.engines.base import Request
from bitcal_tts.tasks import load_task
from bitcal_tts.traces.replay import replay

BUDGETS = (64, 100, 192)


def method(name: str, budget: int) -> Any:
    if name == "reachable":  # the confidence stop fires here, so the hidden-state signal matters
        return build_method("bitcal_tts", bits=4, budget=budget, min_tokens=32, stop_confidence=0.45, stop_entropy=0.5)
    if name == "escalating":
        return build_method(
            "bitcal_tts", bits=4, budget=budget, min_tokens=16, escalate_entropy=0.3, stop_confidence=1.0
        )
    return build_method(name, bits=4, budget=budget, min_tokens=48)


@pytest.mark.parametrize("name", ["fixed", "adaptive", "bitcal_tts", "reachable", "escalating"])
@pytest.mark.parametrize(("batch_size", "items"), [(1, 5), (7, 21), (32, 40)])
def test_live_equals_replay(engine: Any, store: Any, name: str, batch_size: int, items: int) -> None:
    task = load_task()
    traces = store.read()[:items]
    reasons = set()
    for budget in BUDGETS:
        controller = method(name, budget)
        requests = [Request(str(t.index), task.prompt(t.item), controller, question=t.item.question) for t in traces]
        live = {c.id: c for c in engine.decode(requests, batch_size=batch_size)}
        for trace in traces:
            done, halt = live[str(trace.index)], replay(trace, controller).outcome
            assert done.token_ids == trace.token_ids[: halt.tokens].tolist()
            assert done.finish == halt.finish
            assert (done.decision and done.decision.reason) == (halt.decision and halt.decision.reason)
            reasons.add(str(halt.decision.reason) if halt.decision else halt.finish)
    if items == 40:
        expected = {
            "fixed": {"eos", "budget"},
            "adaptive": {"tail_satisfied", "buffer"},
            "bitcal_tts": {"tail_satisfied", "buffer"},
            "reachable": {"confident"},
            "escalating": {"high_entropy"},
        }[name]
        assert expected <= reasons
