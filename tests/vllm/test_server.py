"""The HTTP engine and the processor's settings against a real vLLM server on a CPU."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("vllm", reason="vLLM is not installed here: make test-vllm")

from bitcal_tts.engines.base import Decoding, Request
from bitcal_tts.engines.http import HttpEngine
from bitcal_tts.halting.methods import build_method, to_the_end
from bitcal_tts.tasks import load_task
from bitcal_tts.tiny import models

pytestmark = pytest.mark.filterwarnings("ignore")  # vLLM's own are not ours to mend
BUDGET, STOP = 300, 3
THINKING: dict[str, Any] = {"opening": "<think>", "close": "</think>"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    command = [
        sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", models.resolve("tiny-4m"),
        "--served-model-name", "tiny-4m", "--dtype", "float32", "--enforce-eager", "--max-model-len", "1024",
        "--kv-cache-memory-bytes", str(1 << 28), "--host", "127.0.0.1", "--port", str(port),
        "--logits-processors", "bitcal_tts.engines.vllm:Halting",
    ]  # fmt: skip
    log = (tmp_path_factory.mktemp("vllm") / "server.log").open("wb")
    process = subprocess.Popen(
        command, stdout=log, stderr=log, env={**os.environ, "VLLM_ENABLE_V1_MULTIPROCESSING": "0"}
    )
    url = f"http://127.0.0.1:{port}"
    try:
        for _ in range(1200):
            if process.poll() is not None:
                pytest.fail(Path(log.name).read_text()[-2000:])
            try:
                urllib.request.urlopen(f"{url}/health", timeout=1).close()
                break
            except (urllib.error.URLError, OSError):
                time.sleep(0.1)
        yield url
    finally:
        process.terminate()
        process.wait(30)
        log.close()


@pytest.fixture(scope="module")
def served(server: str) -> Iterator[HttpEngine]:
    with HttpEngine(server, bits=32, template_options={"enable_thinking": True}) as engine:
        yield engine


@pytest.fixture(scope="module")
def local() -> Any:
    from bitcal_tts.engines.checkpoint import load_checkpoint
    from bitcal_tts.engines.transformers import TransformersEngine

    options = {"enable_thinking": True}
    source = models.resolve("tiny-4m")
    return TransformersEngine(
        load_checkpoint(source, bits=16, compute_dtype="float32", name="tiny-4m", template_options=options)
    )


def requests(method: Any, n: int = 12) -> list[Request]:
    task = load_task()
    items = enumerate(task.items(n, seed=3))
    return [Request(str(i), task.prompt(item), method, seed=i, question=item.question) for i, item in items]


def test_greedy_tokens_are_those_of_transformers(served: HttpEngine, local: Any) -> None:
    here = {done.id: done for done in local.decode(requests(to_the_end(BUDGET)))}
    there = {done.id: done for done in served.decode(requests(to_the_end(BUDGET)), batch_size=4)}
    same, gaps = 0, []
    for name, done in here.items():
        other = there[name]
        assert done.prompt_tokens == other.prompt_tokens
        pairs = list(zip(done.token_ids, other.token_ids, strict=False))
        first = next((i for i, (a, b) in enumerate(pairs) if a != b), len(pairs))
        same += done.token_ids == other.token_ids
        gaps += [abs(a - b) for a, b in zip(done.entropies[:first], other.entropies[:first], strict=True)]
        if first == len(pairs):
            assert (done.text, done.finish, done.answer) == (other.text, other.finish, other.answer)
    assert same >= 11
    assert max(gaps) < 0.03


def test_a_stop_lands_over_http(served: HttpEngine) -> None:
    full = {done.id: done for done in served.decode(requests(to_the_end(BUDGET)), batch_size=4)}
    rule = build_method("stated", bits=32, budget=BUDGET, threshold=1.0, reserve=0, **THINKING)
    halted = 0
    for done in served.decode(requests(rule), batch_size=4):
        kept = len(done.token_ids) - done.landing_tokens
        assert done.token_ids[:kept] == full[done.id].token_ids[:kept]
        if done.finish == "halted":
            halted += 1
            assert done.decision is not None and done.decision.tokens == kept
            assert "####" in done.text
    assert halted >= 4


def test_what_the_server_reports(served: HttpEngine) -> None:
    about = served.describe()
    assert about["engine"].startswith("vLLM server 0.")
    assert (about["model"], about["bits"], about["declared"]) == ("tiny-4m", 32, ["bits"])
    assert "model_sha256" not in served.identity(Decoding()).known


def post(url: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    request = urllib.request.Request(
        f"{url}/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_settings_come_over_http_and_bad_ones_are_a_400(server: str) -> None:
    task = load_task()
    (item,) = task.items(1, seed=3)
    rule = {"method": "stated", "bits": 32, "budget": BUDGET, "stop_token": STOP}
    rule["options"] = {"threshold": 1.0, "reserve": 0, **THINKING}
    body = {
        "model": "tiny-4m", "messages": [{"role": "user", "content": task.prompt(item)}], "max_tokens": BUDGET,
        "temperature": 0, "stop_token_ids": [STOP], "chat_template_kwargs": {"enable_thinking": True},
        "vllm_xargs": {"bitcal": json.dumps(rule)},
    }  # fmt: skip
    status, told = post(server, body)
    assert status == 200
    assert told["choices"][0]["stop_reason"] == STOP
    status, told = post(server, {**body, "vllm_xargs": {"bitcal": '{"method": "complete"}'}})
    assert status == 400
    assert "bitcal lacks bits, budget" in json.dumps(told)
