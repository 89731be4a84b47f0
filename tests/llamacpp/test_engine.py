"""llama.cpp in process, through llama-cpp-python, and halting inside its own loop."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed here: make test-llamacpp")

from conformance import BUDGET, SEED, THINKING, Conformance, decoded, requests
from short_task import short_task

from bitcal_tts.cli import main
from bitcal_tts.engines.base import Decoding, EngineError, Fork, Place, Request
from bitcal_tts.engines.gguf_engine import LlamaCppEngine
from bitcal_tts.engines.llamacpp import Halting
from bitcal_tts.halting.landing import Landing
from bitcal_tts.halting.methods import build_method, to_the_end
from bitcal_tts.traces.replay import replay
from bitcal_tts.traces.schema import to_trace


@pytest.fixture(scope="module")
def served(gguf: Path) -> Iterator[LlamaCppEngine]:
    engine = LlamaCppEngine(gguf, template_options={"enable_thinking": True})
    yield engine
    engine.close()


class TestLlamaCpp(Conformance):
    """All of it, and closer than over HTTP: the whole distribution is there."""

    entropy_gap = 5e-3
    closing_gap = 0.03  # keys and values are kept in half precision


def test_samples_are_those_of_transformers(served: LlamaCppEngine, local: Any) -> None:
    """The same draws from nearly the same distributions."""
    decoding = Decoding(temperature=0.8, seed=1, top_p=0.95, top_k=40, min_p=0.02)
    here, there = (decoded(engine, to_the_end(60), 8, decoding) for engine in (local, served))
    assert sum(here[name].token_ids == there[name].token_ids for name in here) >= 6


def test_hidden_states_are_those_of_transformers(served: LlamaCppEngine, local: Any) -> None:
    here, there = (
        {done.id: done for done in engine.decode(requests(to_the_end(80), 4), batch_size=4, keep_hidden=True)}
        for engine in (local, served)
    )
    for name, one in here.items():
        other = there[name]
        assert len(one.hidden) == len(other.hidden) == 5
        assert other.hidden_similarities == pytest.approx(one.hidden_similarities, abs=2e-3)
        for a, b in zip(one.hidden, other.hidden, strict=True):
            assert float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b))) > 0.999


def test_a_sequence_that_ends_frees_its_memory(served: LlamaCppEngine) -> None:
    """One lane decodes many requests, each from an empty cache; a stopped one leaves nothing behind."""
    from bitcal_tts.engines.lanes import Lane, Lanes, Steps

    lanes = Lanes(served._model, count=2, room=512, hidden=False)
    held: list[int] = []

    def job(lane: Lane) -> Steps[int]:
        yield list(served.prompt("How many?"))
        yield [5, 6, 7]
        held.append(lanes.held())
        return lane.length

    lengths = list(lanes.run(iter([job] * 5)))
    assert len(set(lengths)) == 1 and lengths[0] > 10
    assert max(held) <= 2 * lengths[0]
    assert lanes.held() == 0
    lanes.close()


def test_a_response_may_have_no_place_to_be_probed_at(served: LlamaCppEngine) -> None:
    nowhere = Fork("How many?", [5, 6, 7], [])
    somewhere = Fork("How many?", [5, 6, 7], [Place(2, Landing("\n</think>\n", "#### "), short_task().format)])
    found = list(served.probe([nowhere, somewhere, nowhere], batch_size=2))
    assert [len(written) for written in found] == [0, 1, 0]


def test_a_request_goes_on_after_a_prefix(served: LlamaCppEngine) -> None:
    task = short_task()
    (item,) = task.items(1, seed=SEED)
    (whole,) = served.decode([Request("0", task.prompt(item), to_the_end(60))])
    for prefix in (whole.token_ids[:20], "".join(whole.token_texts[:20])):
        (rest,) = served.decode([Request("0", task.prompt(item), to_the_end(40), prefix=prefix)])
        assert rest.token_ids == whole.token_ids[20:]


def test_what_it_says_of_itself_and_refuses(gguf: Path, served: LlamaCppEngine, tmp_path: Path) -> None:
    about = served.describe()
    assert (about["bits"], about["scheme"]) == (16, "GGUF F16")
    assert about["engine"].startswith("llama-cpp-python 0.")
    assert about["thinking"] == ["<think>", "</think>"]
    with pytest.raises(EngineError, match=r"has 16 bits \(GGUF F16\), not 4"):
        LlamaCppEngine(gguf, bits=4)
    with pytest.raises(EngineError, match="does not score given texts"):
        next(served.score([]))
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(gguf.read_bytes()[:5000])
    with pytest.raises(EngineError, match="is not a GGUF file"):
        LlamaCppEngine(broken)


def test_record_and_replay_by_the_command(gguf: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    record = ["record", "--engine", "llamacpp", "--model", str(gguf), "--style", "thinking", "--n", "4", "--batch", "4"]
    assert main([*record, "--budget", "200", "--probes", "64", "--out", "t", "--json"]) == 0
    capsys.readouterr()
    assert main(["replay", "t", "--methods", "complete,bitcal_tts,deer", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)
    assert "llama-cpp-python" in (tmp_path / "t" / "manifest.json").read_text()
    assert main(["record", "--engine", "llamacpp", "--model", "tiny-4m", "--out", "u"]) == 2
    assert "bitcal export tiny-4m" in capsys.readouterr().err


@pytest.fixture(scope="module")
def llm(gguf: Path) -> Iterator[Any]:
    import llama_cpp

    one = llama_cpp.Llama(str(gguf), n_ctx=1024, verbose=False)
    yield one
    one.close()


@pytest.mark.parametrize(
    ("name", "options"),
    [("stated", {"threshold": 1.0, "reserve": 0}), ("complete", {}), ("fixed", {}), ("cusum", {})],
)
def test_halting_inside_its_own_loop(llm: Any, served: LlamaCppEngine, name: str, options: dict[str, Any]) -> None:
    """The same text, stop and answer as the engine gives; a stop is where a replay has it."""
    task, halted = short_task(), 0
    thinking = {} if name == "fixed" else THINKING
    method = build_method(name, bits=16, budget=BUDGET, **options, **thinking)
    for i, item in enumerate(task.items(6, seed=SEED)):
        halting = Halting(llm, method, question=item.question)
        prompt = list(served.prompt(task.prompt(item)))
        usual = {"temperature": 0.0, "repeat_penalty": 1.0}
        said = llm.create_completion(prompt, **usual, **halting.kwargs())["choices"][0]["text"]
        (there,) = served.decode([Request(str(i), task.prompt(item), method, question=item.question)])
        outcome = halting.outcome
        assert (outcome.text, outcome.tokens) == (there.text, len(there.token_ids))
        assert (outcome.answer, outcome.reason) == (
            there.answer,
            there.finish if there.decision is None else str(there.decision.reason),
        )
        assert there.text.startswith(said) and len(said) >= len(there.text) - 12
        halted += outcome.finish == "halted"
        (full,) = served.decode([Request(str(i), task.prompt(item), to_the_end(BUDGET), question=item.question)])
        if not outcome.landing_tokens:
            replayed = replay(to_trace(i, item, full, served.signals(16)), method).outcome
            assert (replayed.tokens, replayed.finish) == (outcome.tokens, outcome.finish)
    assert halted >= (3 if name == "stated" else 0)


def test_what_cannot_be_had_there_is_refused(llm: Any) -> None:
    with pytest.raises(EngineError, match="deer needs a probe"):
        Halting(llm, build_method("deer", bits=16, budget=64))
