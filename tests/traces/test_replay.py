from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from bitcal_tts import build_method
from bitcal_tts.halting.controller import Decision
from bitcal_tts.halting.methods import to_the_end
from bitcal_tts.halting.session import Session
from bitcal_tts.tasks import Item, load_task
from bitcal_tts.traces.chunks import at_chunk_size, chunked_for
from bitcal_tts.traces.replay import outcomes, replay
from bitcal_tts.traces.trace import Trace, TraceError


def made(texts: list[str], answer: str = "5", finish: str = "eos", entropy: float = 0.1) -> Trace:
    n = len(texts)
    floats = np.full(n, entropy, dtype=np.float32)
    return Trace(
        index=0,
        item=Item("a", "q", answer),
        prompt_tokens=3,
        finish=finish,
        token_ids=np.arange(n, dtype=np.int32),
        token_texts=texts,
        entropies=floats,
        logprobs=-floats,
        margins=floats,
        top_logprobs=floats,
        hidden_similarities=np.zeros(max(n // 16 - 1, 0), dtype=np.float32),
    )


def test_steps_are_full_chunks_after_which_decoding_could_go_on() -> None:
    def decided(trace: Trace, budget: int) -> list[int]:
        told: list[int] = []

        def note(_: Session, decision: Decision) -> None:
            told.append(decision.tokens)

        replay(trace, build_method("bitcal_tts", bits=4, budget=budget), watch=note, heed=False)
        return told

    trace = made([f"t{i} " for i in range(40)])
    assert decided(trace, 512) == [16, 32]
    assert decided(trace, 32) == [16]  # the second chunk exhausts the budget
    assert decided(trace, 33) == [16, 32]
    assert decided(made(["x "] * 32), 512) == [16, 32]  # the model ends only after the boundary


def test_ends() -> None:
    trace = made(["x "] * 40)
    for budget, finish in ((512, "eos"), (41, "eos"), (40, "budget")):
        end = replay(trace, to_the_end(budget)).outcome
        assert (end.tokens, end.finish) == (40, finish)
    with pytest.raises(TraceError, match=r"recorded to 40 tokens only; a budget of 41"):
        replay(made(["x "] * 40, finish="budget"), to_the_end(41))


def test_lost_rescued_and_premature() -> None:
    """The first answer is cut by the chunk boundary; later the text gives another."""
    words = [f"w{i} " for i in range(14)]
    cut = made([*words, "#### ", "2", "7", "6", "\n", *["more "] * 20, "#### ", "276"], answer="276")
    method = build_method("adaptive", bits=4, budget=512, min_tokens=0, stop_confidence=1.0, stop_entropy=0.0)
    (o,) = outcomes([cut], method, load_task())
    assert (o.tokens, o.answer, o.correct, o.full_correct) == (16, "2", False, True)
    assert (o.lost, o.rescued, o.premature, o.reason) == (True, False, True, "tail_satisfied")
    right_then_wrong = made([*words, "#### ", "2", "\n", *["more "] * 20, "#### ", "9"], answer="2")
    (o,) = outcomes([right_then_wrong], method, load_task())
    assert (o.lost, o.rescued, o.premature) == (False, True, False)


def test_another_chunk_size_needs_the_vectors(store: Any) -> None:
    traces = store.read()
    twice = at_chunk_size(traces, 32)
    for trace, other in zip(traces, twice, strict=True):
        rows = trace.hidden[1::2] if trace.hidden is not None else np.zeros((0, 1))
        assert len(other.hidden_similarities) == max(len(rows) - 1, 0)
        for i, value in enumerate(other.hidden_similarities):
            a, b = rows[i], rows[i + 1]
            assert value == pytest.approx(float(a @ b / np.linalg.norm(a) / np.linalg.norm(b)), abs=1e-5)
    without = [dataclasses.replace(t, hidden=None) for t in traces]
    with pytest.raises(TraceError, match="bitcal record --hidden"):
        at_chunk_size(without, 32)
    with pytest.raises(TraceError, match="multiple"):
        at_chunk_size(traces, 24)
    blind = build_method("bitcal_tts", bits=4, budget=192, chunk_size=8, hidden=False)
    assert chunked_for(without, blind) is without  # what is not read need not be there
    assert len(outcomes(without, blind, load_task())) == len(without)


def test_recorded_similarities_are_those_of_the_vectors(store: Any) -> None:
    for trace in store.read():
        if trace.hidden is not None and len(trace.hidden) > 1:
            unit = trace.hidden / np.linalg.norm(trace.hidden, axis=1, keepdims=True)
            assert trace.hidden_similarities == pytest.approx((unit[1:] * unit[:-1]).sum(1), abs=1e-5)


def test_fixed_takes_the_whole_trace(store: Any) -> None:
    for trace in store.read():
        halt = replay(trace, build_method("fixed", bits=4, budget=192)).outcome
        assert halt.decision is None
        assert halt.tokens == min(len(trace), 192)
