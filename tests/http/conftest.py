"""A real llama.cpp server with a model of the box, and the same model in Transformers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("xllamacpp", reason="the llama.cpp server is not installed")

SLOTS = 4


@pytest.fixture(scope="session")
def server(gguf: Path) -> Iterator[str]:
    """Its URL."""
    from bitcal_tts.engines.llama_server import OwnServer

    own = OwnServer(gguf, parallel=SLOTS, context=2048, threads=1)
    yield own.url
    own.close()


@pytest.fixture(scope="session")
def served(server: str) -> Iterator[Any]:
    """The server as an engine, in the thinking style."""
    from bitcal_tts.engines.http import HttpEngine

    with HttpEngine(server, template_options={"enable_thinking": True}) as engine:
        yield engine
