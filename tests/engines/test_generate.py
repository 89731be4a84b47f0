"""BitCal inside `model.generate` halts the same rows at the same tokens as the engine and the replay."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from bitcal_tts import build_method
from bitcal_tts.engines.generate import BitCal
from bitcal_tts.tasks import load_task
from bitcal_tts.traces.replay import replay


def padded(engine: Any, prompts: list[str]) -> dict[str, torch.Tensor]:
    encoded = [engine.checkpoint.encode(p) for p in prompts]
    width = max(map(len, encoded))
    ids = torch.tensor([[0] * (width - len(e)) + e for e in encoded])
    mask = torch.tensor([[0] * (width - len(e)) + [1] * len(e) for e in encoded])
    return {"input_ids": ids, "attention_mask": mask}


def methods(budget: int) -> list[Any]:
    return [
        build_method("fixed", bits=32, budget=budget),
        build_method("adaptive", bits=32, budget=budget, min_tokens=32),
        build_method("bitcal_tts", bits=4, budget=budget, min_tokens=32),
        build_method("bitcal_tts", bits=4, budget=budget, min_tokens=48, stop_confidence=0.4),
        build_method("complete", bits=4, budget=budget, chunk_size=16),
        build_method("complete", bits=4, budget=budget),
    ]


@pytest.mark.parametrize("which", range(6))
def test_halts_as_replayed(engine: Any, store: Any, which: int) -> None:
    task = load_task()
    traces = store.read()[:6]
    budget = 128
    method = methods(budget)[which]
    bitcal = BitCal(method, engine.checkpoint.tokenizer, model=engine.checkpoint.model)
    inputs = padded(engine, [task.prompt(t.item) for t in traces])
    for _ in range(2):  # the object may be used again
        engine.checkpoint.model.generate(**inputs, max_new_tokens=budget, do_sample=False, **bitcal.kwargs())
        for trace, result in zip(traces, bitcal.results, strict=True):
            halt = replay(trace, method).outcome
            if halt.finish == "halted":
                assert result.decision is not None and halt.decision is not None
                assert (result.tokens, result.decision.reason) == (halt.tokens, halt.decision.reason)
                assert result.text == trace.text_at(halt.tokens)
            else:
                assert result.decision is None


def test_rows_halt_by_themselves(engine: Any, store: Any) -> None:
    """A row that is halted is padded while the others go on."""
    task = load_task()
    traces = store.read()[:6]
    method = build_method("adaptive", bits=32, budget=128, min_tokens=48)
    bitcal = BitCal(method, engine.checkpoint.tokenizer, model=engine.checkpoint.model)
    inputs = padded(engine, [task.prompt(t.item) for t in traces])
    out = engine.checkpoint.model.generate(**inputs, max_new_tokens=128, do_sample=False, **bitcal.kwargs())
    new = out[:, inputs["input_ids"].shape[1] :]
    pad = engine.checkpoint.tokenizer.pad_token_id
    stops = {result.tokens for result in bitcal.results if result.decision}
    assert len(stops) > 1
    for row, result in zip(new, bitcal.results, strict=True):
        if result.decision:
            assert (row[result.tokens :] == pad).all()


def test_the_controllers_budget_is_enforced(engine: Any, store: Any) -> None:
    """Whatever `max_new_tokens` says, and between chunk boundaries too."""
    task = load_task()
    traces = [t for t in store.read() if len(t) > 60][:3]
    bitcal = BitCal(build_method("fixed", bits=32, budget=41), engine.checkpoint.tokenizer)
    inputs = padded(engine, [task.prompt(t.item) for t in traces])
    out = engine.checkpoint.model.generate(**inputs, max_new_tokens=128, do_sample=False, **bitcal.kwargs())
    assert out.shape[1] - inputs["input_ids"].shape[1] == 41
    for trace, result in zip(traces, bitcal.results, strict=True):
        assert (result.tokens, result.ended, result.decision) == (41, True, None)
        assert result.text == trace.text_at(41)


def test_results_hold_the_tokens_after_the_last_boundary(engine: Any, store: Any) -> None:
    task = load_task()
    traces = [t for t in store.read() if t.finish == "eos"][:4]
    bitcal = BitCal(build_method("fixed", bits=32, budget=192), engine.checkpoint.tokenizer)
    inputs = padded(engine, [task.prompt(t.item) for t in traces])
    engine.checkpoint.model.generate(**inputs, max_new_tokens=192, do_sample=False, **bitcal.kwargs())
    for trace, result in zip(traces, bitcal.results, strict=True):
        assert (result.tokens, result.text, result.ended) == (len(trace), trace.text, True)


def test_a_prompt_as_long_as_the_last_output_is_a_new_call(engine: Any, store: Any) -> None:
    task = load_task()
    bitcal = BitCal(build_method("fixed", bits=32, budget=20), engine.checkpoint.tokenizer)
    inputs = padded(engine, [task.prompt(store.read()[0].item)])
    out = engine.checkpoint.model.generate(**inputs, max_new_tokens=20, do_sample=False, **bitcal.kwargs())
    again = {"input_ids": out, "attention_mask": torch.ones_like(out)}
    longer = engine.checkpoint.model.generate(**again, max_new_tokens=20, do_sample=False, **bitcal.kwargs())
    assert longer.shape[1] == out.shape[1] + 20


@pytest.mark.parametrize("chunk", [1, 16])
def test_a_row_halted_inside_its_thinking_lands(thinking_engine: Any, chunk: int) -> None:
    """As the engine lands: the same answers, the same tokens."""
    from bitcal_tts.engines.base import Request

    task = load_task()
    items = task.items(5, 3)
    opening, close = thinking_engine.thinking
    method = build_method(
        "truncate", bits=32, budget=160, chunk_size=chunk, opening=opening, close=close, threshold=64.0
    )
    requests = [Request(str(i), task.prompt(item), method) for i, item in enumerate(items)]
    expected = {c.id: c for c in thinking_engine.decode(requests, batch_size=5)}
    bitcal = BitCal(method, thinking_engine.tokenizer, model=thinking_engine.checkpoint.model)
    inputs = padded(thinking_engine, [task.prompt(item) for item in items])
    # Sampling does not touch a landing: before it, this temperature is as good as greedy.
    thinking_engine.checkpoint.model.generate(
        **inputs, max_new_tokens=160, do_sample=True, temperature=1e-4, **bitcal.kwargs()
    )
    for i, result in enumerate(bitcal.results):
        done = expected[str(i)]
        assert result.landing_tokens == done.landing_tokens > 0
        assert (result.text, result.tokens) == (done.text, len(done.token_ids))


@pytest.mark.parametrize("chunk", [1, 16])
def test_a_shorter_max_new_tokens_ends_the_rows_too(engine: Any, store: Any, chunk: int) -> None:
    task, traces = load_task(), [t for t in store.read() if len(t) > 60][:3]
    method = build_method("complete", bits=32, budget=192, chunk_size=chunk)
    bitcal = BitCal(method, engine.checkpoint.tokenizer)
    inputs = padded(engine, [task.prompt(t.item) for t in traces])
    engine.checkpoint.model.generate(**inputs, max_new_tokens=40, do_sample=False, **bitcal.kwargs())
    for trace, result in zip(traces, bitcal.results, strict=True):
        assert (result.tokens, result.ended, result.text) == (40, True, trace.text_at(40))
