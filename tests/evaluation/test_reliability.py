"""Reliability against scikit-learn, and the tables in the paper's layout."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import brier_score_loss, roc_auc_score

from bitcal_tts.cli import main
from bitcal_tts.commands.import_ import import_records
from bitcal_tts.evaluation.reliability import auroc, brier, ece, reliability, reliability_bins
from bitcal_tts.evaluation.tables import budget_sweep, main_table, paper_tables, partial_sweep


@pytest.mark.parametrize("seed", range(5))
def test_auroc_and_brier_agree_with_scikit_learn(seed: int) -> None:
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, 20, 300) / 20  # with ties
    right = rng.random(300) < scores
    assert auroc(scores, right) == pytest.approx(roc_auc_score(right, scores))
    assert brier(scores, right) == pytest.approx(brier_score_loss(right, scores))


def test_ece_is_zero_where_scores_are_rates_and_the_gap_where_not() -> None:
    scores = [0.25] * 4 + [0.75] * 4
    assert ece(scores, [1, 0, 0, 0, 1, 1, 1, 0]) == pytest.approx(0.0)
    assert ece([0.9] * 10, [True] * 5 + [False] * 5) == pytest.approx(0.4)
    bins = reliability_bins(scores, [1, 0, 0, 0, 1, 1, 1, 0])
    assert [(b.mean_score, b.share_right, b.n) for b in bins] == [(0.25, 0.25, 4), (0.75, 0.75, 4)]


def test_one_class_has_no_ranking_and_nonsense_is_refused() -> None:
    assert reliability([0.5, 0.6], [True, True])["auroc"] is None
    with pytest.raises(ValueError, match="equally long"):
        auroc([0.5], [True, False])
    with pytest.raises(ValueError, match="between 0 and 1"):
        brier([1.5], [True])


def test_tables_in_the_papers_layout(shared: Path) -> None:
    name = "exp_Qwen_Qwen2.5-7B-Instruct_1775428350.jsonl"
    _, rows = import_records(shared / "released_results" / name)
    first = main_table(rows, 512)
    assert "| fixed | 54 | 90.7 [80.1, 96.0] | 466 | --- | 0.0 |" in first
    assert "| bitcal_tts | 54 | **83.3** [71.3, 91.0] | 316 | 32.1 | **11.1** |" in first
    assert "| adaptive | 256 | 54 | 42.6 | 231 | 7.4 |" in budget_sweep(rows)
    assert "| bitcal_tts | 512 | 54 | 83.3 | 316 | 32.1 |" in partial_sweep(rows)
    assert paper_tables(rows).count("## ") == 3


def test_a_report_over_imported_records_and_over_several_runs(
    shared: Path, store: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    records = shared / "released_results" / "exp_Qwen_Qwen2.5-14B-Instruct_1775412134.jsonl"
    assert main(["import", str(records), "--out", "paper"]) == 0
    assert main(["report", "paper"]) == 0
    assert "Qwen2.5-14B" in Path("paper/report.html").read_text() and Path("paper/tables.md").exists()
    folder = str(store.folder)
    for k in (1, 2):
        options = ["--min-tokens", str(32 * k), "--budgets", "192", "--out", f"run{k}", "--json"]
        assert main(["replay", folder, *options]) == 0
        Path(f"run{k}/traces").symlink_to(folder)
    capsys.readouterr()
    assert main(["report", "run1", "run2", "--out", "both", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert len(told["rows"]) == 8
    # Corrected over both runs together, so no p-value is below what one run alone gives it.
    alone = json.loads(Path("run1/summary.json").read_text())["comparisons"]
    for one, both in zip(alone, told["comparisons"], strict=False):
        assert both["p_corrected"] >= one["p_corrected"]


def test_signals_from_the_command_line(store: Any, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(store.folder)
    assert main(["signals", folder, "--rescore", "32,2", "--n", "10", "--out", "card", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [row["bits"] for row in told["rescored"]] == [32, 2]
    assert told["rescored"][0]["signals"]["entropies"]["shift"] == 0
    assert {"auroc", "ece", "brier", "bins"} <= told["recorded"][0]["answered"].keys()
    assert Path("card/signal_card.png").exists() and Path("card/reliability.pdf").exists()
    assert main(["signals", folder, "--min-tokens", "48"]) == 0
    assert "AUROC" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="2"):
        main(["signals", folder, "--n", "0"])
