from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bitcal_tts import build_method
from bitcal_tts.tasks import load_task
from bitcal_tts.traces.replay import outcomes
from bitcal_tts.traces.sweep import Sweep
from bitcal_tts.traces.trace import TraceError

FIXED_BUDGETS = (64, 100, 192)


@pytest.fixture(scope="module")
def sweeps(store: Any) -> dict[int, Sweep]:
    task = load_task()
    return {b: Sweep(store.read(), build_method("fixed", bits=4, budget=b), task) for b in FIXED_BUDGETS}


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    name=st.sampled_from(["fixed", "adaptive", "bitcal_tts"]),
    budget=st.sampled_from(FIXED_BUDGETS),
    bits=st.sampled_from([2, 4, 8, 16]),
    options=st.fixed_dictionaries(
        {
            "min_tokens": st.integers(0, 200),
            "min_remaining": st.integers(0, 64),
            "stop_entropy": st.floats(0, 3),
            "stop_confidence": st.floats(0, 1),
            "escalate_entropy": st.floats(0.05, 5),
            "gamma": st.sampled_from([1.0, 0.5, 2.0, 3.7]),
            "weights": st.sampled_from([(0.4, 0.35, 0.25), (1.0, 0.0, 0.0), (0.2, 0.2, 0.9)]),
            "scale": st.booleans(),
            "tail": st.booleans(),
            "hidden": st.booleans(),
        }
    ),
)
def test_the_vectorised_sweep_is_exactly_the_replay(
    store: Any, sweeps: dict[int, Sweep], name: str, budget: int, bits: int, options: dict[str, Any]
) -> None:
    method = build_method(name, bits=bits, budget=budget, **options)
    (result,) = sweeps[budget].run([method.parameters])
    expected = outcomes(store.read(), method, load_task())
    assert result.tokens.tolist() == [o.tokens for o in expected]
    assert result.correct.tolist() == [o.correct for o in expected]
    assert result.halted.tolist() == [o.finish == "halted" for o in expected]
    reasons = [str(reason) or None for reason in result.reasons]
    assert reasons == [o.reason if o.finish == "halted" else None for o in expected]


def test_another_chunk_size_reads_the_vectors(store: Any) -> None:
    task = load_task()
    method = build_method("bitcal_tts", bits=4, budget=192, chunk_size=32, min_tokens=64, stop_confidence=0.4)
    (result,) = Sweep(store.read(), method, task).run([method.parameters])
    assert result.tokens.tolist() == [o.tokens for o in outcomes(store.read(), method, task)]


def test_another_chunk_size_without_hidden_states_needs_no_vectors(store: Any) -> None:
    task = load_task()
    traces = [dataclasses.replace(trace, hidden=None) for trace in store.read()]
    options: dict[str, Any] = {"budget": 192, "chunk_size": 32, "min_tokens": 64, "stop_confidence": 0.4}
    method = build_method("bitcal_tts", bits=4, hidden=False, **options)
    sweep = Sweep(traces, method, task)
    (result,) = sweep.run([method.parameters])
    assert result.tokens.tolist() == [o.tokens for o in outcomes(traces, method, task)]
    reading = build_method("bitcal_tts", bits=4, **options)
    with pytest.raises(ValueError, match="no hidden states"):
        sweep.run([reading.parameters])
    with pytest.raises(TraceError, match=r"hidden=false"):
        Sweep(traces, reading, task)


def test_a_sweep_refuses_another_budget(sweeps: dict[int, Sweep]) -> None:
    with pytest.raises(ValueError, match="make another Sweep"):
        sweeps[64].run([build_method("adaptive", bits=4, budget=65).parameters])


def test_no_traces_no_results() -> None:
    (result,) = Sweep([], build_method("fixed", bits=4, budget=64), load_task()).run(
        [build_method("adaptive", bits=4, budget=64).parameters]
    )
    assert result.tokens.shape == (0,)
    assert result.correct.dtype == np.bool_
