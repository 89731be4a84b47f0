"""A sidecar before a real llama.cpp server with a model of the box, and the official client."""

from __future__ import annotations

import argparse
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("xllamacpp", reason="the llama.cpp server is not installed")
pytest.importorskip("starlette", reason="the sidecar's packages are not installed")


@pytest.fixture(scope="session")
def upstream_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    from bitcal_tts.engines.gguf import export_gguf
    from bitcal_tts.engines.llama_server import OwnServer
    from bitcal_tts.tiny import models

    path = tmp_path_factory.mktemp("gguf") / "tiny-4m-F16.gguf"
    export_gguf(models.resolve("tiny-4m"), "F16", path)
    own = OwnServer(path, parallel=4, context=2048, threads=1)
    yield own.url
    own.close()


class Running:
    """A sidecar on a port of its own, for as long as it is needed."""

    def __init__(self, upstream_url: str, *arguments: str) -> None:
        import uvicorn

        from bitcal_tts.commands import serve
        from bitcal_tts.engines.http import HttpEngine
        from bitcal_tts.serving.app import Sidecar
        from bitcal_tts.serving.upstream import Upstream

        with socket.socket() as one:
            one.bind(("127.0.0.1", 0))
            self.port = one.getsockname()[1]
        parser = argparse.ArgumentParser()
        serve.add_options(parser)
        args = parser.parse_args(
            ["--upstream", upstream_url, "--port", str(self.port), "--answers", "gsm8k", *arguments]
        )
        self.engine = HttpEngine(upstream_url, template_options={"enable_thinking": True})
        self.sidecar = Sidecar(Upstream(self.engine), serve.policy_of(args, self.engine))
        config = uvicorn.Config(self.sidecar.application(), host="127.0.0.1", port=self.port, log_level="error")
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self._thread.start()
        while not self._server.started:
            time.sleep(0.01)
        self.url = f"http://127.0.0.1:{self.port}"

    def close(self) -> None:
        self._server.should_exit = True
        self._thread.join(20)
        self.engine.close()


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


@pytest.fixture(scope="session")
def folder() -> Path:
    return Path(__file__).parent
