"""Precision and recall of the answer-statement detector.

python scripts/statement_results.py --traces runs/full --released RECORDS --out results/statements.json

On thinking traces of the models in the box a line is a statement where it has one of the corpus's own forms, which the
detector does not know; a statement counts as found where the detector reports it within three characters of its end. On
the paper's released texts, which nobody labelled, the answer that the text was scored on stands in for the truth.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bitcal_tts.evaluation.released import read_released
from bitcal_tts.evaluation.statistics import wilson
from bitcal_tts.files import write_json
from bitcal_tts.halting.answers import as_number
from bitcal_tts.halting.statements import Statement, StatementDetector
from bitcal_tts.tiny.corpus import STATEMENTS
from bitcal_tts.traces.record import environment
from bitcal_tts.traces.store import TraceStore

FORMS = [re.compile("^" + re.escape(f).replace(r"\{n\}", r"-?[\d.,]+?") + "$") for f in STATEMENTS]


def found_in(pieces: Sequence[str]) -> list[tuple[int, Statement]]:
    """Statements and the character after which each was reported."""
    detector, at, found = StatementDetector(), 0, []
    for piece in pieces:
        at += len(piece)
        statement = detector.feed(piece)
        if statement is not None:
            found.append((at, statement))
    return found


def on_traces(folder: Path) -> dict[str, Any]:
    """Against the corpus's forms, inside the thinking."""
    hits = misses = false = weak = 0
    for trace in TraceStore.open(folder).read():
        end = trace.text.find("</think>")
        end = len(trace.text) if end < 0 else end
        gold, position = set(), 0
        for line in trace.text[:end].split("\n"):
            if position + len(line) < end and any(form.match(line) for form in FORMS):
                gold.add(position + len(line))
            position += len(line) + 1
        inside = [(at, s) for at, s in found_in(trace.token_texts) if at <= end]
        strong = [at for at, s in inside if s.strong]
        weak += len(inside) - len(strong)
        matched = {g for g in gold if any(g - 3 <= at <= g + 1 for at in strong)}
        hits += len(matched)
        misses += len(gold) - len(matched)
        false += sum(not any(g - 3 <= at <= g + 1 for g in gold) for at in strong)
    return {
        "traces": folder.name,
        "statements": hits + misses,
        "recall": wilson(hits, hits + misses)._asdict(),
        "precision": wilson(hits, hits + false)._asdict(),
        "weak_statements": weak,
    }


def on_released(folder: Path) -> dict[str, Any]:
    """Texts decoded to the budget and scored as right, up to and with their marker."""
    texts = recalled = last = strong = strong_right = 0
    for path in sorted(folder.glob("exp_*.jsonl")):
        for row in read_released(path):
            if row["method"] != "fixed" or row["budget"] < 512 or not row["correct"]:
                continue
            cut = row["generated_text"].find("####")
            text = row["generated_text"] if cut < 0 else row["generated_text"][: cut + 40]
            answer = as_number(row["predicted_answer"])
            stated = [s for _, s in found_in([*text, "\n"])]
            texts += 1
            recalled += any(as_number(s.value) == answer for s in stated)
            last += bool(stated) and as_number(stated[-1].value) == answer
            strong += sum(s.strong for s in stated)
            strong_right += sum(s.strong and as_number(s.value) == answer for s in stated)
    return {
        "texts": texts,
        "answer_found": wilson(recalled, texts)._asdict(),
        "answer_is_the_last_found": wilson(last, texts)._asdict(),
        "strong_statements": strong,
        "strong_that_state_the_answer": wilson(strong_right, strong)._asdict(),
    }


def main() -> None:
    """Measure both."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=Path, required=True)
    parser.add_argument("--released", type=Path, help="the paper's released records; left out where absent")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    folders = [
        args.traces / f"{m}-{b}bit-thinking-t0.6" for m in ("tiny-15m", "tiny-4m", "tiny-1m") for b in (16, 4, 2)
    ]
    result: dict[str, Any] = {"schema": 1, "boxed": [on_traces(f) for f in folders], "environment": environment()}
    if args.released:
        result["released"] = on_released(args.released)
    write_json(args.out, result)
    for row in result["boxed"]:
        print(row["traces"], f"recall {row['recall']['value']:.4f}, precision {row['precision']['value']:.4f}")
    print(result.get("released"))


if __name__ == "__main__":
    main()
