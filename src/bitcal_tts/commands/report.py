"""bitcal report: a run -> figures and one self-contained HTML page."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bitcal_tts.commands import options
from bitcal_tts.commands.explain import explain
from bitcal_tts.commands.replay import task_of_store, title_of
from bitcal_tts.files import write_text
from bitcal_tts.halting.controller import Controller
from bitcal_tts.halting.parameters import Parameters
from bitcal_tts.traces.store import TraceError, TraceStore

EXAMPLE = """example:
  bitcal report runs/tiny-15m-4bit-gsm_symbolic-instruct-t0-s0-n200
  bitcal report runs/mine --items 200 --out mine.html

The page opens from disk, with no network."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of `bitcal report`."""
    parser.add_argument("run", type=Path, help="a folder that bitcal run wrote, or a trace folder after bitcal replay")
    parser.add_argument("--out", type=Path, help="the page (report.html in the run's folder)")
    parser.add_argument("--items", type=int, default=60, help="problems in the item browser (%(default)s)")
    options.add_json(parser)


def run(args: argparse.Namespace) -> None:
    """Write the page and say where it is."""
    page, summary = write_report(args.run, args.out, args.items)
    if args.json:
        shown = {key: summary[key] for key in ("rows", "comparisons")}
        print(json.dumps({"schema": 1, **shown, "page": str(page)}))
    else:
        print(f"report: {page}")


def write_report(folder: Path, out: Path | None = None, n_items: int = 60) -> tuple[Path, dict[str, Any]]:
    """Figures and page of a run's folder; the page's path and the run's summary."""
    from bitcal_tts.evaluation.figures import draw_all
    from bitcal_tts.evaluation.page import render_page

    summary = read_summary(folder)
    store = TraceStore.open(folder / "traces" if (folder / "traces").is_dir() else folder)
    rows = summary["rows"]
    figures = draw_all(rows, folder / "figures")
    page = render_page(
        title=f"{rows[0]['model']} at {rows[0]['bits']:g} bits",
        subtitle=title_of(store.identity, rows),
        rows=rows,
        comparisons=summary["comparisons"],
        figures=figures,
        items=browsed(store, summary, n_items),
        manifest=store.manifest,
    )
    path = out or folder / "report.html"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, page)
    return path, summary


def read_summary(folder: Path) -> dict[str, Any]:
    """The summary that a run or a replay left in a folder."""
    path = folder / "summary.json"
    try:
        summary = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise TraceError(f"{folder} has no summary.json: run bitcal run or bitcal replay first") from None
    except ValueError as error:
        raise TraceError(f"{path} is not JSON: {error}") from None
    if not isinstance(summary, dict) or not {"rows", "comparisons", "parameters"} <= summary.keys():
        raise TraceError(f"{path} is not the summary of a run")
    return summary


def browsed(store: TraceStore, summary: dict[str, Any], n: int) -> list[dict[str, Any]]:
    """Items for the browser: those on which methods differ from the full decode first, then by number."""
    task = task_of_store(store.identity)
    methods = [Controller(Parameters(**parameters)) for parameters in summary["parameters"]]
    by_budget: dict[int, list[Controller]] = {}
    for method in methods:
        by_budget.setdefault(method.parameters.budget, []).append(method)
    found = []
    for trace in store.read():
        cells: dict[str, Any] = {}
        for budget, group in by_budget.items():
            told = explain(trace, group, task, store.identity["chunk_size"])
            for method in told["methods"]:
                cells[f"{budget} {method['method']}"] = _cell(method)
        found.append({
            "id": trace.item.id,
            "question": trace.item.question,
            "gold": trace.item.answer,
            "tokens": [[t, round(float(e), 2)] for t, e in zip(trace.token_texts, trace.entropies, strict=True)],
            "cells": cells,
        })  # fmt: skip
    return sorted(found, key=_telling)[:n]


def _telling(item: dict[str, Any]) -> bool:
    return not any(cell["lost"] or cell["rescued"] for cell in item["cells"].values())


def _cell(told: dict[str, Any]) -> dict[str, Any]:
    return {
        **{key: told[key] for key in ("tokens", "reason", "answer", "correct", "lost", "rescued")},
        "full": told["full_correct"],
        "decisions": [_decision(d) for d in told["decisions"]],
    }


def _decision(d: dict[str, Any]) -> Sequence[Any]:
    signals = (d["entropy"], d["trace_stability"], d["hidden_stability"], d["confidence"])
    return [d["tokens"], *(round(s, 3) for s in signals), d["action"], d["reason"]]
