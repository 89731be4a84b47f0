"""The first thing a real user types is a hub id: model, data set, cache, offline, misspelt, end to end."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bitcal_tts.engines.checkpoint import load_checkpoint
from bitcal_tts.engines.llama_server import free_port
from bitcal_tts.tasks import load_task
from bitcal_tts.traces.store import TraceStore


def bitcal(env: dict[str, str], *argv: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bitcal_tts.cli", *argv]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, check=False)


def one_line(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 2 and "Traceback" not in done.stderr, done.stderr
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("bitcal")]
    return line


@pytest.fixture
def gsm8k(tmp_path: Path) -> Path:
    """A data set laid out as openai/gsm8k is."""
    folder = tmp_path / "gsm8k"
    (folder / "main").mkdir(parents=True)
    items = load_task().items(5, seed=4)
    rows = {
        "question": [item.question for item in items],
        "answer": [f"Some work.\n#### {item.answer}" for item in items],
    }
    pq.write_table(pa.table(rows), folder / "main" / "test-00000-of-00001.parquet")
    (folder / "README.md").write_text(
        "---\nconfigs:\n- config_name: main\n  data_files:\n  - split: test\n    path: main/test-*\n---\n# GSM8K\n"
    )
    return folder


USUAL = ["--bits", "32", "--n", "3", "--batch", "3", "--budget", "24"]


def test_a_model_and_a_data_set_by_their_ids(
    hub: Any, hub_environment: dict[str, str], tiny: str, gsm8k: Path, tmp_path: Path
) -> None:
    hub.repositories = {("model", "someone/tiny"): Path(tiny), ("dataset", "openai/gsm8k"): gsm8k}
    argv = ["record", "--model", "someone/tiny", "--task", "gsm8k", *USUAL]
    done = bitcal(hub_environment, *argv, "--out", "first")
    assert done.returncode == 0, done.stderr
    first = TraceStore.open(tmp_path / "first")
    about = first.description
    assert (about["model"], about["task"], about["source"], about["style"]) == (
        "someone/tiny", "gsm8k", "openai/gsm8k", "instruct",
    )  # fmt: skip
    assert len(about["model_sha256"]) == 64
    assert [t.item.answer for t in first.read()] == [item.answer for item in load_task().items(3, seed=4)]
    assert any("resolve/main/config.json" in line for line in hub.asked)
    # Once more from the cache, with no hub to be seen.
    hub.close()
    offline = {**hub_environment, "HF_HUB_OFFLINE": "1"}
    done = bitcal(offline, *argv, "--out", "second")
    assert done.returncode == 0, done.stderr
    second = TraceStore.open(tmp_path / "second")
    assert second.identity == first.identity
    assert [t.text for t in second.read()] == [t.text for t in first.read()]


def test_a_quantized_model_by_its_id(hub: Any, hub_environment: dict[str, str], tiny: str, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig

    folder = tmp_path / "published"
    shutil.copytree(tiny, folder, ignore=shutil.ignore_patterns("*.safetensors", "config.json"))
    config = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4")
    AutoModelForCausalLM.from_pretrained(tiny, quantization_config=config).save_pretrained(folder)
    hub.repositories = {("model", "someone/tiny-bnb-4bit"): folder}
    argv = ["record", "--model", "someone/tiny-bnb-4bit", *USUAL[2:], "--json"]
    done = bitcal(hub_environment, *argv, "--out", "t")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["items"] == 3
    assert TraceStore.open(tmp_path / "t").description["scheme"] == "bitsandbytes nf4"
    assert load_checkpoint(str(folder)).bits == 4


def test_what_is_misspelt_or_out_of_reach_is_one_clear_line(
    hub: Any, hub_environment: dict[str, str], tiny: str, tmp_path: Path
) -> None:
    hub.repositories = {("model", "someone/tiny"): Path(tiny)}
    wrong = one_line(bitcal(hub_environment, "record", "--model", "someone/tinny", *USUAL, "--out", "t"))
    assert "cannot load someone/tinny" in wrong and "not a valid model identifier" in wrong
    missing = one_line(
        bitcal(hub_environment, "record", "--model", "someone/tiny", "--task", "gsm8k", *USUAL, "--out", "t")
    )
    assert "cannot load openai/gsm8k (test)" in missing and "--data FILE.jsonl" in missing
    offline = {**hub_environment, "HF_HUB_OFFLINE": "1"}
    absent = one_line(bitcal(offline, "record", "--model", "someone/else", *USUAL, "--out", "t"))
    assert "cannot load someone/else" in absent
    gone = f"http://127.0.0.1:{free_port()}"  # nobody is there, so that the hub's library tries for half a minute
    said = bitcal({**hub_environment, "HF_ENDPOINT": gone}, "record", "--model", "tinny", *USUAL, "--out", "t").stderr
    preparing, asking, wrong = said.splitlines()
    assert (preparing, asking) == ("preparing tinny", "tinny is no folder here: asking the hub for it")
    assert (
        wrong.startswith("bitcal: cannot load tinny: ")
        and "; models in the box: tiny-1m" in wrong
        and ".;" not in wrong
    )
    assert not (tmp_path / "t").exists()
