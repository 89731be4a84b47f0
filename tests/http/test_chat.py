"""Chat completions, which all servers share, on a real llama.cpp server: texts without token ids."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from short_task import short_task

from bitcal_tts.cli import main
from bitcal_tts.engines.base import Completion, Decoding, EngineError, Request
from bitcal_tts.engines.dialects import Chat
from bitcal_tts.engines.http import HttpEngine
from bitcal_tts.engines.thinking import ThinkMarkers
from bitcal_tts.engines.wire import ServerError
from bitcal_tts.halting.methods import build_method, to_the_end

BUDGET = 320
THINKING: dict[str, Any] = {"opening": "<think>", "close": "</think>"}


@pytest.fixture(scope="module")
def chat(server: str) -> Iterator[HttpEngine]:
    markers = ThinkMarkers("<think>", "</think>")
    options = {"enable_thinking": True}
    with HttpEngine(server, api="chat", bits=16, markers=markers, template_options=options) as engine:
        yield engine


def decoded(engine: Any, method: Any, n: int = 8) -> dict[str, Completion]:
    task = short_task()
    items = enumerate(task.items(n, seed=3))
    requests = [Request(str(i), task.prompt(item), method, seed=i, question=item.question) for i, item in items]
    return {done.id: done for done in engine.decode(requests, batch_size=4)}


def test_the_same_texts_and_signals_as_by_the_servers_own_api(chat: HttpEngine, served: Any) -> None:
    here, there = decoded(chat, to_the_end(BUDGET)), decoded(served, to_the_end(BUDGET))
    same = [name for name in here if here[name].text == there[name].text]
    assert len(same) >= 5
    for name in same:
        one, other = here[name], there[name]
        assert (len(one.token_ids), one.finish, one.answer) == (len(other.token_ids), other.finish, other.answer)
        # The vocabulary is not told, so that more of it may be missing.
        assert one.margins == pytest.approx(other.margins, abs=0.05, nan_ok=True)
        gaps = [abs(a - b) for a, b in zip(one.entropies, other.entropies, strict=True)]
        assert max(gaps) < 0.8 and sorted(gaps)[int(0.9 * len(gaps))] < 0.01


def test_a_stop_lands_in_a_partial_message(chat: HttpEngine, served: Any) -> None:
    rule = build_method("stated", bits=16, budget=BUDGET, threshold=1.0, every=16, reserve=0, **THINKING)
    here, there = decoded(chat, rule), decoded(served, rule)
    halted = [name for name, done in here.items() if done.finish == "halted"]
    assert len(halted) >= 3
    agreed = 0
    for name in halted:
        done = here[name]
        kept = done.token_texts[: len(done.token_texts) - done.landing_tokens]
        assert done.decision is not None and done.decision.tokens == len(kept)
        assert "</think>\n\n####" in done.text
        agreed += (done.text, done.answer) == (there[name].text, there[name].answer)
    assert agreed >= len(halted) - 2


def test_it_records_with_probes_and_replays(server: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = [
        "record", "--url", server, "--api", "chat", "--bits", "16", "--style", "thinking", "--n", "3",
        "--think", "<think>,</think>", "--budget", "200", "--probes", "64", "--batch", "3", "--out", "t", "--json",
    ]  # fmt: skip
    assert main(record) == 0
    capsys.readouterr()
    assert main(["replay", "t", "--methods", "complete,deer", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert rows
    manifest = json.loads((tmp_path / "t" / "manifest.json").read_text())
    assert "OpenAI-compatible server llamacpp" in json.dumps(manifest)


def test_what_is_not_known_is_refused(server: str) -> None:
    with pytest.raises(EngineError, match="say it with --bits"):
        HttpEngine(server, api="chat", markers=None)
    with pytest.raises(EngineError, match="does not tell its chat template: .* --think none"):
        HttpEngine(server, api="chat", bits=16)
    with pytest.raises(ServerError, match="there is no API 'soap'; known: llamacpp, vllm, chat"):
        HttpEngine(server, api="soap")
    with HttpEngine(server, api="chat", bits=16, markers=None) as engine:
        known = engine.identity(Decoding()).known
    assert {"model_sha256", "template_sha256", "scheme"}.isdisjoint(known)


def test_a_server_that_begins_anew_is_refused(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one does that closes the partial message and opens another."""
    request = Chat.request

    def anew(self: Chat, standing: Any, *more: Any) -> Any:
        return request(self, standing._replace(text=""), *more)

    monkeypatch.setattr(Chat, "request", anew)
    with pytest.raises(ServerError, match="does not go on with a partial message"):
        HttpEngine(server, api="chat", bits=16, markers=None)
