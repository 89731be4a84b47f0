"""Replay anywhere: an environment that holds an extra's packages and nothing else runs the commands it is for."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from environments import environment

from bitcal_tts.cli import COMMANDS
from bitcal_tts.commands.doctor import EXTRAS

HEAVY = ("torch", "transformers", "tokenizers", "bitsandbytes", "reasoning_gym", "safetensors", "huggingface_hub")


def run(python: Path, *argv: str) -> str:
    """Run a command of the program there; what it prints."""
    done = subprocess.run(
        [str(python), "-I", "-m", "bitcal_tts.cli", *argv], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return environment(tmp_path_factory.mktemp("traces-only") / "venv", ["traces"])


@pytest.fixture(scope="module")
def stories(thinking_engine: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording whose answers are scored without the package that makes up problems."""
    from bitcal_tts.engines.base import Decoding
    from bitcal_tts.tasks import load_task
    from bitcal_tts.traces.record import record

    folder = tmp_path_factory.mktemp("stories") / "traces"
    options: dict[str, Any] = {"n": 40, "budget": 1024, "batch_size": 40, "probes": 16}
    return record(thinking_engine, load_task("stories"), folder, decoding=Decoding(0.6), **options).folder


def test_nothing_heavy_is_there(small: Path) -> None:
    code = f"import importlib.util as u; print([n for n in {(*HEAVY, 'sklearn', 'matplotlib')!r} if u.find_spec(n)])"
    assert subprocess.run([str(small), "-I", "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


def test_replay_compare_explain_and_import_with_the_traces_extra_alone(
    small: Path, stories: Path, tmp_path: Path, released: list[dict[str, Any]], shared: Path
) -> None:
    folder = str(stories)
    assert "complete" in run(small, "replay", folder, "--out", str(tmp_path / "o"))
    assert (tmp_path / "o" / "outcomes.parquet").exists()
    assert "dynasor" in run(small, "compare", folder)
    assert "gold answer" in run(small, "explain", folder, "0")
    record = str(sorted((shared / "released_results").glob("exp_*.jsonl"))[0])
    assert "released records" in run(small, "import", record)
    assert "weight precisions here: none" in run(small, "doctor")
    told = run(small, "compare", folder, "--methods", "fixed,stated", "--out", str(tmp_path / "c"))
    assert (tmp_path / "c" / "compare.json").exists() and "for the figure: pip install '.[report]'" in told
    assert not (tmp_path / "c" / "frontier.png").exists()
    assert "replay" in run(small, "completion", "bash")  # of the commands that can run


def test_what_an_audit_lacks_is_said_before_it_reads(small: Path, tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.write_text("\n".join([json.dumps({"question": "1 + 1?", "response": "#### 2", "answer": "2"})] * 3))
    done = subprocess.run(
        [str(small), "-I", "-m", "bitcal_tts.cli", "audit", str(log)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2 and "this needs the package lightgbm" in done.stderr and "reading" not in done.stderr


def test_fit_and_report_with_their_extras(
    stories: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    python = environment(tmp_path_factory.mktemp("more") / "venv", ["traces", "fit", "report"])
    folder, profile, out = str(stories), str(tmp_path / "p.json"), str(tmp_path / "o")
    told = run(python, "fit", folder, "--risk", "0.3", "--confidence", "0.8", "--out", profile)
    assert "profile: " in told and "bitcal replay TRACES" in told
    assert "settled" in run(python, "replay", folder, "--profile", profile, "--out", out)
    assert "report.html" in run(python, "report", out)
    code = "import sys, bitcal_tts.commands.report, bitcal_tts.commands.fit; print('torch' in sys.modules)"
    assert subprocess.run([str(python), "-I", "-c", code], capture_output=True, text=True).stdout.strip() == "False"


def test_what_is_missing_is_named_with_all_that_the_command_needs(small: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [str(small), "-I", "-m", "bitcal_tts.cli", "record", "--model", "tiny-1m", "--out", str(tmp_path / "t")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert "this needs the package" in done.stderr and "bitcal doctor" in done.stderr
    assert "pip install '.[traces,tasks,transformers]'" in done.stderr


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return environment(tmp_path_factory.mktemp("bare") / "venv", [])


@pytest.mark.parametrize("command", COMMANDS)
def test_where_nothing_is_installed_help_says_what_a_command_is_or_what_it_needs(bare: Path, command: str) -> None:
    told = run(bare, command, "--help")
    needs = COMMANDS[command] in told and f"pip install '.[{EXTRAS.get(command, 'traces')}]'" in told
    assert needs or "example:" in told


@pytest.mark.parametrize("extras", sorted({*EXTRAS.values(), "traces"} - {"traces,tasks,transformers,lm-eval"}))
def test_the_extras_that_are_named_for_a_command_are_enough_for_its_options(
    extras: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    python = environment(tmp_path_factory.mktemp("named") / "venv", extras.split(","))
    for command in COMMANDS:
        if EXTRAS.get(command, "traces") == extras:
            assert "example:" in run(python, command, "--help")
