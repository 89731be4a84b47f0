"""Recordings that grow: more items, probes later, another answer format; and what an older version recorded."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from short_task import short_task

from bitcal_tts import build_method, replay
from bitcal_tts.cli import main
from bitcal_tts.commands import compare as compare_module
from bitcal_tts.engines.base import Decoding
from bitcal_tts.tasks import load_task
from bitcal_tts.traces.blocks import Job, Worker
from bitcal_tts.traces.record import record
from bitcal_tts.traces.store import TraceStore
from bitcal_tts.traces.trace import Trace, TraceError

SAMPLED = Decoding(0.6, seed=1)


def texts(traces: list[Trace]) -> list[tuple[int, str, str, list[int]]]:
    return [(t.index, t.item.id, t.finish, t.token_ids.tolist()) for t in traces]


@pytest.fixture
def counting(engine: Any, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many items were decoded, call by call."""
    calls: list[int] = []
    plain = Worker._decode

    def count(self: Worker, job: Job, *rest: Any) -> Any:
        calls.append(len(job.items))
        return plain(self, job, *rest)

    monkeypatch.setattr(Worker, "_decode", count)
    return calls


@contextmanager
def interrupted_probing(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Ctrl-C at the second block's probes."""
    plain = TraceStore.write_probes

    def dies(self: TraceStore, block: int, *rest: Any) -> None:
        if block == 1:
            raise KeyboardInterrupt
        plain(self, block, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(TraceStore, "write_probes", dies)
        yield


def test_more_items_decode_only_the_others(engine: Any, tmp_path: Path, counting: list[int]) -> None:
    options: dict[str, Any] = {"budget": 64, "batch_size": 4, "decoding": SAMPLED}
    small = record(engine, short_task(), tmp_path / "t", n=6, **options)
    before = {path: path.read_bytes() for path in (tmp_path / "t").glob("part-*")}
    assert counting == [4, 2]
    grown = record(engine, short_task(), tmp_path / "t", n=11, **{**options, "batch_size": 3})
    assert counting == [4, 2, 3, 2]
    assert grown.complete and grown.description["n"] == 11
    assert {path: path.read_bytes() for path in before} == before
    whole = record(engine, short_task(), tmp_path / "w", n=11, **options)
    assert texts(grown.read()) == texts(whole.read())
    assert grown.manifest.sha256 == whole.manifest.sha256 == small.manifest.sha256  # the same recording
    counting.clear()
    again = record(engine, short_task(), tmp_path / "t", n=5, **options)  # fewer: what is there stays
    assert counting == [] and len(again.read()) == 11


def test_a_grown_recording_goes_on_where_it_was_killed(engine: Any, tmp_path: Path, counting: list[int]) -> None:
    options: dict[str, Any] = {"budget": 48, "batch_size": 3, "decoding": SAMPLED}
    record(engine, short_task(), tmp_path / "t", n=3, **options)
    store = record(engine, short_task(), tmp_path / "t", n=9, **options)
    (tmp_path / "t" / "part-00001.parquet").unlink()
    assert not TraceStore.open(tmp_path / "t").complete
    counting.clear()
    record(engine, short_task(), tmp_path / "t", n=9, **options)
    assert counting == [3] and TraceStore.open(tmp_path / "t").complete
    assert texts(store.read()) == texts(TraceStore.open(tmp_path / "t").read())


def test_fewer_items_than_an_unfinished_recording_was_begun_with_are_refused(
    engine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(TraceStore, "write", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
        record(engine, load_task(), tmp_path, n=6, budget=32, batch_size=3)
    with pytest.raises(TraceError, match="was begun with 6 items, and is to have 4 now: finish it with --n 6"):
        record(engine, load_task(), tmp_path, n=4, budget=32, batch_size=3)
    assert len(record(engine, load_task(), tmp_path, n=6, budget=32, batch_size=3).read()) == 6
    assert len(record(engine, load_task(), tmp_path, n=4, budget=32, batch_size=3).read()) == 6  # nothing is missing


def test_items_that_are_no_longer_the_same_are_refused(engine: Any, tmp_path: Path) -> None:
    lines = [{"question": f"What is {i} + 1?", "answer": i + 1} for i in range(6)]
    data = tmp_path / "mine.jsonl"
    data.write_text("\n".join(map(json.dumps, lines)))
    record(engine, load_task("jsonl", data=str(data)), tmp_path / "t", n=3, budget=16, batch_size=3)
    record(engine, load_task("jsonl", data=str(data)), tmp_path / "t", n=6, budget=16, batch_size=3)
    data.write_text("\n".join(map(json.dumps, reversed(lines))))
    with pytest.raises(TraceError, match="data_sha256 is"):
        record(engine, load_task("jsonl", data=str(data)), tmp_path / "t", n=6, budget=16, batch_size=3)


def test_probes_are_added_to_finished_traces(thinking_engine: Any, tmp_path: Path, counting: list[int]) -> None:
    options: dict[str, Any] = {"n": 5, "budget": 96, "batch_size": 3, "decoding": SAMPLED}
    later = record(thinking_engine, short_task(), tmp_path / "later", **options)
    assert later.description["probes"] is None and later.read()[0].probes is None
    parts = {path: path.read_bytes() for path in (tmp_path / "later").glob("part-*")}
    counting.clear()
    later = record(thinking_engine, short_task(), tmp_path / "later", probes=16, **options)
    assert counting == []
    assert {path: path.read_bytes() for path in parts} == parts
    at_once = record(thinking_engine, short_task(), tmp_path / "once", probes=16, **options)
    for one, other in zip(later.read(), at_once.read(), strict=True):
        assert one.probes == other.probes and one.probes
    grown = record(thinking_engine, short_task(), tmp_path / "later", **{**options, "n": 7})  # probed as the others
    assert all(trace.probes for trace in grown.read())
    with pytest.raises(TraceError, match=r"probed every 16 tokens for 'gsm8k' answers, not every 24"):
        record(thinking_engine, short_task(), tmp_path / "later", probes=24, **options)
    record(thinking_engine, short_task(), tmp_path / "later", probes=32, **options)  # 16 has all of 32's


def test_probing_that_was_interrupted_leaves_the_recording_usable(
    thinking_engine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options: dict[str, Any] = {"n": 6, "budget": 48, "batch_size": 3, "decoding": SAMPLED}
    record(thinking_engine, short_task(), tmp_path / "t", **options)
    with pytest.raises(KeyboardInterrupt), interrupted_probing(monkeypatch):
        record(thinking_engine, short_task(), tmp_path / "t", probes=16, **options)
    store = TraceStore.open(tmp_path / "t")
    assert store.complete and store.blocks("probes") == [0] and store.read()[0].probes is None
    finished = record(thinking_engine, short_task(), tmp_path / "t", probes=16, **options)
    assert finished.complete and all(trace.probes is not None for trace in finished.read())


def as_schema_2(folder: Path) -> None:
    """Rewrite a recording as version 0.1 wrote it."""
    manifest = json.loads((folder / "manifest.json").read_text())
    (segment,) = manifest["segments"]
    old = {key: value for key, value in manifest["identity"].items() if key not in ("system", "repetition_penalty")}
    old["decoding"] = {key: old["decoding"][key] for key in ("temperature", "seed")}
    old |= {
        "answers": manifest["reading"]["answers"], "n": segment["items"], "batch_size": segment["batch_size"],
        "block_size": segment["block_size"], "blocks": -(-segment["items"] // segment["block_size"]),
        "chunk_size": manifest["content"]["chunk_size"], "keep_hidden": manifest["content"]["keep_hidden"],
    }  # fmt: skip
    if manifest["probes"]:
        old["probes"] = manifest["probes"]["every"]
    from bitcal_tts.traces.manifest import _sha256

    for path in folder.glob("*.parquet"):
        table = pq.read_table(path)
        meta = {**json.loads(table.schema.metadata[b"bitcal"]), "identity_sha256": _sha256(old)}
        pq.write_table(table.replace_schema_metadata({b"bitcal": json.dumps(meta)}), path)
    told = {"schema": 2, "identity": old, "environment": manifest["environment"]}
    (folder / "manifest.json").write_text(json.dumps(told))


def test_what_version_2_recorded_is_read_and_grows(thinking_engine: Any, tmp_path: Path, counting: list[int]) -> None:
    options: dict[str, Any] = {"budget": 64, "batch_size": 4, "decoding": Decoding(0.6), "probes": 16}
    new = record(thinking_engine, short_task(), tmp_path / "new", n=4, **options)
    old = tmp_path / "old"
    shutil.copytree(new.folder, old)
    as_schema_2(old)
    store = TraceStore.open(old)
    assert texts(store.read()) == texts(new.read())
    assert [t.probes for t in store.read()] == [t.probes for t in new.read()]
    assert store.identity == new.identity and store.description == new.description
    method = build_method("fixed", bits=32, budget=64)
    assert replay(old, method) == replay(new.folder, method)
    counting.clear()
    grown = record(thinking_engine, short_task(), old, n=6, **options)
    assert counting == [2] and len(grown.read()) == 6
    assert json.loads((old / "manifest.json").read_text())["schema"] == 3


def json_of(capsys: pytest.CaptureFixture[str], *argv: str) -> dict[str, Any]:
    assert main([*argv, "--json"]) == 0
    parsed: dict[str, Any] = json.loads(capsys.readouterr().out)
    return parsed


def test_another_answer_format_is_read_without_decoding(store: Any, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(store.folder)
    usual = json_of(capsys, "replay", folder, "--methods", "fixed,complete", "--out", "a")
    boxed = json_of(capsys, "replay", folder, "--methods", "fixed,complete", "--answers", "boxed", "--out", "b")
    assert usual["rows"][0]["accuracy"] > 0 and usual["rows"][1]["savings"] > 0
    assert boxed["rows"][0]["accuracy"] == 0 and boxed["rows"][1]["savings"] == 0
    main(["replay", folder, "--methods", "fixed", "--answers", "boxed", "--out", "c"])
    assert "0 of 40 texts" in (told := capsys.readouterr()).err and "hold an answer as 'boxed' has it" in told.err
    text = json_of(capsys, "replay", folder, "--methods", "complete", "--answers", "marked_text", "--out", "d")
    assert text["rows"][0]["accuracy"] > 0
    assert main(["replay", folder, "--answers", "roman"]) == 2
    assert "unknown answer format 'roman'" in capsys.readouterr().err
    compared = json_of(capsys, "compare", folder, "--methods", "fixed,complete", "--answers", "released")
    assert {row["method"] for row in compared["rows"]} == {"fixed", "complete"}


def test_probes_for_another_format_are_left_out_and_that_is_said(
    probed: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["replay", str(probed.folder), "--methods", "deer", "--answers", "marked_text", "--out", "a"]
    assert main(argv) == 2
    told = capsys.readouterr().err
    assert "probes of" in told and "are for 'gsm8k' answers and are left out" in told
    assert "deer probes the model, and this recording has no probes" in told
    assert main(["fit", str(probed.folder), "--answers", "boxed", "--out", "p.json"]) == 2


def test_several_folders_of_one_precision_are_pooled(
    thinking_engine: Any, probed: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options: dict[str, Any] = {"n": 40, "budget": 320, "batch_size": 40, "probes": 16}
    more = record(thinking_engine, short_task(), tmp_path / "more", seed=9, decoding=Decoding(0.6), **options)
    folders = [str(probed.folder), str(more.folder)]
    told = json_of(capsys, "fit", *folders, "--risk", "0.3", "--confidence", "0.8", "--out", "p.json")
    evidence = told["evidence"]["32"]
    assert evidence["other_items"] + evidence["certified_items"] > 100  # of 104, less questions in both draws
    assert main(["fit", folders[0], folders[0], "--out", "q.json"]) == 2
    assert "64 traces come twice" in capsys.readouterr().err


def test_a_refused_recording_is_as_it_was(thinking_engine: Any, tmp_path: Path) -> None:
    options: dict[str, Any] = {"budget": 48, "batch_size": 3, "decoding": SAMPLED}
    record(thinking_engine, short_task(), tmp_path / "t", n=3, probes=16, **options)
    before = (tmp_path / "t" / "manifest.json").read_bytes()
    with pytest.raises(TraceError, match="not every 12"):
        record(thinking_engine, short_task(), tmp_path / "t", n=6, probes=12, **options)
    assert (tmp_path / "t" / "manifest.json").read_bytes() == before
    assert TraceStore.open(tmp_path / "t").complete


def test_probes_of_another_recording_are_refused(thinking_engine: Any, tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 2)):
        options: dict[str, Any] = {"n": 3, "budget": 48, "batch_size": 3, "probes": 16}
        record(thinking_engine, short_task(), tmp_path / name, decoding=Decoding(0.6, seed=seed), **options)
    shutil.copy(tmp_path / "b" / "probes-00000.parquet", tmp_path / "a")
    with pytest.raises(TraceError, match=r"probes-00000\.parquet is not part of this recording"):
        TraceStore.open(tmp_path / "a").read()


def test_an_unfinished_recording_is_not_replayed(engine: Any, tmp_path: Path) -> None:
    record(engine, short_task(), tmp_path / "t", n=6, budget=16, batch_size=3)
    (tmp_path / "t" / "part-00001.parquet").unlink()
    with pytest.raises(TraceError, match="is not complete"):
        replay(tmp_path / "t", build_method("fixed", bits=32, budget=16))


def test_an_older_recording_is_not_left_half_probed(
    thinking_engine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options: dict[str, Any] = {"n": 6, "budget": 48, "batch_size": 3, "decoding": Decoding(0.6)}
    record(thinking_engine, short_task(), tmp_path / "t", **options)
    as_schema_2(tmp_path / "t")
    with pytest.raises(KeyboardInterrupt), interrupted_probing(monkeypatch):
        record(thinking_engine, short_task(), tmp_path / "t", probes=16, **options)
    finer = record(thinking_engine, short_task(), tmp_path / "t", probes=4, **options)
    assert all(4 in trace.probes for trace in finer.read() if trace.probes is not None and len(trace) > 4)


@pytest.mark.parametrize("budget", [22, 24, 26, 28, 40])
def test_live_equals_replay_where_a_landing_has_little_room(thinking_engine: Any, probed: Any, budget: int) -> None:
    """Half a number is no answer, live or replayed."""
    from bitcal_tts.engines.base import Request
    from bitcal_tts.traces.replay import outcomes

    task, traces = short_task(), probed.read()[:16]
    opening, close = probed.description["thinking"]
    method = build_method("cusum", bits=32, budget=budget, opening=opening, close=close)
    requests = [
        Request(str(t.index), task.prompt(t.item), method, seed=t.index, question=t.item.question) for t in traces
    ]
    live = {int(c.id): c for c in thinking_engine.decode(requests, Decoding(0.6), batch_size=16)}
    for trace, expected in zip(traces, outcomes(traces, method, task), strict=True):
        done = live[trace.index]
        assert (done.answer, len(done.token_ids)) == (expected.answer, expected.tokens)
        assert len(done.token_ids) <= budget


def test_the_same_comparison_is_shown_again_and_another_refused(
    store: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = ["compare", str(store.folder), "--methods", "fixed,complete", "--out", "c"]
    assert main(asked) == 0 and "written: c/compare.json" in capsys.readouterr().out
    before = Path("c/compare.json").read_bytes()
    assert main([*asked, "--budget", "64"]) == 2
    assert "c/compare.json holds another comparison" in capsys.readouterr().err
    monkeypatch.setattr(compare_module, "_swept", None)  # nothing is worked out again
    assert main([*asked, "--full"]) == 0
    told = capsys.readouterr().out
    assert "Paired tests" in told and "as before, from: c/compare.json" in told
    assert Path("c/compare.json").read_bytes() == before
    Path("c/compare.json").write_text("{")
    assert main(asked) == 2 and "holds another comparison" in capsys.readouterr().err


def test_results_are_never_overwritten_silently(
    store: Any, probed: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder = str(store.folder)
    first = json_of(capsys, "replay", folder, "--methods", "fixed,complete", "--budgets", "100")["folder"]
    second = json_of(capsys, "replay", folder, "--methods", "fixed", "--budgets", "100")["folder"]
    again = json_of(capsys, "replay", folder, "--methods", "fixed,complete", "--budgets", "100")["folder"]
    assert first == again != second
    assert len(json.loads((Path(first) / "summary.json").read_text())["rows"]) == 2
    json_of(capsys, "replay", folder, "--methods", "fixed", "--out", "o")
    assert main(["replay", folder, "--methods", "complete", "--out", "o"]) == 2
    assert "o holds other results: choose another --out, or say --overwrite" in capsys.readouterr().err
    other_recording = ["record", "--model", "tiny-1m", "--bits", "32", "--n", "40", "--budget", "192", "--seed", "7"]
    json_of(capsys, *other_recording, "--out", "another")
    assert main(["replay", "another", "--methods", "fixed", "--out", "o"]) == 2
    assert "o holds other results" in capsys.readouterr().err
    json_of(capsys, "replay", folder, "--methods", "complete", "--out", "o", "--overwrite")
    assert json.loads(Path("o/summary.json").read_text())["rows"][0]["method"] == "complete"
    fitting = ["fit", str(probed.folder), "--risk", "0.3", "--confidence", "0.8", "--out", "p.json"]
    json_of(capsys, *fitting)
    before = Path("p.json").read_bytes()
    for more in ([], ["--profile", "p.json"]):
        assert main([*fitting, *more]) == 2
        assert "say --overwrite" in capsys.readouterr().err
    assert main([*fitting[:2], "--profile", "p.json", "--risk", "0.001", "--out", "p.json"]) == 2
    assert "has a threshold for 32 bits already" in capsys.readouterr().err
    assert Path("p.json").read_bytes() == before
    small = ["run", "--model", "tiny-1m", "--bits", "32", "--n", "4", "--batch", "4", "--budgets", "32", "--out", "r"]
    assert json_of(capsys, *small, "--methods", "fixed,complete")["folder"] == "r"
    other = json_of(capsys, *small, "--methods", "fixed")["folder"]
    assert other == "r/replays/1" and len(json.loads(Path("r/summary.json").read_text())["rows"]) == 2
