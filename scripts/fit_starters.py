"""Fit the starters of the package: scorers for number and option answers, from public texts of reasoning models.

    python scripts/fit_starters.py --texts ../shared/real_texts --tokenizer ../shared/tokenizers/qwen2_5

Each starter is five scorers, each fitted without the questions of one fold. Only coefficients, marks of questions and
what is reached on questions that were left out are written; no text is.
"""

from __future__ import annotations

import argparse
import gzip
import json
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from bitcal_tts.auditing.crossfit import FoldScorers, fit_folds
from bitcal_tts.auditing.findings import Audited, scored
from bitcal_tts.auditing.walking import Setting, Walked
from bitcal_tts.commands.audit import RISKS, walk_log
from bitcal_tts.commands.logs import Log
from bitcal_tts.files import write_atomically
from bitcal_tts.logs import Columns

OUT = Path(__file__).parents[1] / "src/bitcal_tts/calibration/starters"
TEXTS = {
    "numbers": (
        "gsm8k-deepseek-r1", "gsm8k-qwq-32b", "gsm8k-s1.1-32b", "gsm8k-r1-distill-qwen-32b",
    ),
    "options": (
        "lineage-gpt-oss-120b", "lineage-qwen3-32b", "lineage-qwq-32b", "lineage-r1-distill-qwen-14b",
        "lineage-seed-oss-36b-gptq-int8",
    ),
}  # fmt: skip
ROUNDS = 300
_DIGITS = 6


def main() -> None:
    """Fit and write the starters."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=Path, required=True)
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--only", choices=tuple(TEXTS))
    args = parser.parse_args()
    OUT.mkdir(exist_ok=True)
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        for kind, names in TEXTS.items():
            if args.only in (None, kind):
                paths = [args.texts / f"{name}.jsonl.xz" for name in names]
                logs = [Log(path, Columns(), gold=True, answers=None, close=None) for path in paths]
                settings = [Setting(log.answers, log.close, args.tokenizer, log.opening) for log in logs]
                walked = [walk_log(pool, log, setting) for log, setting in zip(logs, settings, strict=True)]
                scorers = fit_folds(walked, "gold", None, rounds=ROUNDS, most_rows=None)
                write(kind, scorers, evidence(logs, walked, scorers), walked)


def evidence(logs: list[Log], walked: list[Walked], scorers: FoldScorers) -> list[dict[str, Any]]:
    """What the scorers reach on questions that they were not fitted on, thresholds from the other folds too."""
    found = []
    for log, part in zip(logs, walked, strict=True):
        audited = Audited(log.path.name, log.model, log.answers, log.close, "gold", scored(part, scorers), log.faults)
        rows = [row for row in audited.rows(RISKS) if row["method"] == "settled"]
        keys = ("model", "risk", "n", "full_accuracy", "share", "thinking_share", "lost_correct_rate")
        found += [{key: row[key] for key in keys} for row in rows]
    return found


def write(kind: str, scorers: FoldScorers, reached: list[dict[str, Any]], walked: list[Walked]) -> None:
    """Write a starter, numbers rounded to what matters."""
    profiles = [profile for profile in scorers.profiles if profile is not None]
    marks = sorted({mark for part in walked for mark in part.marks})
    data = {
        "version": 1,
        "features": list(profiles[0].features),
        "models": [rounded(profile.model) for profile in profiles],
        "fitted": {"label": "gold", "questions": marks, "texts": sum(part.n for part in walked)},
        "evidence": reached,
    }
    packed = gzip.compress(json.dumps(data, separators=(",", ":")).encode(), mtime=0)
    path = OUT / f"{kind}.json.gz"

    def save(target: Path) -> None:
        target.write_bytes(packed)

    write_atomically(path, save)
    print(f"{path}: {len(packed) / 1e6:.1f} MB")


def rounded(model: Any) -> dict[str, Any]:
    """A model with six digits a number; thresholds keep all of theirs, for what lies on them must fall as it did."""
    trees = [{**tree, "value": [float(f"{value:.{_DIGITS}g}") for value in tree["value"]]} for tree in model["trees"]]
    return {**model, "trees": trees}


if __name__ == "__main__":
    main()
