"""Are the texts of the box a fair stand-in for real reasoning? The same statistics on both, side by side.

python scripts/corpus_statistics.py --texts ../shared/real_texts --traces runs/box --out results/models/stand_in.json

Of every text that ends right: how many strong statements it has and how many of them state its answer, whether the
first of them does, where the answer first stands as a number at all and where for the first time as a strong
statement (shares of the text's characters), and how often it checks, waits and tries another way. The corpus is
accepted where each of the four statistics in `ACCEPTED` lies within the range of R1, QwQ and s1.1.
"""

from __future__ import annotations

import argparse
import itertools
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bitcal_tts.files import write_json
from bitcal_tts.halting.answers import Gsm8k, as_number
from bitcal_tts.halting.statements import StatementDetector
from bitcal_tts.logs.files import Record, read_records
from bitcal_tts.tiny.corpus import documents
from bitcal_tts.traces.record import environment
from bitcal_tts.traces.store import TraceStore

REAL = ("gsm8k-deepseek-r1", "gsm8k-qwq-32b", "gsm8k-s1.1-32b")
ACCEPTED = ("strong statements right", "first right value", "first strong statement right", "strong statements")
_NUMBER = re.compile(r"(?<![\w.])\d[\d,]*(?:\.\d+)?")
_WORDS = {
    "checks": re.compile(r"\b(?:check|verify|confirm|make sure|double)", re.IGNORECASE),
    "waits": re.compile(r"\b(?:wait|hmm|hold on|actually)\b", re.IGNORECASE),
    "alternatives": re.compile(r"\b(?:alternatively|another way|different way|other way|instead)\b", re.IGNORECASE),
}


class Text(NamedTuple):
    """What was thought and written, and the answer it ends with."""

    thinking: str
    whole: str
    answer: str


def real(path: Path) -> Iterator[Text]:
    """The right ones of a file of real texts."""
    for record in read_records(path):
        if isinstance(record, Record) and record.values["correct"]:
            whole = record.values["response"]
            end = re.search(r"</think>|\nanswer\n", whole)
            yield Text(whole[: end.start()] if end else whole, whole, str(record.values["gold"]))


def taught(count: int, temperature: float) -> Iterator[Text]:
    """Documents of the corpus that end right, as they would be sampled at a temperature."""
    for document in itertools.islice(documents("train", 17, "thinking", temperature), count):
        if document.final == document.answer:
            yield Text(document.response.split("</think>")[0], document.response, document.answer)


def recorded(folder: Path) -> Iterator[Text]:
    """The right ones of a recording."""
    answers = Gsm8k()
    for trace in TraceStore.open(folder).read():
        value = answers.value(trace.text)
        if value is not None and answers.equal(value, trace.item.answer):
            yield Text(trace.text.split("</think>")[0], trace.text, trace.item.answer)


def statistics(texts: Iterable[Text]) -> dict[str, float]:
    """The table's column for these texts."""
    rows = [row for text in texts if (row := _one(text)) is not None]
    table = {name: [row[name] for row in rows if not np.isnan(row[name])] for name in rows[0]}
    column = {name: float(np.mean(values)) for name, values in table.items()}
    column["strong statements right"] = sum(table["strong right"]) / max(sum(table["strong statements"]), 1)
    column["words, 10th percentile"], column["words, 90th percentile"] = np.percentile(table["words"], [10, 90])
    del column["strong right"]
    return {"texts": len(rows), **column}


def _one(text: Text) -> dict[str, float] | None:
    gold = as_number(text.answer)
    if gold is None or not text.thinking.strip():
        return None
    detector, stated = StatementDetector(), []
    for at, character in enumerate(text.thinking + "\n"):
        found = detector.feed(character)
        if found is not None and found.strong:
            stated.append((at, as_number(found.value) == gold))
    values = (m.start() for m in _NUMBER.finditer(text.thinking) if as_number(m[0]) == gold)
    first = next(values, None)
    length = len(text.whole)
    words = len(text.whole.split())
    row = {
        "words": words,
        "strong statements": len(stated),
        "strong right": sum(right for _, right in stated),
        "first strong statement right": float(stated[0][1]) if stated else np.nan,
        "first strong statement": stated[0][0] / length if stated else np.nan,
        "first right value": first / length if first is not None else np.nan,
        "first right strong statement": next((at / length for at, right in stated if right), np.nan),
        "thinking": len(text.thinking) / length,
        "numbers in 100 words": 100 * len(_NUMBER.findall(text.whole)) / words,
        "equations in 100 words": 100 * text.whole.count("=") / words,
    }
    return row | {name: len(found.findall(text.thinking)) for name, found in _WORDS.items()}


def main() -> None:
    """Measure all, say what is out of range."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=Path, required=True, help="the folder with the real texts")
    parser.add_argument("--traces", type=Path, nargs="*", default=[], help="recordings of the models in the box")
    parser.add_argument("--documents", type=int, default=1000)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    columns = {name: statistics(real(args.texts / f"{name}.jsonl.xz")) for name in REAL}
    for temperature in (1.0, 0.6):
        columns[f"corpus, T={temperature}"] = statistics(taught(args.documents, temperature))
    columns |= {folder.name: statistics(recorded(folder)) for folder in args.traces}
    print(f"{'':32}" + "".join(f"{name[-16:]:>18}" for name in columns))
    for name in columns[REAL[0]]:
        ranged = [columns[r][name] for r in REAL]
        marks = [
            "*" if name in ACCEPTED and c not in REAL and not min(ranged) <= columns[c][name] <= max(ranged) else " "
            for c in columns
        ]
        print(f"{name:32}" + "".join(f"{columns[c][name]:>17.3f}{m}" for c, m in zip(columns, marks, strict=True)))
    if args.out:
        write_json(args.out, {"schema": 1, "columns": columns, "environment": environment()})


if __name__ == "__main__":
    main()
