"""A sidecar before a real llama.cpp server with a model of the box, and the official client."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("xllamacpp", reason="the llama.cpp server is not installed")
pytest.importorskip("starlette", reason="the sidecar's packages are not installed")

from sidecar import Running


@pytest.fixture(scope="session")
def upstream_url(gguf: Path) -> Iterator[str]:
    from bitcal_tts.engines.llama_server import OwnServer

    own = OwnServer(gguf, parallel=4, context=2048, threads=1)
    yield own.url
    own.close()


@pytest.fixture(scope="session")
def running(upstream_url: str) -> Iterator[Running]:
    one = Running(upstream_url, "--method", "stated", "--budget", "320")
    yield one
    one.close()


@pytest.fixture(scope="session")
def start(upstream_url: str) -> Any:
    def begin(*arguments: str) -> Running:
        return Running(upstream_url, *arguments)

    return begin


@pytest.fixture
def client(running: Running) -> Iterator[Any]:
    import openai

    with openai.OpenAI(base_url=f"{running.url}/v1", api_key="none", max_retries=0) as one:
        yield one
