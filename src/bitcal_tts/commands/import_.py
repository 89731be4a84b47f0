"""bitcal import: released per-item records -> outcomes."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bitcal_tts.commands import options
from bitcal_tts.commands.replay import write_outcomes
from bitcal_tts.commands.table import print_comparisons, print_rows
from bitcal_tts.evaluation.comparison import compare
from bitcal_tts.evaluation.metrics import summarise
from bitcal_tts.evaluation.released import model_of, read_released, released_outcomes
from bitcal_tts.files import write_json
from bitcal_tts.traces.outcome import Outcome

EXAMPLE = """example:
  bitcal import results/raw/exp_Qwen_Qwen2.5-7B-Instruct_1775428350.jsonl --out runs/paper-7b
  bitcal report runs/paper-7b

Numbers are computed as the paper's were; docs/reproducing-the-paper.md says which of its tables follow."""

METHOD_ORDER = ("fixed", "adaptive", "bitcal_tts")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of `bitcal import`."""
    parser.add_argument("records", type=Path, nargs="+", help="JSONL files of released records")
    parser.add_argument("--out", type=Path, help="a folder for outcomes.parquet and summary.json, one a file")
    options.add_json(parser)


def run(args: argparse.Namespace) -> None:
    """Import, print a table a file, and write the outcomes."""
    tables = [(path, *import_records(path)) for path in args.records]
    for path, found, rows in tables:
        if args.out:
            folder = args.out if len(tables) == 1 else args.out / path.stem
            folder.mkdir(parents=True, exist_ok=True)
            write_outcomes(folder / "outcomes.parquet", found)
            summary = {"rows": rows, "comparisons": paired(found), "parameters": [], "source": path.name}
            write_json(folder / "summary.json", {"schema": 1, **summary})
            if not args.json:
                print(f"outcomes and summary: {folder}; next: bitcal report {folder}")
        if not args.json:
            print_rows(rows, f"{rows[0]['model']} at {rows[0]['bits']:g} bits, released records, {path.name}")
            print_comparisons(paired(found))
    if args.json:
        print(json.dumps({"schema": 1, "rows": [row for _, _, rows in tables for row in rows]}))


def import_records(path: Path) -> tuple[list[Outcome], list[dict[str, Any]]]:
    """Outcomes of a file, and a row for each method and budget."""
    found = released_outcomes(read_released(path))
    if not found:
        raise ValueError(f"{path} has no records of method 'fixed' to compare with")
    identity = {
        "model": model_of(path),
        "bits": found[0].bits,
        "task": "gsm8k",
        "style": "released",
        "decoding": {"temperature": 0.0},
    }
    cells = sorted({(o.budget, o.method) for o in found}, key=lambda c: (c[0], _rank(c[1])))
    rows = [summarise([o for o in found if (o.budget, o.method) == cell], identity) for cell in cells]
    return found, rows


def paired(found: Sequence[Outcome]) -> list[dict[str, Any]]:
    """Paired tests on the items that every method has at a budget."""
    items: dict[int, dict[str, set[str]]] = {}
    for o in found:
        items.setdefault(o.budget, {}).setdefault(o.method, set()).add(o.item)
    shared = {budget: set.intersection(*methods.values()) for budget, methods in items.items()}
    return compare([o for o in found if o.item in shared[o.budget]])


def _rank(method: str) -> int:
    return METHOD_ORDER.index(method) if method in METHOD_ORDER else len(METHOD_ORDER)
