"""Before a server that has several models one of them is halted; who asks for another gets that one, untouched."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from several import Several
from short_task import short_task
from sidecar import Running

from bitcal_tts.cli import main
from bitcal_tts.engines.gguf import export_gguf
from bitcal_tts.engines.llama_server import OwnServer
from bitcal_tts.tiny import models

OURS, OTHER = "tiny-4m", "tiny-1m"


@pytest.fixture(scope="module")
def several(upstream_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Several]:
    file = tmp_path_factory.mktemp("other") / f"{OTHER}-F16.gguf"
    export_gguf(models.resolve(OTHER), "F16", file)
    other = OwnServer(file, parallel=1, context=1024, threads=1)
    one = Several({OTHER: other.url, OURS: upstream_url}, own_api=True)
    yield one
    one.close()
    other.close()


def asked(model: str) -> dict[str, Any]:
    task = short_task()
    content = task.prompt(task.items(1, seed=3)[0])
    return {"model": model, "messages": [{"role": "user", "content": content}], "temperature": 0, "max_tokens": 64}


def answered(url: str, body: dict[str, Any]) -> Any:
    return httpx2.post(f"{url}/v1/chat/completions", json=body, timeout=60, trust_env=False)


def test_another_model_is_answered_by_itself(several: Several) -> None:
    one = Running(several.url, "--model", OURS, "--method", "stated", "--budget", "320")
    try:
        controlled = answered(one.url, asked(OURS))
        assert controlled.json()["model"] == OURS and controlled.headers["x-bitcal"] == "controlled: stated"
        for body in (asked(OTHER), {**asked(OTHER), "stop": ["?"]}):
            through, alone = answered(one.url, body), answered(several.url, body)
            assert through.headers["x-bitcal"].startswith("passed on: it ")
            assert through.json()["choices"] == alone.json()["choices"]
        assert (
            answered(one.url, asked(OTHER))
            .headers["x-bitcal"]
            .endswith(f"it asks for {OTHER}, and {OURS} is what is halted here")
        )
        assert answered(one.url, asked("none")).status_code == 404
    finally:
        one.close()


def test_escalated_to_another_model_of_the_same_server(several: Several) -> None:
    escalate = ("--escalate-to", several.url, "--escalate-model", OTHER, "--escalate-after", "24")
    one = Running(several.url, "--model", OURS, "--method", "complete", "--budget", "320", *escalate)
    try:
        told = answered(one.url, asked(OURS)).json()["bitcal"]
        assert told["escalated"] and told["escalated_tokens"] > 0
    finally:
        one.close()


def test_which_model_is_meant_is_asked_for(several: Several, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--upstream", several.url, "--port", "8123"]) == 2
    assert f"has several models, {OTHER}, {OURS}: say which with --model" in capsys.readouterr().err
    assert main(["serve", "--demo", "--model", OURS]) == 2
    assert "--demo brings tiny-15m: leave it out, or --model" in capsys.readouterr().err
