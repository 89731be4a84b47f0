"""One real vLLM server for all tests that speak to it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from bitcal_tts.engines.llama_server import free_port
from bitcal_tts.tiny import models


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    port = free_port()
    command = [
        sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", models.resolve("tiny-4m"),
        "--served-model-name", "tiny-4m", "by-another-name", "--dtype", "float32", "--enforce-eager",
        "--max-model-len", "1024",
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
