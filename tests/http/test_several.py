"""A server that has several models, as Ollama and llama.cpp's router do: one of them is meant, and it is said which."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from several import Several
from short_task import short_task

from bitcal_tts.cli import main
from bitcal_tts.engines.base import Request
from bitcal_tts.engines.gguf import export_gguf
from bitcal_tts.engines.http import HttpEngine
from bitcal_tts.engines.llama_server import OwnServer
from bitcal_tts.engines.wire import ServerError
from bitcal_tts.halting.methods import to_the_end
from bitcal_tts.tiny import models

SMALL, LARGE = "tiny-1m:latest", "tiny-4m"


@pytest.fixture(scope="module")
def servers(server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    file = tmp_path_factory.mktemp("small") / "tiny-1m-F16.gguf"
    export_gguf(models.resolve("tiny-1m"), "F16", file)
    small = OwnServer(file, parallel=1, context=1024, threads=1)
    yield {SMALL: small.url, LARGE: server}
    small.close()


@pytest.fixture(scope="module", params=[True, False], ids=["router", "chat"])
def several(servers: dict[str, str], request: pytest.FixtureRequest) -> Iterator[Several]:
    one = Several(servers, own_api=request.param)
    yield one
    one.close()


def texts(engine: HttpEngine) -> list[str]:
    task = short_task()
    items = task.items(2, seed=3)
    requests = [Request(str(i), task.prompt(item), to_the_end(40)) for i, item in enumerate(items)]
    return [done.text for done in sorted(engine.decode(requests, batch_size=1), key=lambda done: done.id)]


def test_the_model_that_is_named_is_the_one_that_writes(several: Several, servers: dict[str, str]) -> None:
    plain: dict[str, Any] = {"bits": 16, "markers": None, "template_options": {"enable_thinking": False}}
    for name, typed in ((SMALL, "tiny-1m"), (LARGE, LARGE)):
        with HttpEngine(several.url, model=typed, **plain) as one, HttpEngine(servers[name], **plain) as alone:
            assert one.served_as == name and one.has_other({SMALL: LARGE, LARGE: SMALL}[name])
            assert not one.has_other(name) and one.has_other("another")
            assert not alone.has_other("whatever a client calls it")
            assert texts(one) == texts(alone)


def test_none_is_taken_by_chance(several: Several, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ServerError, match=f"has several models, {SMALL}, {LARGE}: say which with --model"):
        HttpEngine(several.url, bits=16, markers=None)
    wanted = f"has no model 'tiny-4n' \\(did you mean {LARGE}\\?\\), only {SMALL}, {LARGE}"
    with pytest.raises(ServerError, match=wanted):
        HttpEngine(several.url, model="tiny-4n", bits=16, markers=None)
    recorded = ["record", "--url", several.url, "--bits", "16", "--think", "none", "--n", "1", "--budget", "8"]
    assert main([*recorded, "--out", "t"]) == 2
    assert "say which with --model" in capsys.readouterr().err
    assert main([*recorded, "--model", LARGE, "--out", "t"]) == 0


def test_the_path_before_v1_belongs_to_the_address(several: Several) -> None:
    """As behind a proxy of several services; /v1 and what follows is what clients are given."""
    for url in (several.url, f"{several.url}/v1", f"{several.url}/v1/chat/completions"):
        with HttpEngine(url, model=LARGE, bits=16, markers=None) as one:
            assert one.url == several.url
