"""The sidecar before a real vLLM server, driven by the official client."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("vllm", reason="vLLM is not installed here: make test-vllm")
pytest.importorskip("starlette")

from short_task import short_task
from sidecar import Running

pytestmark = pytest.mark.filterwarnings("ignore")  # vLLM's own are not ours to mend
BUDGET = 300


@pytest.fixture(scope="module")
def running(server: str) -> Iterator[Running]:
    one = Running(server, "--method", "stated", "--budget", str(BUDGET), "--bits", "32")
    yield one
    one.close()


def asked(i: int, **more: Any) -> dict[str, Any]:
    task = short_task()
    messages = [{"role": "user", "content": task.prompt(task.items(i + 1, seed=3)[i])}]
    return {"model": "tiny-4m", "messages": messages, "temperature": 0, **more}


def working(server: str) -> float:
    """Requests that vLLM says are running."""
    with urllib.request.urlopen(f"{server}/metrics", timeout=5) as answer:
        lines = answer.read().decode().splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith("vllm:num_requests_running"))


def test_answers_usage_and_caps(running: Running, server: str) -> None:
    import openai

    with openai.OpenAI(base_url=f"{running.url}/v1", api_key="none", max_retries=0) as client:
        whole = [
            client.chat.completions.create(**asked(i), extra_body={"bitcal": {"method": "fixed"}}) for i in range(4)
        ]
        ours = [client.chat.completions.create(**asked(i)) for i in range(4)]
        streamed = list(client.chat.completions.create(**asked(0), stream=True, stream_options={"include_usage": True}))
    halted = [one for one in ours if one.bitcal["reason"] == "exit"]
    assert halted
    same = 0
    for full, one in zip(whole, ours, strict=True):
        assert one.bitcal["honoured"] and one.usage.completion_tokens == one.bitcal["used"] <= BUDGET
        if one.bitcal["reason"] == "exit":
            assert one.usage.completion_tokens < full.usage.completion_tokens
            thought = one.choices[0].message.reasoning_content
            same += full.choices[0].message.reasoning_content.startswith(thought.rstrip("\n"))
            assert "####" in one.choices[0].message.content
    assert same >= len(halted) - 1  # vLLM's sums depend on what it has cached: a near tie may go the other way
    (account,) = [event.bitcal for event in streamed if event.choices and event.choices[0].finish_reason]
    assert streamed[-1].usage.completion_tokens == account["used"] <= BUDGET and account["honoured"]
    assert "####" in "".join(event.choices[0].delta.content or "" for event in streamed if event.choices)


def test_a_client_that_hangs_up_ends_it_upstream(running: Running, server: str) -> None:
    body = json.dumps(asked(1, stream=True, bitcal={"method": "fixed"})).encode()
    request = urllib.request.Request(
        f"{running.url}/v1/chat/completions", data=body, headers={"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        answer.readline()
    for _ in range(100):
        if working(server) == 0:
            return
        time.sleep(0.1)
    pytest.fail("vLLM still decodes for a client that has gone")


def test_what_is_not_controlled_is_passed_on(running: Running) -> None:
    import openai

    with openai.OpenAI(base_url=f"{running.url}/v1", api_key="none", max_retries=0) as client:
        raw = client.chat.completions.with_raw_response.create(**asked(0, max_tokens=8, n=2, temperature=0.7))
        assert raw.headers["x-bitcal"].startswith("passed on: it has n=2")
        assert len(raw.parse().choices) == 2
        assert [model.id for model in client.models.list()] == ["tiny-4m"]
