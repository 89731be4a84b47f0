"""lm-evaluation-harness itself, over local files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bitcal_tts.cli import main
from bitcal_tts.evaluation.harness import _cut
from bitcal_tts.tasks import load_task

pytest.importorskip("lm_eval")
MODEL = ["--model", "tiny-4m", "--bits", "16", "--compute-dtype", "float32"]
TASK = """task: counted
dataset_path: json
dataset_kwargs:
  data_files:
    test: {path}
test_split: test
output_type: {kind}
doc_to_text: "{{{{question}}}}"
doc_to_target: "{{{{answer}}}}"
{more}
metric_list:
  - metric: {metric}
"""


@pytest.fixture
def problems(tmp_path: Path) -> Path:
    path = tmp_path / "problems.jsonl"
    items = load_task().items(24, seed=5)
    lines = [json.dumps({"question": i.question, "answer": f"So it is.\n#### {i.answer}"}) for i in items]
    path.write_text("\n".join(lines) + "\n")
    return path


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main([*arguments, "--json"]) == 0
    said: dict[str, Any] = json.loads(capsys.readouterr().out)
    return said


def test_its_accuracy_is_what_a_replay_gives(
    problems: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = told(capsys, "lm-eval", "--data", str(problems), *MODEL, "--methods", "fixed,complete", "--budget", "256")
    folder = str(tmp_path / "traces")
    recorded = ["record", "--task", "gsm8k", "--data", str(problems), *MODEL, "--budget", "256", "--out", folder]
    assert main(recorded) == 0
    capsys.readouterr()
    replayed = {r["method"]: r for r in told(capsys, "replay", folder, "--methods", "fixed,complete")["rows"]}
    assert [report["method"] for report in found["methods"]] == ["fixed", "complete"]
    for report in found["methods"]:
        by_filter = {row["filter"]: row["value"] for row in report["rows"]}
        assert by_filter.keys() == {"strict-match", "flexible-extract", "answer-format"}
        accuracy = replayed[report["method"]]["accuracy"]
        assert 0 < accuracy < 1
        assert by_filter["answer-format"] == pytest.approx(accuracy)
        assert report["tokens"] == pytest.approx(replayed[report["method"]]["avg_tokens"])
    assert found["methods"][1]["tokens"] < found["methods"][0]["tokens"]  # it did stop


def test_a_task_of_ones_own_and_a_report_in_a_file(
    problems: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tasks = tmp_path / "tasks"
    tasks.mkdir()
    more = 'generation_kwargs:\n  until: ["####"]'
    (tasks / "counted.yaml").write_text(
        TASK.format(path=problems, kind="generate_until", more=more, metric="exact_match")
    )
    out = tmp_path / "report.json"
    asked = ["--tasks", "counted", "--include-path", str(tasks), "--limit", "3", "--out", str(out)]
    report = told(capsys, "lm-eval", *asked, *MODEL)["methods"]
    assert [r["method"] for r in report] == ["landed"]
    assert [(row["task"], row["value"]) for row in report[0]["rows"]] == [("counted", 0.0)]  # all is cut at the marker
    assert json.loads(out.read_text())["model"]["engine"] == "transformers"


def test_tasks_of_likelihoods_are_refused(problems: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tasks = tmp_path / "tasks"
    tasks.mkdir()
    (tasks / "counted.yaml").write_text(
        TASK.format(path=problems, kind="multiple_choice", more='doc_to_choice: ["1", "2"]', metric="acc").replace(
            'doc_to_target: "{{answer}}"', "doc_to_target: 0"
        )
    )
    assert main(["lm-eval", "--tasks", "counted", "--include-path", str(tasks), *MODEL]) == 2
    assert "choose a task that generates (output_type: generate_until)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "give --tasks NAME for tasks of the harness, or --data FILE"),
        (["--tasks", "a", "--data", "b"], "give --tasks NAME for tasks of the harness, or --data FILE"),
        (["--data", "nowhere.jsonl"], "cannot read nowhere.jsonl"),
        (["--data", "PROBLEMS", "--methods", "settled"], "needs a profile"),
        (["--data", "PROBLEMS", "--min-tokens", "auto"], "give a number where nothing is recorded"),
    ],
)
def test_what_is_missing_is_named(
    options: list[str], message: str, problems: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = [str(problems) if option == "PROBLEMS" else option for option in options]
    assert main(["lm-eval", *asked, "--model", "tiny-1m"]) == 2
    assert message in capsys.readouterr().err


def test_a_stop_string_cuts() -> None:
    assert _cut("one two three", ["three", "two"]) == "one "
    assert _cut("one two", "two") == "one "
    assert _cut("one two", [""]) == "one two"
