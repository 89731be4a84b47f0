"""The HTTP engine and the processor's settings against a real vLLM server on a CPU."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("vllm", reason="vLLM is not installed here: make test-vllm")

from conformance import Conformance
from short_task import short_task

from bitcal_tts.engines.base import Decoding
from bitcal_tts.engines.http import HttpEngine
from bitcal_tts.engines.wire import ServerError

pytestmark = pytest.mark.filterwarnings("ignore")  # vLLM's own are not ours to mend
BUDGET, STOP = 300, 3
THINKING: dict[str, Any] = {"opening": "<think>", "close": "</think>"}


@pytest.fixture(scope="module")
def served(server: str) -> Iterator[HttpEngine]:
    with HttpEngine(server, bits=32, template_options={"enable_thinking": True}) as engine:
        yield engine


class TestVllmServer(Conformance):
    """All of it; the vocabulary is not told, so that what the likeliest 20 leave out counts for more."""

    entropy_gap, widest_gap, usual_gap = 0.1, 1.5, 0.01
    closing_gap = 2.5


def test_what_the_server_reports(served: HttpEngine) -> None:
    about = served.describe()
    assert about["engine"].startswith("vLLM server 0.")
    assert (about["model"], about["bits"], about["declared"]) == ("tiny-4m", 32, ["bits"])
    assert "model_sha256" not in served.identity(Decoding()).known
    assert not served.has_other("by-another-name")


def test_it_goes_by_any_of_its_names(server: str) -> None:
    with HttpEngine(server, model="by-another-name", bits=32) as one:
        assert one.served_as == "by-another-name"
    with pytest.raises(ServerError, match="has no model 'another', only tiny-4m, by-another-name"):
        HttpEngine(server, model="another", bits=32)


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
    task = short_task()
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
