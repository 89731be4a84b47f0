"""bitcal report: runs -> tables, figures and one self-contained HTML page."""

from __future__ import annotations

import argparse
import json
import warnings
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from textwrap import fill
from typing import Any, NamedTuple

from bitcal_tts.commands import options
from bitcal_tts.commands.explain import explain
from bitcal_tts.commands.places import check_writable
from bitcal_tts.commands.progress import suggest
from bitcal_tts.commands.record import describe
from bitcal_tts.commands.recordings import open_recording, traces_of
from bitcal_tts.commands.replay import ended, title_of
from bitcal_tts.commands.table import NARROW
from bitcal_tts.evaluation.comparison import corrected
from bitcal_tts.evaluation.tables import name_of, paper_tables
from bitcal_tts.files import write_text
from bitcal_tts.halting.methods import restore
from bitcal_tts.halting.settled import ProfileWarning
from bitcal_tts.traces.outcome import Outcome
from bitcal_tts.traces.store import TraceStore
from bitcal_tts.traces.trace import TraceError

EXAMPLE = """example:
  bitcal report runs/tiny-15m-4bit-gsm_symbolic-instruct-t0-s0-n200
  bitcal report runs/at-16-bits runs/at-4-bits runs/at-2-bits --out compared
  bitcal import exp_Qwen_Qwen2.5-7B-Instruct_1775428350.jsonl --out paper && bitcal report paper

The page opens from disk, with no network. Beside it: tables.md in the paper's layout, and the figures."""


class Run(NamedTuple):
    """A folder with a summary; `store` is None where there are no traces, as with imported records."""

    folder: Path
    summary: dict[str, Any]
    store: TraceStore | None


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of `bitcal report`."""
    parser.add_argument(
        "runs",
        type=Path,
        nargs="+",
        metavar="RUN",
        help="folders that run or replay wrote, or import of released records",
    )
    parser.add_argument("--out", type=options.folder, help="a folder for page, tables and figures (the first run's)")
    parser.add_argument(
        "--items", type=options.positive, default=60, help="problems a run in the item browser (%(default)s)"
    )
    options.add_json(parser)


def run(args: argparse.Namespace) -> None:
    """Write the page and say where it is."""
    if args.out is None:
        check_writable(args.runs[0])
    page, summary = write_report(args.runs, args.out, args.items)
    if args.json:
        print(json.dumps({"schema": 1, **summary, "page": str(page)}))
    else:
        for one in summary["promises"]:
            print(fill(f"{one['run'] or one['method']}, budget {one['budget']:,}: {one['line']}", NARROW))
        print(f"report: {page}; tables and figures are beside it")
        suggest("open it in a browser; it needs no network")


def write_report(folders: Sequence[Path], out: Path | None = None, n_items: int = 60) -> tuple[Path, dict[str, Any]]:
    """Tables, figures and page of one run or several; the page's path, and all rows and tests."""
    from bitcal_tts.evaluation.figures import draw_all, draw_narrow
    from bitcal_tts.evaluation.page import render_page

    runs = _told_apart([_open(folder) for folder in folders])
    rows = [row for run in runs for row in run.summary["rows"]]
    # Several runs are one table: the correction is made over all of its tests.
    tests = corrected([{"run": _title(run), **test} for run in runs for test in run.summary["comparisons"]])
    out = out or folders[0]
    several = len(runs) > 1
    promises = [
        {**one, "run": _title(run) if several else ""} for run in runs for one in run.summary.get("promises", ())
    ]
    figures = draw_all(rows, out / "figures")
    write_text(out / "tables.md", paper_tables(rows))
    single = len(runs) == 1
    page = render_page(
        title=_title(runs[0]) if single else f"{len(runs)} runs",
        subtitle=_subtitle(runs[0]) if single else "; ".join(_title(run) + ended(run.summary) for run in runs),
        rows=rows,
        comparisons=tests,
        promises=promises,
        figures=figures,
        narrow=draw_narrow(rows, out / "figures" / "narrow"),
        runs=[_browsed(run, n_items) for run in runs if run.store is not None],
        manifest={
            str(run.folder): run.store.manifest.to_dict() if run.store else run.summary.get("source") for run in runs
        },
    )
    path = out / "report.html"
    write_text(path, page)
    return path, {"rows": rows, "comparisons": tests, "promises": promises}


def _open(folder: Path) -> Run:
    summary = read_summary(folder)
    traces = traces_of(folder, summary)
    there = TraceStore.is_in(traces)
    if not there and "manifest" in summary:
        raise TraceError(f"the traces of {folder} are not where they were replayed, in {traces}")
    return Run(folder, summary, TraceStore.open(traces) if there else None)


def _told_apart(runs: Sequence[Run]) -> list[Run]:
    """The same; those of one name are called by their task too, and by their folder where that is one as well."""
    named = list(runs)
    for by_task in (True, False):
        titles = Counter(map(_title, named))
        mores = [run.summary["rows"][0].get("task") if by_task else run.folder.resolve() for run in named]
        pairs = zip(named, mores, strict=True)
        named = [run if titles[_title(run)] == 1 else _renamed(run, more) for run, more in pairs]
    return named


def _renamed(run: Run, more: Any) -> Run:
    rows = [{**row, "model": f"{row['model']} ({more})"} for row in run.summary["rows"]]
    return run._replace(summary={**run.summary, "rows": rows})


def _title(run: Run) -> str:
    return name_of(run.summary["rows"][0])


def _subtitle(run: Run) -> str:
    if run.store is None:
        return f"released records, {run.summary.get('source')}"
    told = title_of(run.store.description, run.summary["rows"]) + ended(run.summary)
    took = describe(run.store)
    if not took["tokens"]:  # logs: nobody knows what they took
        return told
    energy = "" if took["joules"] is None else f", {took['joules']:,.0f} J"
    return f"{told}; {took['tokens']:,} tokens decoded in {took['seconds']:.0f} s{energy}"


def _browsed(run: Run, n_items: int) -> dict[str, Any]:
    assert run.store is not None
    rows = run.summary["rows"]
    return {
        "name": _title(run),
        "ended": bool(run.summary.get("without_gold")),
        "budgets": sorted({row["budget"] for row in rows}),
        "methods": list(dict.fromkeys(row["method"] for row in rows)),
        "total": run.store.manifest.n,
        "items": browsed(run, n_items),
    }


def read_summary(folder: Path) -> dict[str, Any]:
    """The summary that a run or a replay left in a folder."""
    path = folder / "summary.json"
    try:
        summary = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if not folder.exists():
            raise TraceError(f"{folder} is not there") from None
        replays = sorted(path.parent for path in folder.glob("replays/*/summary.json"))
        to_do = f": bitcal replay {folder}" if TraceStore.is_in(folder) else ""
        there = f"; {replays[-1]} has one" if replays else to_do
        raise TraceError(f"{folder} has no summary.json, which bitcal run and replay write{there}") from None
    except NotADirectoryError:
        raise TraceError(f"{folder} is a file: a folder is meant that bitcal run or replay wrote") from None
    except ValueError as error:
        raise TraceError(f"{path} is not JSON: {error}") from None
    if (
        not isinstance(summary, dict)
        or not {"rows", "comparisons", "parameters"} <= summary.keys()
        or not summary["rows"]
    ):
        raise TraceError(f"{path} is not the summary of a run")
    if summary.get("schema") != 1:
        raise TraceError(f"{path} was written by another version: replay the traces again")
    return summary


def browsed(run: Run, n: int) -> list[dict[str, Any]]:
    """Items for the browser: those on which methods differ from the full decode first, then by number."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ProfileWarning)  # it was said when they were replayed
        return _browsed_items(run, n)


def _browsed_items(run: Run, n: int) -> list[dict[str, Any]]:
    summary = run.summary
    assert run.store is not None
    opened = open_recording(run.store.folder, answers=summary.get("key", {}).get("answers"), quiet=True)
    telling = _telling(run.folder)
    by_budget: dict[int, list[Any]] = {}
    for method in map(restore, summary["parameters"]):
        by_budget.setdefault(method.parameters.budget, []).append(method)
    found = []
    for trace in sorted(opened.traces, key=lambda trace: trace.item.id not in telling)[:n]:
        cells: dict[str, Any] = {}
        for budget, group in by_budget.items():
            told = explain(trace, group, opened.task, opened.identity)
            for method in told["methods"]:
                cells[f"{budget} {method['method']}"] = _cell(method)
        found.append({
            "id": trace.item.id,
            "question": trace.item.question,
            "gold": trace.item.answer,
            "tokens": [[text, entropy and round(entropy, 2)] for text, entropy in trace.shaded()],
            "cells": cells,
        })  # fmt: skip
    return found


def _telling(folder: Path) -> set[str]:
    """The items on which a method lost an answer or rescued one."""
    import pyarrow.parquet as pq

    rows = pq.read_table(folder / "outcomes.parquet").to_pylist()
    return {outcome.item for outcome in (Outcome(**row) for row in rows) if outcome.lost or outcome.rescued}


def _cell(told: dict[str, Any]) -> dict[str, Any]:
    return {
        **{
            key: told[key] for key in ("tokens", "left_at", "landing", "reason", "answer", "correct", "lost", "rescued")
        },
        "full": told["full_correct"],
        "decisions": [_decision(d) for d in told["decisions"]],
    }


def _decision(d: dict[str, Any]) -> Sequence[Any]:
    judged = d["score"] if d["confidence"] is None else d["confidence"]
    signals = (d["entropy"], d["trace_stability"], d["hidden_stability"], judged)
    return [d["tokens"], *(None if s is None else round(s, 3) for s in signals), d["action"], d["reason"]]
