"""The HTTP engine on a real llama.cpp server: the same tokens, signals, stops and landings as in process."""

from __future__ import annotations

import json
import time
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bitcal_tts.cli import main
from bitcal_tts.engines.base import Completion, Decoding, EngineError, Fork, Place, Request
from bitcal_tts.engines.http import HttpEngine
from bitcal_tts.halting.answers import FORMATS
from bitcal_tts.halting.landing import Landing
from bitcal_tts.halting.methods import build_method, to_the_end
from bitcal_tts.halting.profile import ProfileError
from bitcal_tts.tasks import load_task
from bitcal_tts.traces.replay import outcomes
from bitcal_tts.traces.schema import to_trace

N, BUDGET = 20, 320
THINKING: dict[str, Any] = {"opening": "<think>", "close": "</think>"}


def requests(method: Any, n: int = N) -> list[Request]:
    task = load_task()
    items = enumerate(task.items(n, seed=3))
    return [Request(str(i), task.prompt(item), method, seed=i, question=item.question) for i, item in items]


def decoded(engine: Any, method: Any, n: int = N, decoding: Decoding | None = None) -> dict[str, Completion]:
    return {done.id: done for done in engine.decode(requests(method, n), decoding, batch_size=4)}


@pytest.fixture(scope="module")
def by_server(served: Any) -> dict[str, Completion]:
    return decoded(served, to_the_end(BUDGET))


@pytest.fixture(scope="module")
def by_transformers(local: Any) -> dict[str, Completion]:
    return decoded(local, to_the_end(BUDGET))


def same_tokens(*completions: Completion) -> int:
    """How many tokens they have in common from the beginning."""
    columns = list(zip(*(done.token_ids for done in completions), strict=False))
    return next((i for i, tokens in enumerate(columns) if len(set(tokens)) > 1), len(columns))


def slots_in_use(server: str) -> int:
    with urllib.request.urlopen(f"{server}/slots", timeout=5) as answer:
        return sum(bool(slot["is_processing"]) for slot in json.load(answer))


def test_greedy_tokens_are_those_of_transformers(
    by_server: dict[str, Completion], by_transformers: dict[str, Completion]
) -> None:
    """But for a few where two tokens are as likely; up to there they are the same, and so are the entropies."""
    same, gaps = 0, []
    for name, here in by_transformers.items():
        there = by_server[name]
        assert there.prompt_tokens == here.prompt_tokens
        pairs = list(zip(here.token_ids, there.token_ids, strict=False))
        first = next((i for i, (a, b) in enumerate(pairs) if a != b), len(pairs))
        same += here.token_ids == there.token_ids
        gaps += [abs(a - b) for a, b in zip(here.entropies[:first], there.entropies[:first], strict=True)]
        if first < len(pairs):
            assert here.margins[first] < 0.05, "they part where one token was clearly likelier"
        else:
            assert here.text == there.text
            assert here.finish == there.finish
            assert here.answer == there.answer
    assert same >= 0.95 * len(by_transformers)
    assert np.median(gaps) < 1e-3
    assert max(gaps) < 0.03  # the likeliest 20 of 2,048, and half precision
    assert max(gaps) > 1e-6  # so near, and yet another engine: a profile is not carried over


def test_a_whole_vocabulary_gives_the_full_distribution(
    server: str, by_server: dict[str, Completion], by_transformers: dict[str, Completion]
) -> None:
    with HttpEngine(server, template_options={"enable_thinking": True}, top=10**6) as whole:
        assert str(whole.signals(16)) == "full"
        (done,) = whole.decode(requests(to_the_end(40))[:1])
    n = same_tokens(done, by_server["0"], by_transformers["0"])
    assert n >= 20
    exact, truncated = by_transformers["0"].entropies[:n], by_server["0"].entropies[:n]
    assert np.abs(np.array(done.entropies[:n]) - exact).max() < 5e-3
    # What is missing is spread evenly, which is a bound; batches of another size differ in the last digits.
    assert (np.array(truncated) >= np.array(done.entropies[:n]) - 5e-3).all()


def test_sampling_depends_on_the_seed_alone(served: Any) -> None:
    """Up to what batches of another size do to the last digits, which may move a draw now and then."""
    decoding = Decoding(temperature=0.8, seed=1, top_p=0.95)
    one, again = (decoded(served, to_the_end(60), 6, decoding) for _ in range(2))
    other = decoded(served, to_the_end(60), 6, Decoding(temperature=0.8, seed=2, top_p=0.95))
    assert sum(one[k].token_ids == again[k].token_ids for k in one) >= 5
    assert sum(one[k].token_ids == other[k].token_ids for k in one) < 6


def test_a_stop_comes_at_its_token_and_frees_the_slot(
    server: str, served: Any, by_server: dict[str, Completion]
) -> None:
    """Every second request is stopped; the others are as if nothing had happened."""
    stopping = build_method("stated", bits=16, budget=BUDGET, threshold=1.0, every=16, reserve=0, **THINKING)
    mixed = [
        Request(r.id, r.prompt, stopping if int(r.id) % 2 else r.method, seed=r.seed, question=r.question)
        for r in requests(to_the_end(BUDGET))
    ]
    task = load_task()
    items = task.items(N, seed=3)
    stopped = parted = 0
    for done in served.decode(mixed, batch_size=4):
        full = by_server[done.id]
        kept = len(done.token_ids) - done.landing_tokens
        parted += same_tokens(done, full) < kept  # two tokens were as likely, and the batch was another
        if int(done.id) % 2 and done.finish == "halted":
            trace = to_trace(int(done.id), items[int(done.id)], full, served.signals(16))
            stopped += 1
            assert done.decision is not None
            assert done.decision.tokens == kept
            assert done.landing_tokens <= FORMATS["gsm8k"].reserve
            assert "####" in done.text
            assert kept < len(trace)
        elif int(done.id) % 2 == 0:
            assert done.finish == full.finish
    assert parted <= 1
    assert stopped >= 5
    for _ in range(50):
        if slots_in_use(server) == 0:
            break
        time.sleep(0.1)
    assert slots_in_use(server) == 0


def test_landings_and_probes_are_those_of_transformers(
    served: Any, local: Any, by_transformers: dict[str, Completion]
) -> None:
    task, forks = load_task(), []
    items = task.items(6, seed=3)
    for i in range(6):
        landing = Landing("\n</think>\n", "#### ")
        places = [Place(at, landing, task.format, 0.5) for at in (40, 90)]
        forks.append(Fork(task.prompt(items[i]), by_transformers[str(i)].token_ids, places))
    there = [written for many in served.probe(forks) for written in many]
    here = [written for many in local.probe(forks) for written in many]
    agree = [a.ids == b.ids and a.forced == b.forced and a.closed == b.closed for a, b in zip(there, here, strict=True)]
    assert sum(agree) >= 11
    for a, b in zip(there, here, strict=True):
        assert b.entropy - 5e-3 < a.entropy < b.entropy + 0.1  # what 20 tokens leave out is taken as spread evenly
        if a.ids == b.ids:
            assert a.texts == b.texts
            assert a.logprobs == pytest.approx(b.logprobs, abs=0.02)


def test_live_is_what_a_replay_of_the_recording_says(server: str, served: Any, tmp_path: Path) -> None:
    record = ["record", "--url", server, "--style", "thinking", "--n", "8", "--budget", str(BUDGET), "--seed", "3"]
    assert main([*record, "--probes", "--batch", "4", "--out", "t", "--json"]) == 0
    from bitcal_tts.traces.store import TraceStore

    store = TraceStore.open(tmp_path / "t")
    assert store.manifest.signals.k == 20
    traces, task = store.read(), load_task()
    for name, options in (
        ("complete", {}),
        ("stated", {"threshold": 2.0}),
        ("deer", {"threshold": 0.9}),
        ("eat", {"threshold": 0.2}),
    ):
        usual = {} if name == "complete" else {"every": 16}
        method = build_method(name, bits=16, budget=BUDGET, **THINKING, **usual, **options)
        live = {done.id: done for done in served.decode(requests(method, 8), batch_size=4)}
        parted = 0
        for trace, outcome in zip(traces, outcomes(traces, method, task), strict=True):
            done = live[str(trace.index)]
            kept = len(done.token_ids) - done.landing_tokens
            if done.token_ids[:kept] != trace.token_ids[:kept].tolist():
                parted += 1  # two tokens were as likely, and the batch was another
                continue
            assert len(done.token_ids) == outcome.tokens, (name, trace.index)
            assert done.probe_tokens == outcome.probe_tokens, (name, trace.index)
            assert done.answer == outcome.answer
            assert done.finish == (outcome.reason if outcome.reason in ("eos", "budget") else "halted")
        assert parted <= 1


def test_what_is_served_is_reported_read_or_refused(server: str, served: Any, gguf: Path) -> None:
    about = served.describe()
    assert about["bits"] == 16
    assert about["scheme"] == "GGUF F16"
    assert about["engine"].startswith("llama.cpp server")
    assert {"engine", "model", "template_sha256"} <= set(about["reported"])
    assert about["declared"] == []
    assert about["thinking"] == ["<think>", "</think>"]
    with pytest.raises(EngineError, match="the server has '.*tiny-4m-F16.gguf', not 'tiny-15m'"):
        HttpEngine(server, model="tiny-15m")
    with pytest.raises(EngineError, match=r"has 16 bits \(GGUF F16\), not 4"):
        HttpEngine(server, bits=4)
    gguf.rename(gguf.with_suffix(".moved"))
    try:
        with pytest.raises(EngineError, match="say it with --bits"):
            HttpEngine(server)
        with HttpEngine(server, bits=16) as told:
            assert told.describe()["declared"] == ["bits"]
            identity = told.identity(Decoding())
        assert "model_sha256" not in identity.known
        assert "bits" in identity.declared
    finally:
        gguf.with_suffix(".moved").rename(gguf)


def test_a_profile_of_another_engine_is_refused(served: Any, local: Any) -> None:
    from bitcal_tts.halting.identity import Identity
    from bitcal_tts.halting.profile import Profile

    known = {**local.identity(Decoding()).known, "task": "gsm_symbolic", "prompt_sha256": "x", "budget": 320}
    model = {"mean": [0.0], "scale": [1.0], "weights": [1.0], "intercept": 0.0}
    profile = Profile(
        "logistic", ("tokens",), model, {16.0: 0.5}, Identity({**known, "signals": "full"}), {},
        {"16": {"risk": 0.01, "scheme": "bfloat16"}},
    )  # fmt: skip
    method = build_method("settled", bits=16, budget=320, profile=profile)
    with pytest.raises(ProfileError, match="fitted for engine 'transformers', this is 'llama.cpp server"):
        list(served.decode(requests(method, 1)))


def test_bad_arguments_are_told(server: str, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, message in (
        (["--url", "http://127.0.0.1:9"], "no server at http://127.0.0.1:9"),
        (["--url", "ftp://x"], "a server is named by a URL such as http://127.0.0.1:8080, got 'ftp://x'"),
        (["--model", "no.gguf"], "there is no file no.gguf"),
        (["--engine", "http"], "--engine http and --url go together"),
        (["--url", server, "--hidden"], "a server gives no hidden states"),
        (["--url", server, "--device", "cpu"], "--device is the server's to choose"),
        (["--url", server, "--top-logprobs", "1"], "at least the 2 likeliest"),
    ):
        assert main(["record", *arguments, "--n", "1", "--budget", "8", "--out", "t"]) == 2
        assert message in capsys.readouterr().err
