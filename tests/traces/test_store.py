"""The store against everything that can happen to a process and a disk."""

from __future__ import annotations

import errno
import json
import random
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from bitcal_tts import files
from bitcal_tts.engines.base import Completion, Decoding
from bitcal_tts.tasks import Item, load_task
from bitcal_tts.traces.manifest import Manifest
from bitcal_tts.traces.record import _kept, record
from bitcal_tts.traces.store import TraceStore
from bitcal_tts.traces.trace import Trace, TraceError

RECORDER = """
import sys
from pathlib import Path
from bitcal_tts.engines.checkpoint import load_checkpoint
from bitcal_tts.engines.transformers import TransformersEngine
from bitcal_tts.tasks import load_task
from bitcal_tts.traces.record import record
engine = TransformersEngine(load_checkpoint(sys.argv[1], bits=32, name="tiny-1m"))
print("ready", flush=True)
record(engine, load_task(), Path(sys.argv[2]), n=48, budget=64, batch_size=4, block_size=4, keep_hidden=True)
"""


def empty_manifest() -> Manifest:
    """Of a recording that nothing was asked of."""
    return Manifest({}, {"signals": "full", "chunk_size": 16, "keep_hidden": False}, {"answers": "gsm8k"}, {})


def assert_same(one: list[Trace], other: list[Trace]) -> None:
    assert [t.item for t in one] == [t.item for t in other]
    for a, b in zip(one, other, strict=True):
        assert (a.index, a.prompt_tokens, a.finish, a.token_texts) == (
            b.index,
            b.prompt_tokens,
            b.finish,
            b.token_texts,
        )
        for name in ("token_ids", "entropies", "logprobs", "margins", "top_logprobs", "hidden_similarities"):
            assert getattr(a, name).tobytes() == getattr(b, name).tobytes(), name
        assert (a.hidden is None) == (b.hidden is None)
        assert a.hidden is None or a.hidden.tobytes() == b.hidden.tobytes()  # type: ignore[union-attr]


def test_killed_ten_times_and_resumed_it_holds_what_an_undisturbed_one_holds(tiny: str, tmp_path: Path) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    subprocess.run([sys.executable, "-c", RECORDER, tiny, str(whole)], check=True, timeout=300)
    rng = random.Random(0)
    kills = 0
    while kills < 10:
        process = subprocess.Popen([sys.executable, "-c", RECORDER, tiny, str(broken)], stdout=subprocess.PIPE)
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        time.sleep(rng.uniform(0.0, 0.6))
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        kills += 1
    left_over = len(TraceStore.open(broken).blocks()) if (broken / "manifest.json").exists() else 0
    assert left_over < 12, "the recording was over before it was killed for the last time: record more items"
    subprocess.run([sys.executable, "-c", RECORDER, tiny, str(broken)], check=True, timeout=300)
    assert_same(TraceStore.open(whole).read(), TraceStore.open(broken).read())
    assert TraceStore.open(whole).identity == TraceStore.open(broken).identity


def test_a_second_recording_decodes_nothing(store: Any, engine: Any) -> None:
    before = {p: p.stat().st_mtime_ns for p in store.folder.iterdir()}
    seen = []
    record(engine, load_task(), store.folder, n=40, budget=192, batch_size=32, keep_hidden=True,
           progress=lambda items, tokens: seen.append(items))  # fmt: skip
    assert sum(seen) == 40
    assert {p: p.stat().st_mtime_ns for p in store.folder.iterdir() if p.name != ".lock"} == {
        p: t for p, t in before.items() if p.name != ".lock"
    }


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"budget": 100}, "budget is 192 there, 100 now"),
        ({"seed": 1}, "seed is 0 there, 1 now"),
        ({"decoding": Decoding(0.6)}, "decoding is"),
        ({"chunk_size": 8}, "chunk_size is 16 there, 8 now"),
    ],
)
def test_other_settings_are_refused_by_name(store: Any, engine: Any, change: dict[str, Any], message: str) -> None:
    options: dict[str, Any] = {"n": 40, "budget": 192, "batch_size": 32, "keep_hidden": True}
    with pytest.raises(TraceError, match=message):
        record(engine, load_task(), store.folder, **{**options, **change})


def test_another_prompt_is_refused(store: Any, engine: Any, tmp_path: Path) -> None:
    (tmp_path / "other.txt").write_text("{question} Think.")
    task = load_task(template=str(tmp_path / "other.txt"))
    with pytest.raises(TraceError, match="prompt_sha256 is"):
        record(engine, task, store.folder, n=40, budget=192, batch_size=32, keep_hidden=True)


def test_another_model_is_refused(store: Any, tmp_path: Path) -> None:
    asked = replace(store.manifest, tokens={**store.manifest.tokens, "model_sha256": "0" * 64})
    with pytest.raises(TraceError, match="model_sha256 is"):
        TraceStore.create(store.folder, asked)


@pytest.fixture
def copied(store: Any, tmp_path: Path) -> Path:
    return Path(shutil.copytree(store.folder, tmp_path / "copy"))


def test_another_schema_version_is_refused(copied: Path) -> None:
    manifest = json.loads((copied / "manifest.json").read_text())
    (copied / "manifest.json").write_text(json.dumps({**manifest, "schema": 99}))
    with pytest.raises(TraceError, match=r"manifest\.json has schema 99, this version reads schema 3 and 2"):
        TraceStore.open(copied)


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m["segments"][0].update(block_size=0),
        lambda m: m["content"].pop("signals"),
        lambda m: m.update(probes=3),
        lambda m: m["identity"].update(decoding=None),
        lambda m: m.update(reading=3),
    ],
)
def test_a_damaged_manifest_is_found_where_it_is_opened(copied: Path, change: Any) -> None:
    manifest = json.loads((copied / "manifest.json").read_text())
    change(manifest)
    (copied / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(TraceError, match=r"manifest\.json is damaged"):
        TraceStore.open(copied)


def test_damaged_vectors_are_named(copied: Path) -> None:
    for path in copied.glob("hidden-*.safetensors"):
        path.write_bytes(b"x" * 20)
    with pytest.raises(TraceError, match=r"hidden-00000\.safetensors cannot be read"):
        TraceStore.open(copied).read()


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"schema": 1}', "[" * 100_000])
def test_a_broken_manifest_is_named(copied: Path, text: str) -> None:
    (copied / "manifest.json").write_text(text)
    with pytest.raises(TraceError, match=r"manifest\.json"):
        TraceStore.open(copied)


def test_who_interrupts_is_told_what_is_kept_with_probes_and_without(store: Any, probed: Any) -> None:
    again = ": run the same command to go on"
    assert _kept(store, None) == f"40 of 40 items are kept{again}"
    told = _kept(probed, probed.manifest.probes)
    assert told.startswith("64 of 64 items are kept, 64 of them with their probes; they are kept ")
    other = {**probed.manifest.probes, "every": 32}
    assert ", 0 of them with their probes" in _kept(probed, other)


def test_a_truncated_part_is_named_and_the_rest_kept(copied: Path, engine: Any, store: Any) -> None:
    part = copied / "part-00000.parquet"
    part.write_bytes(part.read_bytes()[:-100])
    with pytest.raises(TraceError, match=r"part-00000\.parquet cannot be read .* delete it and record again"):
        TraceStore.open(copied).read()
    part.unlink()
    options: dict[str, Any] = {"n": 40, "budget": 192, "batch_size": 32, "keep_hidden": True}
    assert_same(record(engine, load_task(), copied, **options).read(), store.read())


def test_a_part_with_other_columns_is_named(copied: Path) -> None:
    part = copied / "part-00000.parquet"
    table = pq.read_table(part)
    pq.write_table(table.drop_columns(["margins"]), part)
    with pytest.raises(TraceError, match="does not have the columns of schema 3"):
        TraceStore.open(copied).read()


def test_a_part_of_another_recording_is_refused(copied: Path) -> None:
    manifest = json.loads((copied / "manifest.json").read_text())
    manifest["identity"]["seed"] = 5
    (copied / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(TraceError, match=r"part-00000\.parquet is not part of this recording"):
        TraceStore.open(copied).read()


def test_a_folder_with_something_else_in_it_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(TraceError, match="not empty and not a trace folder"):
        TraceStore.create(tmp_path, empty_manifest())
    assert [p.name for p in tmp_path.iterdir()] == ["notes.txt"]


def test_a_folder_without_manifest_is_named(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"has no manifest\.json"):
        TraceStore.open(tmp_path)


def test_only_one_process_writes(tmp_path: Path) -> None:
    with (
        files.locked(tmp_path),
        pytest.raises(BlockingIOError, match="another process is writing"),
        files.locked(tmp_path),
    ):
        pass


def test_a_full_disk_leaves_the_store_as_it_was(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = TraceStore.open(copied)
    before = sorted(p.name for p in copied.iterdir())

    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(pq, "write_table", full)
    done = Completion("0", 1, [1], ["x"], [0.1], [-0.1], [1.0], finish="eos")
    with pytest.raises(OSError, match="No space left"):
        store.write(7, [(0, Item("a", "q", "1"), done)], {})
    assert sorted(p.name for p in copied.iterdir()) == before


def test_measurements_are_beside_the_traces(store: Any) -> None:
    parts = store.measurements()
    assert sum(part["items"] for part in parts) == 40
    assert sum(part["tokens"] for part in parts) == sum(len(t) for t in store.read())
    assert all(part["seconds"] > 0 and part["environment"]["versions"] for part in parts)
    versions = store.manifest.environment["versions"]
    assert {"python", "numpy", "torch", "transformers"} <= set(versions)


def test_traces_survive_the_round_trip(tmp_path: Path) -> None:
    store = TraceStore.create(tmp_path / "s", empty_manifest())
    done = Completion(
        "3", 7, [5, 6], ["ä", ""], [0.25, 0.5], [-1.0, -2.0], [3.0, 4.0], [-5.0, -6.0], [0.5], finish="budget"
    )
    store.write(0, [(3, Item("id", "q?", "1", {"k": [1, "x"]}), done)], {})
    (trace,) = store.read()
    assert trace.item == Item("id", "q?", "1", {"k": [1, "x"]})
    assert (trace.index, trace.prompt_tokens, trace.finish, trace.text) == (3, 7, "budget", "ä")
    assert trace.margins is not None and trace.margins.tolist() == [3.0, 4.0]
    assert trace.top_logprobs is not None and trace.top_logprobs.tolist() == [-5.0, -6.0]
    assert trace.hidden_similarities.dtype == np.float32 and trace.hidden_similarities.tolist() == [0.5]


def test_what_a_kill_left_of_the_manifest_is_no_obstacle(tmp_path: Path) -> None:
    folder = tmp_path / "s"
    folder.mkdir()
    (folder / ".manifest.json.123.tmp").write_text("{")
    (folder / ".lock").touch()
    TraceStore.create(folder, empty_manifest())
    assert sorted(p.name for p in folder.iterdir()) == [".lock", "manifest.json"]


def test_a_file_in_place_of_the_folder_is_named(engine: Any, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("mine")
    with pytest.raises(TraceError, match="is a file"):
        record(engine, load_task(), tmp_path / "taken", n=1, budget=8)
