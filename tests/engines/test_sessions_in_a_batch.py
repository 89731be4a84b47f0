"""Requests that differ in everything share a batch: formats, budgets, methods, prefixes."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from short_task import short_task

from bitcal_tts import build_method
from bitcal_tts.calibration.fit import fit
from bitcal_tts.commands.recordings import open_recording
from bitcal_tts.engines.base import Decoding, Request
from bitcal_tts.engines.sampling import choose
from bitcal_tts.halting.drift import DriftMonitor, DriftWarning
from bitcal_tts.halting.methods import to_the_end


def prompts(n: int, seed: int = 11) -> list[str]:
    task = short_task()
    return [task.prompt(item) for item in task.items(n, seed)]


@pytest.mark.parametrize("batch_size", [1, 6])
def test_mixed_answer_formats_land_each_in_its_own(thinking_engine: Any, batch_size: int) -> None:
    opening, close = thinking_engine.thinking
    cues = {"gsm8k": "####", "boxed": "\\boxed{", "code": "```\n"}
    shared = {"bits": 32, "threshold": 32.0, "opening": opening, "close": close}
    requests = [
        Request(f"{i}-{name}", prompt, build_method("truncate", budget=120 + 8 * i, answers=name, **shared))
        for i, (prompt, name) in enumerate(zip(prompts(6), [*cues, *cues], strict=True))
    ]
    done = {c.id: c for c in thinking_engine.decode(requests, batch_size=batch_size)}
    for request in requests:
        name = request.id.partition("-")[2]
        text = done[request.id].text
        assert f"</think>\n\n{cues[name]}" in text, name
        assert not any(f"</think>\n\n{cue}" in text for other, cue in cues.items() if other != name)
        assert len(done[request.id].token_ids) <= request.budget


def test_the_method_owns_the_budget(engine: Any) -> None:
    (prompt,) = prompts(1)
    budgets = {c.id: len(c.token_ids) for c in engine.decode([
        Request("a", prompt, to_the_end(32)),
        Request("b", prompt, build_method("complete", bits=32, budget=12)),
    ])}  # fmt: skip
    assert budgets == {"a": 32, "b": 12}
    assert Request("a", prompt, to_the_end(32)).budget == 32


def test_a_prefix_may_be_text_or_ids(thinking_engine: Any) -> None:
    (prompt,) = prompts(1)
    (whole,) = thinking_engine.decode([Request("w", prompt, to_the_end(60))])
    ids = whole.token_ids[:24]
    text = thinking_engine.tokenizer.decode(ids)
    assert thinking_engine.tokenizer(text, add_special_tokens=False)["input_ids"] == ids
    for prefix in (ids, text):
        (rest,) = thinking_engine.decode([Request("r", prompt, to_the_end(36), prefix=prefix)])
        assert rest.token_ids == whole.token_ids[24:]
    # The think block was opened in the prefix: a stop after it must close it.
    opening, close = thinking_engine.thinking
    method = build_method("truncate", bits=32, budget=100, threshold=16.0, opening=opening, close=close)
    for prefix in (ids, text):
        (landed,) = thinking_engine.decode([Request("r", prompt, method, prefix=prefix)])
        assert landed.landing_tokens > 0 and landed.token_ids[:16] == whole.token_ids[24:40]
        assert "</think>" in landed.text


@pytest.mark.parametrize("ahead", [1, 5, 16, 64])
def test_where_a_request_ends_does_not_depend_on_how_far_the_engine_works_ahead(engine: Any, ahead: int) -> None:
    method = build_method("complete", bits=32, budget=192)
    requests = [Request(str(i), prompt, method) for i, prompt in enumerate(prompts(6))]
    reference = {c.id: c.token_ids for c in engine.decode(requests, batch_size=3, chunk_size=1)}
    done = {c.id: c for c in engine.decode(requests, batch_size=3, chunk_size=ahead)}
    assert {name: c.token_ids for name, c in done.items()} == reference
    assert all(len(c.token_ids) == len(c.entropies) <= c.decoded for c in done.values())
    if ahead == 64:
        assert any(c.decoded > len(c.token_ids) for c in done.values())


def test_a_method_that_reads_hidden_states_needs_the_engines_chunk(engine: Any) -> None:
    method = build_method("adaptive", bits=32, budget=64)
    with pytest.raises(ValueError, match="compares hidden states every 16 tokens, here they are compared every 8"):
        list(engine.decode([Request("a", prompts(1)[0], method)], chunk_size=8))


@pytest.mark.parametrize(
    "decoding",
    [
        Decoding(0.6, top_p=0.95, top_k=20), Decoding(1.0, top_p=0.5), Decoding(0.7, top_k=3), Decoding(1.3, min_p=0.2),
        Decoding(0.9, top_p=0.8, top_k=50, min_p=0.05),
    ],
)  # fmt: skip
def test_sampling_keeps_what_transformers_keeps(decoding: Decoding) -> None:
    """The tokens that can be drawn, and how likely each is, are those of its own warpers."""
    from transformers import MinPLogitsWarper, TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

    logits = 3 * torch.randn(4, 300, generator=torch.Generator().manual_seed(1))
    warped = TemperatureLogitsWarper(decoding.temperature)(None, logits.double())
    if decoding.top_k:
        warped = TopKLogitsWarper(decoding.top_k)(None, warped)
    if decoding.top_p < 1:
        warped = TopPLogitsWarper(decoding.top_p)(None, warped)
    if decoding.min_p:
        warped = MinPLogitsWarper(decoding.min_p)(None, warped)
    n = 20_000
    uniform = (torch.arange(n, dtype=torch.float64) + 0.5) / n
    for row in range(4):
        drawn = choose(logits[row].expand(n, 300), decoding, uniform)
        share = torch.bincount(drawn, minlength=300).double() / n
        assert share == pytest.approx(torch.softmax(warped[row], -1), abs=2e-4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"top_p": 0.0}, "top_p must be above 0"), ({"top_p": 1.5}, "top_p"), ({"top_k": -1}, "top_k must be a whole"),
        ({"top_k": 1.5}, "top_k"), ({"min_p": 1.0}, "min_p must be"), ({"temperature": -1.0}, "temperature must be"),
    ],
)  # fmt: skip
def test_bad_decoding_is_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Decoding(**{"temperature": 1.0, **options})


def test_greedy_decoding_knows_no_other_setting() -> None:
    assert Decoding(0.0, top_p=0.9, top_k=5).describe() == Decoding().describe()
    assert Decoding(0.6, top_p=0.9).describe()["top_p"] == 0.9


class Spy(DriftMonitor):
    """Notes who reports when."""

    def __init__(self) -> None:
        super().__init__([0.5] * 20)
        self.arrived: list[tuple[int, float | None]] = []

    def _report(self, number: int, score: float | None) -> None:
        self.arrived.append((number, score))


@pytest.fixture(scope="module")
def settled(probed: Any) -> Any:
    recording = open_recording(probed.folder).recording
    profile = fit([recording], risk=0.3, confidence=0.8)
    task = {"task": recording.description["task"]}
    return build_method("settled", bits=32, budget=320, profile=profile, declare=task)


@pytest.fixture(scope="module")
def reports(settled: Any, thinking_engine: Any) -> list[tuple[int, float]]:
    """A stream through the engine, its prompts sorted by length by whoever asks: turns and scores as they arrive."""
    settled.monitor = spy = Spy()
    asked = sorted(prompts(240, seed=21), key=len)
    requests = [Request(str(i), prompt, settled, seed=i, question=prompt) for i, prompt in enumerate(asked)]
    list(thinking_engine.decode(requests, Decoding(0.6), batch_size=80))
    settled.monitor = None
    assert all(score is not None for _, score in spy.arrived)
    return [(number, float(score or 0.0)) for number, score in spy.arrived]


def test_every_request_is_watched_once_and_in_no_order_of_the_engines(reports: list[tuple[int, float]]) -> None:
    numbers = [number for number, _ in reports]
    assert sorted(numbers) == list(range(240))
    assert numbers != sorted(numbers)
    # Neither the caller's order nor the engine's: turns and arrivals are unrelated.
    assert abs(np.corrcoef(numbers, range(240))[0, 1]) < 0.25


def test_no_false_alarms_through_the_engine(reports: list[tuple[int, float]]) -> None:
    """Half of the requests stand in for calibration: what is left was drawn alike, and an alarm is false."""
    rng = np.random.default_rng(5)
    in_turn = [score for _, score in sorted(reports)]
    alarms = {"in turn": 0, "sorted": 0}
    for _ in range(200):
        chosen = set(rng.permutation(240)[:120].tolist())
        reference = [in_turn[i] for i in chosen]
        stream = [in_turn[i] for i in range(240) if i not in chosen]
        for name, scores in (("in turn", stream), ("sorted", sorted(stream))):
            monitor = DriftMonitor(reference)
            for score in scores:
                monitor.update(score)
            alarms[name] += monitor.drifted
    assert alarms["in turn"] <= 6  # 2 are to be expected at a level of 1 %
    assert alarms["sorted"] > 100  # what ranking them as they come sorted would have done


def test_drift_is_told_through_the_engine(probed: Any, thinking_engine: Any) -> None:
    from dataclasses import replace

    recording = open_recording(probed.folder).recording
    profile = fit([recording], risk=0.3, confidence=0.8)
    elsewhere = replace(profile, reference={32.0: tuple(np.linspace(0.0, 0.001, 60).tolist())})
    task = {"task": recording.description["task"]}
    method = build_method("settled", bits=32, budget=320, profile=elsewhere, declare=task)
    requests = [Request(str(i), prompt, method, seed=i, question=prompt) for i, prompt in enumerate(prompts(40))]
    with pytest.warns(DriftWarning, match="scores have drifted from those the profile was fitted on"):
        list(thinking_engine.decode(requests, Decoding(0.6), batch_size=40))
    assert method.monitor.drifted and method.monitor.requests == 40


def test_a_request_without_a_single_look_is_watched(settled: Any, thinking_engine: Any) -> None:
    from bitcal_tts.halting.drift import NO_LOOK

    settled.monitor = spy = Spy()
    from bitcal_tts import Session, Tokens

    session = Session(settled, identity=thinking_engine.identity(Decoding(0.6)), question="How many?")
    session.feed(Tokens(["Hello", " there"], [0.1, 0.1], [-0.1, -0.1], [2.0, 2.0], [-9.0, -9.0]))
    session.end()
    assert spy.arrived == [(0, NO_LOOK)]
    abandoned = Session(settled, identity=thinking_engine.identity(Decoding(0.6)), question="How many?")
    del abandoned  # a client that went away must not hold the others up
    assert spy.arrived[-1] == (1, None)
    settled.monitor = None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Session(settled, identity=thinking_engine.identity(Decoding(0.6)), question="How many?")
