"""bitcal import: logged texts -> a trace folder; released per-item records -> outcomes."""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bitcal_tts.calibration.fit import fewest_items
from bitcal_tts.calibration.recording import mark_of_question
from bitcal_tts.calibration.starters import load_starter
from bitcal_tts.commands import options
from bitcal_tts.commands.logs import Log, add_columns, columns_of
from bitcal_tts.commands.progress import progress, say, suggest
from bitcal_tts.commands.replay import write_outcomes
from bitcal_tts.commands.table import print_comparisons, print_rows
from bitcal_tts.evaluation.comparison import compare
from bitcal_tts.evaluation.metrics import summarise
from bitcal_tts.evaluation.released import is_released, model_of, read_released, released_outcomes
from bitcal_tts.files import write_json
from bitcal_tts.halting.answers import FORMATS
from bitcal_tts.halting.signals import TEXT_ONLY, Signals
from bitcal_tts.logs.counting import APPROXIMATE, splitter
from bitcal_tts.logs.files import bare_name
from bitcal_tts.traces.importing import import_texts, manifest_of
from bitcal_tts.traces.outcome import Outcome
from bitcal_tts.traces.texts import TOP_K, complete_signals

EXAMPLE = """example:
  bitcal import logs.jsonl.gz --tokenizer tokenizer.json --bits 4 --out traces/logs
  bitcal fit traces/logs --from starter --risk 0.02 --out profile.json
  bitcal replay traces/logs --methods fixed,complete,stated,settled --profile profile.json

  bitcal import exp_Qwen_Qwen2.5-7B-Instruct_1775428350.jsonl --out runs/paper-7b
  bitcal report runs/paper-7b

A log is JSONL, JSON, CSV or Parquet, plain or compressed, with a question, a response and a gold answer under any
names, or a chat log with or without log-probabilities. Records that the paper released (in its own repository) are told
by their columns, and their numbers are computed as the paper's were (docs/reproducing-the-paper.md)."""

_RISKS, _CONFIDENCE = (0.02, 0.05), 0.9  # of the fit that is told of as the next step: the first that is within reach
_BITS = 16.0  # of a model, where nobody says
_SPARE = 256  # tokens of the budget behind the longest text: it has ended, and nothing is to be kept for its answer
METHOD_ORDER = ("fixed", "adaptive", "bitcal_tts")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of `bitcal import`."""
    parser.add_argument("records", type=Path, nargs="+", metavar="FILE", help="logs, or released records")
    parser.add_argument("--out", type=options.folder, help="a folder for the traces or outcomes, one inside it a file")
    add_columns(parser)
    parser.add_argument("--model-name", metavar="NAME", help="the model's, where no column has it (the file's name)")
    parser.add_argument("--bits", type=float, help=f"precision of the model that wrote it (default: {_BITS:g})")
    options.add_json(parser)


def run(args: argparse.Namespace) -> None:
    """Import logs, or print a table of released records a file, and write what was read."""
    if args.bits is not None and not 0 < args.bits <= 32:
        raise ValueError(f"--bits must be above 0 and at most 32, got {args.bits:g}")
    if not all(map(is_released, args.records)):
        _import_logs(args)
        return
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


def _import_logs(args: argparse.Namespace) -> None:
    if args.out is None:
        raise ValueError("logs become trace folders: say where with --out")
    told = []
    for path, folder in _folders(args.records, args.out).items():
        told.append(_import_log(path, folder, args))
    if args.json:
        print(json.dumps({"schema": 1, "folders": told}))


def _folders(paths: Sequence[Path], out: Path) -> dict[Path, Path]:
    """Where each file goes; no two go into one folder."""
    folders = {path: out if len(paths) == 1 else out / bare_name(path) for path in paths}
    files = {folder: path for path, folder in folders.items()}
    for path, folder in folders.items():
        if files[folder] != path:
            raise ValueError(f"{path} and {files[folder]} would both go to {folder}: import them one by one")
    return folders


def _import_log(path: Path, folder: Path, args: argparse.Namespace) -> dict[str, Any]:
    log = Log(path, columns_of(args), gold=False, answers=args.answers, close=args.close)
    split = splitter(args.tokenizer)
    longest, full, gold = 0, True, False
    asked: list[str] = []
    texts = hashlib.sha256()
    for text in log.texts():
        texts.update(json.dumps([text.id, text.question, text.response, text.answer]).encode())
        asked.append(mark_of_question(text.question))
        longest = max(longest, len(split(text.response)), len(text.tokens or ()))
        full = full and complete_signals(text)
        gold = gold or text.answer is not None
    signals = Signals("top", k=TOP_K) if full else TEXT_ONLY
    bits, assumed = (_BITS, ", for nobody said otherwise: --bits") if args.bits is None else (args.bits, "")
    model = log.model or args.model_name or bare_name(path)
    named = "" if log.model or args.model_name else ", by the file's name: --model-name"
    manifest = manifest_of(
        model=model,
        bits=bits,
        answers=log.answers,
        close=log.close,
        opening=log.opening,
        budget=longest + _SPARE,
        source=path.name,
        texts_sha256=texts.hexdigest(),
        tokenizer=args.tokenizer or APPROXIMATE,
        signals=signals,
    )
    with progress(f"importing {path.name}", log.n, quiet=args.json) as advance:
        import_texts(log.texts(), log.n, folder, manifest, split, advance)
    if not args.json:
        of = f"{log.n} texts of {model}{named}; {log.answers} answers, {signals} signals"
        say(f"traces: {folder} ({of}, {bits:g} bits{assumed})")
        kind = FORMATS[log.answers].values
        starter = load_starter(kind) if kind and gold else None
        starts = starter is not None and starter.is_new_to(asked)
        questions = len(set(asked))  # samples of one question certify once
        enough = [risk for risk in _RISKS if questions >= fewest_items(risk, _CONFIDENCE, scorer_is_known=starts)]
        how = " --from starter" if starts else "" if gold else " --label final"
        risk = enough[0] if enough else _RISKS[-1]
        fit = f"bitcal fit {folder}{how} --risk {risk:g} --out {folder.name}-profile.json"
        least = fewest_items(risk, _CONFIDENCE, scorer_is_known=starts)
        replay = f"with a profile already: bitcal replay {folder} --profile FILE"
        what = "texts" if questions == log.n else "questions"
        more = f"import {least} {what} or more, for fewer certify no promise of {100 * risk:g} %; then {fit}"
        suggest(fit if enough else f"{replay}; without one: {more}")
    return {"folder": str(folder), "n": log.n, "skipped": log.faults, "answers": log.answers, "signals": str(signals)}
