"""Shared fixtures: the small checkpoint every engine test runs, and data that may be absent."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bitcal_tts.openmp import let_go_soon

let_go_soon()  # before anything loads torch: tests run beside servers and processes of their own
SHARED = Path(__file__).parents[2] / "shared"


@pytest.fixture(scope="session")
def shared() -> Path:
    """Data that is not part of the project; tests that need it skip, visibly, where it is absent."""
    if not SHARED.is_dir():
        pytest.skip(f"{SHARED} is absent")
    return SHARED


@pytest.fixture(scope="session")
def released(shared: Path) -> list[dict[str, Any]]:
    """All released per-item records of the paper."""
    files = sorted((shared / "released_results").glob("exp_*.jsonl"))
    if not files:
        pytest.skip("the released records are absent")
    rows: list[dict[str, Any]] = []
    for path in files:
        with path.open() as lines:
            rows += [{**json.loads(line), "file": path.name} for line in lines]
    return rows


@pytest.fixture(autouse=True)
def in_a_clean_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No test writes into the checkout."""
    monkeypatch.chdir(tmp_path)
    yield


@pytest.fixture(scope="session")
def tiny() -> str:
    """The smallest model in the box."""
    from bitcal_tts.tiny import models

    return models.resolve("tiny-1m")


@pytest.fixture(scope="session")
def engine(tiny: str) -> Any:
    """It, in float32: there batches of any composition give the same tokens."""
    from bitcal_tts.engines.checkpoint import load_checkpoint
    from bitcal_tts.engines.transformers import TransformersEngine

    return TransformersEngine(load_checkpoint(tiny, bits=32, name="tiny-1m"))


@pytest.fixture(scope="session")
def store(engine: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Forty traces of it, hidden vectors included."""
    from bitcal_tts.tasks import load_task
    from bitcal_tts.traces.record import record

    folder = tmp_path_factory.mktemp("recorded") / "traces"
    return record(engine, load_task(), folder, n=40, budget=192, batch_size=32, keep_hidden=True)


@pytest.fixture(scope="session")
def thinking_engine(tiny: str) -> Any:
    """The smallest model, thinking."""
    from bitcal_tts.engines.checkpoint import load_checkpoint
    from bitcal_tts.engines.transformers import TransformersEngine

    options = {"enable_thinking": True}
    return TransformersEngine(load_checkpoint(tiny, bits=32, name="tiny-1m", template_options=options))


@pytest.fixture(scope="session")
def probed(thinking_engine: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Sixty-four sampled thinking traces with probes."""
    from short_task import short_task

    from bitcal_tts.engines.base import Decoding
    from bitcal_tts.traces.record import record

    folder = tmp_path_factory.mktemp("probed") / "traces"
    return record(
        thinking_engine, short_task(), folder, n=64, budget=320, batch_size=64,
        decoding=Decoding(0.6), probes=16,
    )  # fmt: skip


@pytest.fixture(scope="session")
def local() -> Any:
    """The 4-million-weight model of the box in Transformers, thinking, multiplied in float32."""
    from bitcal_tts.engines.checkpoint import load_checkpoint
    from bitcal_tts.engines.transformers import TransformersEngine
    from bitcal_tts.tiny import models

    options = {"enable_thinking": True}
    source = models.resolve("tiny-4m")
    return TransformersEngine(
        load_checkpoint(source, bits=16, compute_dtype="float32", name="tiny-4m", template_options=options)
    )


@pytest.fixture(scope="session")
def gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The 4-million-weight model of the box in 16 bits."""
    from bitcal_tts.engines.gguf import export_gguf
    from bitcal_tts.tiny import models

    path = tmp_path_factory.mktemp("gguf") / "tiny-4m-F16.gguf"
    export_gguf(models.resolve("tiny-4m"), "F16", path)
    return path


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """A real one; tests of pages skip, visibly, where there is none."""
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("no chromium here: apt-get install chromium")
    from playwright.sync_api import sync_playwright

    flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=chromium, args=flags)
        yield opened
        opened.close()
