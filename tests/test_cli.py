"""The program as a user meets it: output, exit status, one clear line where something is wrong."""

from __future__ import annotations

import argparse
import json
import shutil
import socket
import subprocess
import sys
import time
import warnings
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from short_task import SHORT

import bitcal_tts
from bitcal_tts.calibration.store import load_profile
from bitcal_tts.cli import COMMANDS, main
from bitcal_tts.commands import compared
from bitcal_tts.commands import progress as progress_module
from bitcal_tts.commands.build import budgets_of
from bitcal_tts.commands.compare import _tests
from bitcal_tts.commands.fit import _show
from bitcal_tts.commands.progress import progress
from bitcal_tts.commands.record import _block, next_step
from bitcal_tts.commands.recordings import open_recording
from bitcal_tts.engines.graphs import CaptureWarning
from bitcal_tts.evaluation.frontier import Point
from bitcal_tts.evaluation.verdict import verdict
from bitcal_tts.traces.outcome import Outcome
from bitcal_tts.traces.store import TraceStore

SMALL = ["--model", "tiny-1m", "--bits", "32", "--n", "6", "--batch", "6"]
FIELDS = {
    "model", "bits", "task", "style", "method", "budget", "n", "accuracy", "accuracy_low", "accuracy_high",
    "avg_tokens", "savings", "premature_stop_rate", "lost_correct_rate", "rescued_rate",
}  # fmt: skip


def json_of(capsys: pytest.CaptureFixture[str], *argv: str) -> dict[str, Any]:
    assert main([*argv, "--json"]) == 0
    parsed: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert parsed["schema"] == 1
    return parsed


def fails(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    """The one line that a failing command prints."""
    try:
        status = main(list(argv))
    except SystemExit as exit_:
        status = int(exit_.code or 0)
    captured = capsys.readouterr()
    assert status == 2
    assert captured.out == ""
    lines = [line for line in captured.err.splitlines() if line.startswith("bitcal")]
    assert len(lines) == 1 and "Traceback" not in captured.err, captured.err
    return lines[0]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_an_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main([command, "--help"])
    assert exit_.value.code == 0
    assert f"bitcal {command}" in capsys.readouterr().out.partition("example:")[2]


def test_record_then_replay(tiny: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    recorded = json_of(capsys, "record", *SMALL, "--budget", "96", "--out", "traces")
    assert recorded["items"] == 6
    replayed = json_of(capsys, "replay", "traces", "--budgets", "64,96", "--min-tokens", "32")
    assert [(row["budget"], row["method"]) for row in replayed["rows"]] == [
        (b, m) for b in (64, 96) for m in ("fixed", "adaptive", "bitcal_tts", "complete")
    ]
    twice = json_of(capsys, "replay", "traces", "--budgets", "64,64", "--methods", "fixed,fixed", "--out", "o")
    assert len(twice["rows"]) == 1
    for row in replayed["rows"]:
        assert set(row) >= FIELDS
        assert row["model"] == "tiny-1m"
        assert row["min_tokens"] == (None if row["method"] == "complete" else 32)
        assert 0 <= row["accuracy_low"] <= row["accuracy"] <= row["accuracy_high"] <= 1
    assert (tmp_path / "traces" / "replays" / "1" / "outcomes.parquet").exists()
    assert main(["replay", "traces", "--methods", "fixed"]) == 0
    told = capsys.readouterr().out
    assert "fixed" in told and "outcomes and summary: traces/replays/2" in told and "next: bitcal report" in told


def test_run_is_record_and_replay_in_one(tiny: str, capsys: pytest.CaptureFixture[str]) -> None:
    first = json_of(capsys, "run", *SMALL, "--budgets", "64,32")
    assert {row["budget"] for row in first["rows"]} == {32, 64}
    assert {row["style"] for row in first["rows"]} == {"instruct"}
    assert {row["min_tokens"] for row in first["rows"]} == {48, None}
    assert json_of(capsys, "run", *SMALL, "--budgets", "64,32")["rows"] == first["rows"]
    summary = json.loads((Path(first["folder"]) / "summary.json").read_text())
    assert summary["rows"] == first["rows"]
    assert summary["manifest"]["identity"]["model_sha256"]


def test_auto_floor_is_the_mean_solution_length(tiny: str, capsys: pytest.CaptureFixture[str]) -> None:
    rows = json_of(capsys, "run", *SMALL, "--budgets", "128", "--min-tokens", "auto")["rows"]
    assert 16 <= rows[0]["min_tokens"] <= 128


def test_config_file_sets_options_and_the_command_line_comes_first(
    tiny: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "c.yaml").write_text(
        "model: tiny-1m\nbits: 32\nn: 4\nbatch: 4\nbudgets: [32]\nmethods: [fixed]\nmin-tokens: 16\nset: [tail=false]\n"
    )
    rows = json_of(capsys, "run", "--config", "c.yaml", "--budgets", "48")["rows"]
    assert [(r["n"], r["budget"], r["method"], r["min_tokens"]) for r in rows] == [(4, 48, "fixed", 16)]


def test_the_papers_config_names_only_known_options() -> None:
    from bitcal_tts.commands.options import read_config

    folder = Path(__file__).parents[1] / "configs"
    for path in folder.glob("*.yaml"):
        assert read_config(str(path))["methods"]
    paper = read_config(str(folder / "experiment_gsm8k_minimal.yaml"))
    assert (paper["task"], paper["bits"], paper["model"]) == ("gsm8k", 4, "Qwen/Qwen2.5-7B-Instruct")


def test_problems_that_do_not_fit_are_left_out_where_asked(capsys: pytest.CaptureFixture[str]) -> None:
    lines = [{"question": question, "answer": 1} for question in ("short?", "long " * 5000, "shorter?")]
    Path("mine.jsonl").write_text("\n".join(map(json.dumps, lines)))
    usual = ["record", "--model", "tiny-1m", "--bits", "32", "--task", "jsonl", "--data", "mine.jsonl", "--n", "3",
             "--budget", "16", "--out", "t", "--json"]  # fmt: skip
    assert main(usual) == 2
    assert "1 of 3 prompts do not fit into the model, the first of item 'mine-00001'" in capsys.readouterr().err
    assert not Path("t").exists()
    assert main([*usual, "--skip-long"]) == 0
    assert json.loads(capsys.readouterr().out)["items"] == 2
    manifest = json.loads(Path("t/manifest.json").read_text())
    assert [(part["items"], part["skipped_long"]) for part in manifest["segments"]] == [(2, 1)]


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["run", "--model", "./nowhere"], "there is no model folder ./nowhere"),
        (["run", "--model", "tiny15m"], "no model 'tiny15m' in the box (did you mean tiny-15m?); available: tiny-1m"),
        (["run", "--model", "tiny-7b"], "there is no model 'tiny-7b' in the box; available: tiny-1m"),
        (["run", "--budgets", "0"], "budgets must be whole numbers of at least 1, separated by commas, got '0'"),
        (["run", "--budgets", "many"], "budgets must be whole numbers"),
        (["run", "--budgets", ""], "budgets must be whole numbers"),
        (["run", "--methods", ","], "at least one method is needed"),
        (["run", "--model", "tiny-1m", "--device", "foo"], "device must be cpu or cuda, got 'foo'"),
        (["run", "--model", "tiny-1m", "--budgets", "99999", "--n", "1"], "the model has 4096; take a smaller budget"),
        (["run", "--n", "0"], "--n: must be a whole number of at least 1, got 0"),
        (["run", "--model", "tiny-1m", "--bits", "7"], "bits must be one of"),
        (["run", "--model", ""], "--model: must not be empty"),
        (["record", "--out", ""], "--out: must not be empty"),
        (["replay", ""], "argument traces: must not be empty"),
        (["fit", "x", "--out", ""], "--out: must not be empty"),
        (["record", "--task", "", "--out", "x"], "--task: must not be empty"),
        (["audit", "--tokenizer", "", "x"], "--tokenizer: must not be empty"),
        (["run", "--config", ""], "--config: must not be empty"),
        (["record", "--url", "", "--out", "x"], "--url: must not be empty"),
        (["report", "nowhere"], "nowhere is not there"),
        (["report", __file__], "is a file: a folder is meant that bitcal run or replay wrote"),
        (["run", "--task", "gsm9k"], "unknown task 'gsm9k'"),
        (["run", "--temperature", "-1"], "temperature must be"),
        (["run", "--config", "missing.yaml"], "cannot read missing.yaml"),
        (["record", "--out", "x", "--budget", "0"], "--budget: must be a whole number of at least 1, got 0"),
        (
            ["record", "--out", "x", "--model", "tiny-1m", "--batch", "0"],
            "--batch: must be a whole number of at least 1, got 0",
        ),
        (
            ["record", "--out", "x", "--model", "tiny-1m", "--chunk-size", "0"],
            "--chunk-size: must be a whole number of at least 1, got 0",
        ),
        (
            ["record", "--out", "x", "--model", "tiny-1m", "--block", "-1"],
            "--block: must be a whole number of at least 1, got -1",
        ),
        (["run", "--conf", "c.yaml"], "there is no option --conf (did you mean --config?)"),
        (["import", "--label", "final", "x"], "there is no option --label; see bitcal import --help"),
        (["record"], "the following arguments are required: --out"),
        (["replay", "nowhere"], "nowhere is not a trace folder"),
        (["replay", "nowhere", "--chunk-size", "x"], "--chunk-size: must be a whole number of at least 1, got x"),
        (["run", "--methods", "settled"], "method 'settled' needs a profile"),
        (["run", "--methods", "fixd"], "unknown method 'fixd'"),
        (["fly"], "there is no command 'fly'"),
    ],
)
def test_bad_input_is_one_clear_line(
    tiny: str, capsys: pytest.CaptureFixture[str], argv: list[str], message: str
) -> None:
    assert message in fails(capsys, *argv)


def test_bad_methods_and_parameters(store: Any, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(store.folder)
    assert "unknown method 'eager'" in fails(capsys, "replay", folder, "--methods", "eager")
    assert "unknown parameter 'gama'" in fails(capsys, "replay", folder, "--set", "gama=2")
    assert "gamma must be above 0" in fails(capsys, "replay", folder, "--set", "gamma=0")
    assert "bits cannot be set" in fails(capsys, "replay", folder, "--set", "bits=3")
    assert "--chunk-size: must be a whole number of at least 1, got 0" in fails(
        capsys, "replay", folder, "--chunk-size", "0"
    )
    assert "tail must be true or false, got 'no'" in fails(capsys, "replay", folder, "--set", "tail=no")
    assert "--set takes NAME=VALUE" in fails(capsys, "replay", folder, "--set", "gamma")
    assert "a budget of 193 needs more" in fails(capsys, "replay", folder, "--budgets", "193", "--methods", "fixed")


def test_bad_config(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("modle: x\n")
    assert "c.yaml sets unknown options: modle" in fails(capsys, "run", "--config", "c.yaml")
    (tmp_path / "c.yaml").write_text("style: Thinking\n")
    assert "c.yaml: style must be one of instruct, thinking, got 'Thinking'" in fails(
        capsys, "run", "--config", "c.yaml"
    )
    (tmp_path / "c.yaml").write_text("budgets: []\n")
    assert "c.yaml: budgets: budgets must be whole numbers" in fails(capsys, "run", "--config", "c.yaml")
    for number, kind in (("port: here", "a whole number, got 'here'"), ("risk: [1]", "a number, got [1]")):
        (tmp_path / "c.yaml").write_text(number + "\n")
        assert f"c.yaml: {number.partition(':')[0]} must be {kind}" in fails(capsys, "serve", "--config", "c.yaml")
    for text, message in (
        ("temperature:", "temperature must not be empty: leave it out"),
        ("model: ''", "model must not be empty"),
        ("set: {tail: false}", "set must be a text, or a list of them"),
        ("task: [1]", "task must be a text"),
    ):
        (tmp_path / "c.yaml").write_text(text + "\n")
        assert f"c.yaml: {message}" in fails(capsys, "run", "--config", "c.yaml")
    (tmp_path / "c.yaml").write_text("a: [\n")
    assert "c.yaml is not YAML" in fails(capsys, "run", "--config", "c.yaml")


def test_an_unfinished_store_is_not_replayed(store: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "part").mkdir()
    (tmp_path / "part" / "manifest.json").write_text((store.folder / "manifest.json").read_text())
    assert "is not complete: 0 of 2 blocks" in fails(capsys, "replay", "part")


def test_the_unreachable_stop_is_noted_once(store: Any, capsys: pytest.CaptureFixture[str]) -> None:
    main(["replay", str(store.folder), "--min-tokens", "48", "--budgets", "64,128,192", "--full"])
    notes = [line for line in capsys.readouterr().err.splitlines() if line.startswith("note: ")]
    assert len(notes) == 1


def test_doctor(capsys: pytest.CaptureFixture[str]) -> None:
    found = json_of(capsys, "doctor")
    assert found["bits"] == [2, 3, 4, 5, 6, 8, 16, 32]
    assert main(["doctor"]) == 0
    assert "models in the box: tiny-1m" in capsys.readouterr().out


def test_ctrl_c_loses_nothing(tiny: str, tmp_path: Path) -> None:
    """Interrupted while recording: a friendly line, status 130, and the same command goes on."""
    import signal
    import time

    command = [sys.executable, "-m", "bitcal_tts.cli", "record", "--model", "tiny-1m", "--bits", "32", "--n", "200",
               "--batch", "4", "--block", "4", "--budget", "256", "--out", "t"]  # fmt: skip
    # A shell that runs the tests in the background ignores Ctrl-C, and so would what it starts.
    heed: Any = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, **heed)
    for _ in range(1800):
        if (tmp_path / "t" / "part-00001.parquet").exists():
            break
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    kept = 4 * len(list((tmp_path / "t").glob("part-*.parquet")))
    assert kept >= 8 and f"interrupted; {kept} of 200 items are kept; they are kept 4 at a time (--block)" in err
    assert "run the same command to go on" in err and "Traceback" not in err


def test_a_component_is_switched_off_as_python_spells_it(store: Any, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["replay", str(store.folder), "--methods", "bitcal_tts", "--min-tokens", "48", "--out", "o"]
    for spelling in ("tail=False", "tail=false"):
        json_of(capsys, *options, "--set", spelling)
        (parameters,) = json.loads(Path("o/summary.json").read_text())["parameters"]
        assert parameters["tail"] is False


def test_a_broken_checkpoint_is_one_line_and_loses_nothing(
    tiny: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    from safetensors.torch import load_file, save_file

    options = ["--model", "./broken", "--bits", "32", "--n", "4", "--batch", "4", "--budget", "16", "--out", "t"]
    shutil.copytree(tiny, "broken")
    assert main(["record", *options]) == 0
    before = sorted((p.name, p.stat().st_size) for p in Path("t").iterdir())
    weights = load_file("broken/model.safetensors")
    weights["model.norm.weight"][:] = float("nan")
    save_file(weights, "broken/model.safetensors", metadata={"format": "pt"})
    capsys.readouterr()
    assert "model_sha256 is" in fails(capsys, "record", *options)
    assert "NaN logits for item" in fails(capsys, "record", *options[:-1], "u")
    assert sorted((p.name, p.stat().st_size) for p in Path("t").iterdir()) == before


@pytest.mark.parametrize(
    ("task", "row"),
    [
        ("math", {"problem": "What is 1/2 + 1/3?", "answer": "\\frac{5}{6}"}),
        ("choice", {"question": "Which is even?", "choices": ["3", "4"], "answer": "4"}),
        ("code", {"question": "What does print([1] * 2) print?", "answer": "[1, 1]"}),
    ],
)
def test_the_whole_pipeline_works_past_gsm8k(
    tiny: str, capsys: pytest.CaptureFixture[str], task: str, row: dict[str, object]
) -> None:
    """The model in the box knows none of these; what is shown is that every step takes them."""
    asked = "problem" if "problem" in row else "question"
    items = [{**row, "id": str(i), asked: f"{i}. {row[asked]}"} for i in range(44)]
    Path("items.jsonl").write_text("\n".join(map(json.dumps, items)))
    model = ["--model", "tiny-1m", "--bits", "32", "--style", "thinking", "--task", task, "--data", "items.jsonl"]
    json_of(capsys, "record", *model, "--n", "44", "--batch", "44", "--budget", "64", "--probes", "--out", "t")
    rows = json_of(capsys, "replay", "t", "--methods", "fixed,complete,truncate", "--set", "threshold=16", "--out", "o")
    assert [r["method"] for r in rows["rows"]] == ["fixed", "complete", "truncate"]
    assert rows["rows"][0]["task"] == task
    told = json_of(capsys, "compare", "t", "--methods", "fixed,complete,deer,dynasor,truncate")
    assert {"fixed", "complete"} <= {r["method"] for r in told["rows"]}
    assert "no full run is right" in fails(capsys, "fit", "t", "--out", "p.json")


def test_a_file_is_recorded_whole_unless_told_otherwise(tiny: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("mine.jsonl").write_text("\n".join(json.dumps({"question": f"{i}+1?", "answer": i + 1}) for i in range(29)))
    argv = ["record", "--model", "tiny-1m", "--bits", "32", "--task", "jsonl", "--data", "mine.jsonl", "--budget", "8"]
    assert json_of(capsys, *argv, "--out", "t")["items"] == 29
    assert "jsonl has 29 items, 30 were asked for" in fails(capsys, *argv, "--n", "30", "--out", "u")


def test_how_a_model_is_served_is_recorded(tiny: str, capsys: pytest.CaptureFixture[str]) -> None:
    served = ["--temperature", "0.6", "--top-p", "0.95", "--top-k", "20", "--min-p", "0.01", "--system", "Be brief."]
    json_of(capsys, "record", *SMALL, *served, "--budget", "16", "--out", "t")
    identity = json.loads(Path("t/manifest.json").read_text())["identity"]
    assert identity["decoding"] == {"temperature": 0.6, "seed": 0, "top_p": 0.95, "top_k": 20, "min_p": 0.01}
    assert (identity["system"], identity["style"]) == ("Be brief.", "instruct")
    assert "top_p must be above 0" in fails(
        capsys, "record", *SMALL, "--temperature", "1", "--top-p", "0", "--out", "u"
    )
    assert main(["replay", "t", "--methods", "fixed"]) == 0
    assert "T=0.6, top-p 0.95, top-k 20, min-p 0.01" in " ".join(capsys.readouterr().out.split())


def test_a_style_that_the_template_does_not_have_is_refused(tiny: str, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(tiny, "plain")
    template = next(path for path in Path("plain").iterdir() if path.suffix == ".jinja")
    template.write_text("{% for m in messages %}{{ m['content'] }}\n{% endfor %}")
    # Its vocabulary has think markers, and nothing in the template closes them: it thinks, whatever is typed.
    said = fails(capsys, "record", *SMALL[2:], "--model", "./plain", "--style", "instruct", "--out", "t")
    assert "--style instruct was asked for, but ./plain is rendered as thinking" in said


def test_what_is_known_cannot_be_declared_otherwise(store: Any, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(store.folder)
    assert "bits is 32 here, which was read" in fails(capsys, "replay", folder, "--declare", "bits=4")
    assert "'mood' cannot be declared" in fails(capsys, "replay", folder, "--declare", "mood=good")
    assert "--declare takes NAME=VALUE" in fails(capsys, "replay", folder, "--declare", "bits")


def test_record_and_replay_from_the_top(tiny: str) -> None:
    store = bitcal_tts.record("tiny-1m", "t", n=3, budget=24, batch_size=3)
    assert store.description["bits"] == 16
    done = bitcal_tts.replay("t", bitcal_tts.build_method("complete", bits=16, budget=24))
    assert [o.item for o in done] == [t.item.id for t in store.read()]
    assert bitcal_tts.replay(store, bitcal_tts.build_method("fixed", bits=16, budget=10))[0].tokens == 10
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = bitcal_tts.nothing


def test_without_a_command_a_newcomer_is_told_what_to_type(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    told = capsys.readouterr().out
    assert "bitcal run" in told and "bitcal audit LOGS.jsonl" in told and "bitcal --help" in told
    assert all(len(line) <= 80 for line in told.splitlines())


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (["replya"], "bitcal: there is no command 'replya' (did you mean replay?); see bitcal --help"),
        (["xyzzy"], "bitcal: there is no command 'xyzzy'; see bitcal --help"),
        (
            ["replay", "t", "--budgt", "3"],
            "bitcal replay: there is no option --budgt (did you mean --budgets?); see bitcal replay --help",
        ),
        (["replay", "a", "b"], "bitcal replay: takes no more arguments: b is too much; see bitcal replay --help"),
        (
            ["record", "--task", "storys", "--out", "t"],
            "bitcal: unknown task 'storys' (did you mean stories?)",
        ),
        (["run", "--methods", "setled"], "bitcal: unknown method 'setled' (did you mean settled?); available"),
        (["record", "--answers", "gsm8", "--out", "t"], "bitcal: unknown answer format 'gsm8' (did you mean gsm8k?)"),
    ],
)
def test_what_was_misspelt_is_named_with_what_was_meant(
    argv: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fails(capsys, *argv).startswith(told)


def test_a_replay_fits_eighty_columns_and_says_the_verdict_first(tiny: str, capsys: pytest.CaptureFixture[str]) -> None:
    json_of(capsys, "record", *SMALL, "--budget", "96", "--out", "traces")
    assert main(["replay", "traces", "--budgets", "64,96"]) == 0
    told = capsys.readouterr()
    lines = told.out.splitlines()
    assert lines[0].startswith("Decoded to the end or the budget, ")  # nearly all of them are cut off there
    assert all(len(line) <= 80 for line in lines)
    assert "premature" not in told.out and "lost %" in told.out
    assert "note: " not in told.err
    assert main(["replay", "traces", "--budgets", "64,96", "--full"]) == 0
    full = capsys.readouterr()
    assert "premature %" in full.out and "McNemar" in full.out
    assert full.err.count("note: the confidence stop") == 1  # of two methods that it holds for


@pytest.mark.parametrize(
    "command", [["record", "--model", "no-such-model"], ["audit", "no.jsonl"], ["fit", "no-traces"]]
)
def test_a_place_that_cannot_be_written_to_is_named_before_the_work(
    command: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Before a model is loaded or a file read: those that are named here do not even exist."""
    for place in ("/proc/nowhere/out", str(tmp_path / "file" / "out")):
        (tmp_path / "file").write_text("")
        assert main([*command, "--out", place]) == 2
        told = capsys.readouterr().err
        assert f"nothing can be written to {place}" in told and "choose another --out" in told
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file"]


def test_a_full_disk_is_named_before_the_work(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """On a real file system that holds less than a megabyte."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)], capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        assert main(["record", "--model", "no-such-model", "--out", str(disk / "out")]) == 2
    finally:
        subprocess.run(["umount", str(disk)], check=True)
    told = capsys.readouterr().err
    assert "No space left on device" in told and "choose another --out" in told and "no-such-model" not in told


def test_what_an_engine_warns_of_is_shown_once(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def warns(args: Any) -> None:
        for _ in range(2):
            warnings.warn("it runs kernel by kernel", CaptureWarning, stacklevel=1)

    monkeypatch.setattr("bitcal_tts.commands.doctor.run", warns)
    assert main(["doctor"]) == 0
    assert capsys.readouterr().err == "warning: it runs kernel by kernel\n"


def said_of_probing(told: str) -> list[str]:
    """How far it was, each once; that it has not begun is said as long as that is so."""
    lines = dict.fromkeys(line.partition(",")[0] for line in told.splitlines() if line.startswith("probing"))
    return [line for line in lines if ": 0 of" not in line]


def test_probing_is_counted_too(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bitcal_tts.commands.progress._EVERY", 0.0)
    recorded = ["record", "--model", "tiny-1m", "--task", SHORT, "--style", "thinking", "--n", "3", "--batch", "3"]
    recorded += ["--budget", "48", "--probes", "16", "--out", str(tmp_path / "traces")]
    assert main(recorded) == 0
    probing = said_of_probing(capsys.readouterr().err)
    assert probing == ["probing: 1 of 3 (33 %)", "probing: 2 of 3 (66 %)", "probing: 3 of 3 (100 %)"]
    assert main(recorded) == 0  # all is there, and is counted
    told = capsys.readouterr()
    assert "(3 of them were there already)" in told.out
    assert said_of_probing(told.err) == ["probing: 3 of 3 (100 %)"]
    assert main([*recorded, "--n", "2"]) == 0  # what is there stays, and nothing is counted past its end
    assert said_of_probing(capsys.readouterr().err) == ["probing: 3 of 3 (100 %)"]


def test_the_rest_is_told_for_recording_and_probing_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two kinds of work take turns: neither alone says how long both will take."""
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    remaining = progress_module._Remaining(200)
    remaining.advance(40)  # they were there already
    assert str(remaining) == "-:--:--"
    now = 12.0
    remaining.advance(10)
    assert str(remaining) == "-:--:--"  # ten of two hundred are those that were over first
    now = 22.0
    remaining.advance(10)
    assert str(remaining) == "0:02:20"  # 20 in 20 seconds, and 140 are left
    remaining.advance(140)
    assert str(remaining) == "0:00:00"


def test_a_terminal_may_echo_two_characters_behind_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("LINES", "24")
    assert progress_module._console().size == (78, 24)


def test_a_comparison_does_not_leave_out_the_profile_it_was_given(
    probed: Any, store: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    profile = str(tmp_path / "profile.json")
    assert main(["fit", str(probed.folder), "--risk", "0.3", "--confidence", "0.8", "--out", profile, "--json"]) == 0
    capsys.readouterr()
    assert main(["compare", str(store.folder), "--profile", profile, "--force"]) == 2
    said = capsys.readouterr().err
    assert "nothing can be known of what --profile does here: the same record with --probes adds them" in said


def test_a_fit_tells_that_nothing_is_saved_and_what_did_not_pass(
    probed: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    asked = ["--confidence", "0.8", "--out"]
    assert main(["fit", str(probed.folder), "--risk", "0.3", *asked, str(tmp_path / "a.json")]) == 0
    told = capsys.readouterr()
    assert "saves nothing" not in told.err and "in brackets" not in told.out
    assert main(["fit", str(probed.folder), "--risk", "0.01", *asked, str(tmp_path / "b.json")]) == 0
    told = capsys.readouterr()
    assert "in brackets: at the strictest threshold that was tried" in told.out and "saves nothing" not in told.err
    profile = load_profile(tmp_path / "a.json")
    (evidence,) = profile.evidence.values()
    for start, words in ((True, "a scorer of its own (without --from)"), (False, "a larger --risk may")):
        poor = replace(profile, evidence={"32": {**evidence, "tokens": 0.996 * evidence["full_tokens"]}})
        _show(poor, tmp_path / "a.json", start=start)
        said = " ".join(capsys.readouterr().err.split())
        assert "it saves nothing to speak of" in said and words in said


def test_a_fit_tells_that_full_runs_are_cut_off(
    probed: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    told = {}
    for budget in ("320", "160"):
        asked = ["--risk", "0.3", "--confidence", "0.8", "--budget", budget, "--out", str(tmp_path / f"{budget}.json")]
        assert main(["fit", str(probed.folder), *asked]) == 0
        told[budget] = " ".join(capsys.readouterr().err.split())
    (evidence,) = json.loads((tmp_path / "160.json").read_text())["evidence"].values()
    reach = [len(trace) >= 160 for trace in probed.read()]
    assert 0.2 < sum(reach) / len(reach) - 0.2 < evidence["cut_off_rate"] < sum(reach) / len(reach) + 0.2
    words = f"{100 * evidence['cut_off_rate']:.0f} % of these full runs are cut off at the budget of 160"
    assert words in told["160"] and "cut off" not in told["320"]


def test_a_profile_is_replayed_at_the_budget_it_was_fitted_for(
    probed: Any, store: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    profile = str(tmp_path / "p.json")
    fitted = ["--risk", "0.3", "--confidence", "0.8", "--budget", "160", "--out", profile, "--json"]
    assert main(["fit", str(probed.folder), *fitted]) == 0
    replay = ["replay", str(probed.folder), "--methods", "fixed,settled", "--profile", profile, "--json"]
    assert main([*replay, "--out", str(tmp_path / "a")]) == 0
    told = capsys.readouterr()
    assert f"note: at 160 tokens, the budget that {profile} was fitted for; --budgets 320 is all of it" in told.err
    assert {row["budget"] for row in json.loads(told.out.splitlines()[-1])["rows"]} == {160}
    assert main([*replay, "--budgets", "320", "--out", str(tmp_path / "b")]) == 2
    assert "fitted for budget 160, this is 320" in capsys.readouterr().err
    assert main(["fit", str(probed.folder), *fitted[:4], "--out", profile, "--overwrite", "--json"]) == 0
    assert load_profile(Path(profile)).identity["budget"] == 320
    shorter = open_recording(store.folder, quiet=True)
    assert budgets_of(None, Path(profile), shorter) == [192]  # no further than it was recorded


def test_items_that_a_profile_was_certified_on_prove_nothing(
    probed: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    profile = str(tmp_path / "profile.json")
    assert main(["fit", str(probed.folder), "--risk", "0.3", "--confidence", "0.8", "--out", profile, "--json"]) == 0
    capsys.readouterr()
    told = ["--profile", profile, "--methods", "settled", "--out", str(tmp_path / "out"), "--json"]
    assert main(["replay", str(probed.folder), *told]) == 0
    said = capsys.readouterr().err
    n = len(probed.read())
    fitted = next(int(line.split()[6]) for line in said.splitlines() if "was fitted on" in line)
    certified = next(int(line.split()[6]) for line in said.splitlines() if "was certified on" in line)
    assert fitted + certified == n and certified > 0


def test_what_is_misspelt_is_named_before_what_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["record", "--oput", "x"])
    assert "there is no option --oput (did you mean --out?)" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        main(["--versoin"])
    assert "bitcal: there is no option --versoin (did you mean --version?)" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="0"):
        main(["help"])
    assert "commands:" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="0"):
        main(["help", "report"])
    assert "usage: bitcal report" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [[], ["--help"], ["doctor"]])
def test_whoever_reads_a_part_of_the_output_sees_no_traceback(arguments: list[str]) -> None:
    command = [sys.executable, "-u", "-m", "bitcal_tts", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""


def test_long_silences_are_broken(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing is finished for long, and there is no terminal to draw a bar on."""
    monkeypatch.setattr(progress_module, "_EVERY", 0.0)
    with progress_module.progress("working", 3, quiet=False):
        time.sleep(1.5)
    assert "working: 0 of 3 (0 %), 1 s" in capsys.readouterr().err


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Texts that nobody recorded signals of."""
    path = tmp_path / "log.jsonl"
    text = "<think>3 and 4 make 7. So the answer is 7. Let me check: 3 + 4 = 7. Yes.</think>\n#### 7"
    lines = [json.dumps({"question": f"What is 3 + 4, {i}?", "response": text, "answer": "7"}) for i in range(50)]
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def test_where_no_answer_is_known_a_text_is_right_as_it_ends(
    log: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Not wrong: what nobody knows is not nought."""
    records = [{"question": f"What is 3 + 4, {i}?", "response": f"It is {7 + (i == 0) * 2}.\n#### {7 + (i == 0) * 2}\n"
                "Let me check that once more: 3 + 4 = 7.\n#### 7"} for i in range(50)]  # fmt: skip
    log.write_text("\n".join(map(json.dumps, records)))
    folder = str(tmp_path / "traces")
    assert main(["import", str(log), "--bits", "4", "--answers", "gsm8k", "--out", folder]) == 0
    said = capsys.readouterr().out
    few = "import 90 texts or more, for fewer certify no promise of 5 %"
    assert f"{few}; then bitcal fit {folder} --label final --risk 0.05" in said and ", 4 bits)" in said
    assert main(["import", str(log), "--answers", "gsm8k", "--out", folder + "-16"]) == 0
    assert "16 bits, for nobody said otherwise: --bits)" in capsys.readouterr().out
    assert main(["replay", folder, "--methods", "fixed,complete"]) == 0
    told = capsys.readouterr()
    assert "note: 50 of 50 items have no gold answer: right is what their full text ends with, if with any" in told.err
    said = " ".join(told.out.split())
    assert "Decoded to the end, 100.0 % are right" in said and "right: as the full text ends" in said
    assert main(["replay", folder, "--methods", "fixed,complete", "--json"]) == 0
    fixed, complete = json.loads(capsys.readouterr().out)["rows"]
    assert fixed["accuracy"] == 1.0 and fixed["lost_correct_rate"] == 0.0
    assert complete["savings"] > 0 and complete["lost_correct_rate"] == 1 / 50
    profile = str(tmp_path / "p.json")
    assert main(["fit", folder, "--risk", "0.3", "--confidence", "0.8", "--out", profile]) == 2  # gold is not known
    assert "these texts have no gold answers: --label final counts" in capsys.readouterr().err
    started = ["--from", "starter", "--risk", "0.3", "--confidence", "0.8", "--out", profile]
    assert main(["fit", folder, *started]) == 2
    assert "with a scorer of its own (without --from and --profile)" in capsys.readouterr().err
    assert main(["explain", folder, "3", "--json"]) == 0
    explained = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert explained["answer"] == "7" and not explained["gold"]
    assert main(["explain", folder, "3"]) == 0
    said = capsys.readouterr().out
    assert "no gold answer; its text ends with 7" in said and ", gold answer" not in said
    complete = bitcal_tts.build_method("complete", bits=4, budget=64)
    assert [o.lost for o in bitcal_tts.replay(folder, complete)].count(True) == 1  # as the command has it


def test_no_text_of_a_log_is_lost_and_none_stands_for_another(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    records = [
        {"question": f"What is 3 + {i % 4}?", "response": f"#### {i % 4 + 3}\nSure.", "answer": str(i % 4 + 3),
         "problem_id": f"p{i % 4}"}
        for i in range(12)
    ]  # fmt: skip
    logs = [tmp_path / name / "log.jsonl" for name in ("one", "two")]
    for log, part in zip(logs, (records[:8], records), strict=True):
        log.parent.mkdir()
        log.write_text("\n".join(map(json.dumps, part)))
    folder = str(tmp_path / "t")
    assert main(["import", *map(str, logs), "--out", folder]) == 2
    assert f"would both go to {folder}/log: import them one by one" in capsys.readouterr().err
    assert main(["import", str(logs[0]), "--bits", "4", "--out", folder, "--json"]) == 0
    assert main(["import", str(logs[1]), "--bits", "4", "--out", folder, "--json"]) == 2  # the log has grown
    assert "texts_sha256" in capsys.readouterr().err
    ids = [trace.item.id for trace in TraceStore.open(Path(folder)).read()]
    assert ids == ["p0", "p1", "p2", "p3", "p0#2", "p1#2", "p2#2", "p3#2"]
    assert main(["replay", folder, "--methods", "fixed,complete", "--json"]) == 0
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert told["comparisons"][0]["n"] == told["rows"][0]["n"] == 8


def test_a_starter_is_named_where_it_has_not_met_most_of_the_questions() -> None:
    from bitcal_tts.calibration.starters import load_starter

    starter = load_starter("numbers")
    assert starter is not None
    met = starter.whole.fitted["questions"][:4]
    assert starter.is_new_to(["new"])
    assert starter.is_new_to([met[0], "one", "two"])
    assert not starter.is_new_to([*met, "one", "two"])


@pytest.mark.parametrize(
    ("n", "step"),
    [
        (89, "the same command with --n 90 or more: fewer certify no promise of 5 %"),
        (200, "bitcal fit here --risk 0.05 --out profile.json"),
        (228, "bitcal fit here --risk 0.02 --out profile.json"),
        (460, "bitcal fit here --risk 0.01 --out profile.json"),
    ],
)
def test_a_recording_suggests_what_it_can_certify(n: int, step: str) -> None:
    store = SimpleNamespace(
        manifest=SimpleNamespace(n=n), description={"split": "calibration", "probes": {"every": 16}}
    )
    assert next_step(store, Path("here")) == step


@pytest.mark.parametrize(("slots", "block", "kept"), [(4, None, 25), (8, None, 32), (1000, None, 100), (8, 7, 7)])
def test_a_server_with_few_slots_keeps_few_items_at_a_time(slots: int, block: int | None, kept: int) -> None:
    args = argparse.Namespace(block=block, batch=100)
    server = SimpleNamespace(at_once=lambda asked: min(asked, slots))
    assert _block(args, server, few_together=True) == kept


def test_a_processor_keeps_fewer_items_at_a_time_than_it_decodes(tmp_path: Path) -> None:
    options = ["--model", "tiny-1m", "--budget", "8", "--json"]
    assert main(["record", *options, "--n", "30", "--out", str(tmp_path / "a")]) == 0
    assert main(["record", *options, "--n", "30", "--block", "30", "--out", str(tmp_path / "b")]) == 0
    assert [len(list((tmp_path / name).glob("part-*.parquet"))) for name in "ab"] == [2, 1]


def test_a_log_is_replayed_with_what_can_be_known_of_it(
    log: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder = str(tmp_path / "traces")
    assert main(["import", str(log), "--bits", "4", "--out", folder]) == 0
    assert "next: bitcal fit" in capsys.readouterr().out
    few = tmp_path / "few.jsonl"
    few.write_text("\n".join(log.read_text().splitlines()[:20]))
    assert main(["import", str(few), "--bits", "4", "--out", str(tmp_path / "few")]) == 0
    said = capsys.readouterr().out
    assert f"next: with a profile already: bitcal replay {tmp_path / 'few'}" in said
    assert "import 50 texts or more, for fewer certify no promise of 5 %; then bitcal fit" in said
    assert main(["replay", folder, "--json"]) == 0
    told = capsys.readouterr()
    assert "adaptive and bitcal_tts cannot be replayed: left out" in told.err
    assert [row["method"] for row in json.loads(told.out)["rows"]] == ["fixed", "complete"]
    assert main(["explain", folder, "3"]) == 0
    capsys.readouterr()
    assert main(["fit", folder, "--from", "starter", "--risk", "0.01", "--out", str(tmp_path / "profile.json")]) == 0
    assert "next: more texts in the log; import and fit them again" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["replay", "LOG"], "log.jsonl is a file, not a trace folder: bitcal import makes one of a log"),
        (["serve", "--demo", "--port", "99999"], "--port must be 1 to 65535, got 99999"),
        (["serve", "--demo", "--port", "8199", "--method", "compleet"], "did you mean complete"),
        (["serve", "--demo", "--port", "8199", "--risk", "5"], "--risk must lie above 0 and below 1, got 5"),
        (["import", "LOG", "--bits", "77", "--out", "t"], "--bits must be above 0 and at most 32, got 77"),
        (["audit", "LOG", "--tokenizer", "no.json"], "there is no tokenizer no.json; give a tokenizer.json"),
    ],
)
def test_what_cannot_be_is_named_at_once(
    log: Path, command: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(log) if part == "LOG" else part for part in command]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    "command",
    ["audit LOG", "compare x", "import LOG", "record --n 1", "replay x", "report x", "run --n 1", "signals x"],
)
def test_a_file_where_a_folder_is_meant_is_named_before_the_work(
    log: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main([*command.replace("LOG", str(log)).split(), "--out", str(log)])
    assert f"argument --out: {log} is a file: a folder is meant" in capsys.readouterr().err


@pytest.mark.parametrize(
    "command", ["fit x", "cascade x y --profile z", "export tiny-1m --gguf F16", "lm-eval --data x"]
)
def test_a_folder_where_a_file_is_meant_is_named_before_the_work(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main([*command.split(), "--out", str(tmp_path)])
    assert f"argument --out: {tmp_path} is a folder: a file is meant" in capsys.readouterr().err


def test_a_port_that_is_taken_is_named_before_a_model_is_loaded(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        command = ["serve", "--upstream", "http://127.0.0.1:9", "--port", str(port)]
        assert main(command) == 2
        assert f"nobody can listen at 127.0.0.1:{port} (Address already in use): choose" in capsys.readouterr().err
        assert main([*command, "--declare", "nonsense"]) == 2  # what is wrong in the command goes first
    assert "--declare takes NAME=VALUE, got 'nonsense'" in capsys.readouterr().err


def test_the_default_config_is_what_run_does_without_arguments(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    small = ["--model", "tiny-1m", "--n", "4", "--budgets", "64", "--out", "same", "--json"]
    folders = []
    for config in ([], ["--config", str(Path(bitcal_tts.__file__).parents[2] / "configs" / "default.yaml")]):
        assert main(["run", *config, *small]) == 0
        folders.append(json.loads(capsys.readouterr().out)["folder"])
    assert folders == ["same", "same"]  # other results would have a place of their own


def test_landed_on_a_thinking_model_is_given_its_probes(capsys: pytest.CaptureFixture[str]) -> None:
    thinks = ["run", "--model", "tiny-1m", "--style", "thinking", "--n", "3", "--budgets", "96", "--out", "run"]
    told = json_of(capsys, *thinks, "--methods", "landed,complete")
    assert [row["method"] for row in told["rows"]] == ["landed", "complete"]


def test_the_verdict_measures_against_what_it_names() -> None:
    """Tokens are saved of the baseline's, and what keeps the accuracy goes before what saves more."""
    rows = [
        {"method": name, "budget": 512, "n": 40, "accuracy": accuracy, "avg_tokens": tokens, "lost_correct_rate": 0.0}
        for name, accuracy, tokens in [("landed", 0.5, 480.0), ("adaptive", 0.3, 300.0), ("complete", 0.5, 360.0)]
    ]  # fmt: skip
    tests = [
        {"method": name, "against": "landed", "budget": 512, "difference": difference, "verdict": "not resolved",
         "p_corrected": 1.0}
        for name, difference in [("adaptive", -0.2), ("complete", 0.0)]
    ]  # fmt: skip
    assert "complete saves 25.0 % of them" in verdict(rows, tests)
    assert "adaptive saves 37.5 % of them" in verdict(rows[:2], tests)


def test_a_comparison_that_is_lost_is_told_with_its_interval_and_what_saves_most() -> None:
    def row(method: str, savings: float, lost: float = 0.0) -> dict[str, Any]:
        return {"method": method, "target": 0.01, "certified": False, "savings": savings, "lost_correct_rate": lost}

    rows = [row("settled", 0.315), row("cusum", 0.388), row("complete", 0.416)]
    tests: dict[str, Any] = {
        "target": 0.01,
        "best_other": "cusum",
        "tokens": [
            {"method": "settled", "against": "cusum", "fewer_tokens": {"value": -0.119, "low": -0.34, "high": 0.052}}
        ],
        "accuracy": [{"against": "cusum", "difference": 0.0, "verdict": "not resolved", "p_corrected": 1.0}],
    }
    told = compared._verdict(rows, tests)
    assert "cusum, 38.8 %. settled needs 11.9 % more tokens than cusum [-5.2, 34.0]; its accuracy" in told
    assert "--profile" not in told
    alone = {**tests, "tokens": [{**tests["tokens"][0], "method": "complete"}]}
    assert compared._verdict(rows, alone).startswith("settled is compared where --profile names its profile. With at")
    assert told.endswith("complete, which waits until the answer is written out, saves 41.6 % and loses 0.0 %.")
    tests["tokens"][0]["fewer_tokens"] = {"value": 0.005, "low": -0.035, "high": 0.043}
    told = compared._verdict([*rows[:2], row("complete", 0.2)], tests)
    assert "0.5 % fewer tokens than cusum [-3.5, 4.3]" in told and "complete" not in told


def test_the_best_other_rule_is_any_that_saves_most_and_loses_so_little() -> None:
    def points(cost: float, lost: float = 0.0, threshold: float | None = 0.5) -> list[Point]:
        found = [
            Outcome(
                item=str(i), method="", bits=4, budget=512, tokens=int(cost), probe_tokens=0, finish="halted",
                reason="", answer="7", correct=True, full_correct=True, full_tokens=100,
            )
            for i in range(10)
        ]  # fmt: skip
        return [Point(threshold, cost, cost, lost, 1.0, lambda: found)]

    known = {"settled": points(60), "landed": points(100, threshold=None), "oracle": points(10)}
    complete, waits = points(50, threshold=None), points(100, threshold=None)
    assert _tests({**known, "complete": complete, "deer": points(70)}, 0.01)["best_other"] == "complete"
    assert _tests({**known, "complete": complete, "deer": points(40)}, 0.01)["best_other"] == "deer"
    assert _tests({**known, "complete": complete, "deer": points(40, lost=0.1)}, 0.01)["best_other"] == "complete"
    assert _tests({**known, "complete": waits, "deer": points(100)}, 0.01)["best_other"] is None  # neither saves any
    against = [test["against"] for test in _tests({**known, "complete": complete}, 0.01)["tokens"]]
    assert against == ["landed", "complete"]  # once, though it is the best other rule as well


def test_logs_of_one_model_can_be_given_its_name(log: Path, tmp_path: Path) -> None:
    folder = tmp_path / "traces"
    assert main(["import", str(log), "--model-name", "my-model", "--bits", "4", "--out", str(folder), "--json"]) == 0
    assert TraceStore.open(folder).identity["model"] == "my-model"


@pytest.mark.parametrize("command", COMMANDS)
def test_help_is_no_wider_than_the_terminal(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        main([command, "--help"])
    told = capsys.readouterr().out
    assert max(map(len, told.splitlines())) <= 80
    if "example:" in told:  # what goes on in the next line is one command again
        commands = told.partition("example:")[2].replace("\\\n     ", "")
        assert commands.count("\n  bitcal ") >= 1 and "\0" not in commands


def test_who_watches_a_log_is_told_that_all_is_done(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with progress("working", 3, quiet=False) as advance:
        monkeypatch.setattr(progress_module, "_EVERY", 0.0)
        advance(1)
        monkeypatch.setattr(progress_module, "_EVERY", 1e9)
        advance(2)
    assert [line.partition(",")[0] for line in capsys.readouterr().err.splitlines()] == [
        "working", "working: 1 of 3 (33 %)", "working: 3 of 3 (100 %)",
    ]  # fmt: skip
    with progress("working", 3, quiet=False) as advance:
        advance(3)
    assert capsys.readouterr().err == "working\n"  # nobody has waited for that
