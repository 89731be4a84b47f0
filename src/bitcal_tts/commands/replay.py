"""bitcal replay: trace folder x methods x budgets -> outcomes."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from textwrap import fill
from typing import Any

from bitcal_tts.commands import build, options
from bitcal_tts.commands.places import check_writable, place_of_results, refuse_overwriting
from bitcal_tts.commands.progress import progress, suggest
from bitcal_tts.commands.record import describe
from bitcal_tts.commands.recordings import Opened, open_recording
from bitcal_tts.commands.table import NARROW, print_comparisons, print_narrow, print_rows
from bitcal_tts.evaluation.comparison import compare
from bitcal_tts.evaluation.metrics import summarise
from bitcal_tts.evaluation.promises import kept, targets
from bitcal_tts.evaluation.verdict import verdict
from bitcal_tts.files import write_atomically, write_json
from bitcal_tts.halting.methods import describe_parameters
from bitcal_tts.traces.outcome import Outcome
from bitcal_tts.traces.replay import outcomes

EXAMPLE = """example:
  bitcal replay traces/tiny-4m-nf4 --methods fixed,adaptive,bitcal_tts --budgets 128,256,512
  bitcal replay traces/tiny-4m-nf4 --methods bitcal_tts --set tail=false --json
  bitcal replay traces/my-model --answers boxed

Without --out the results go to a folder of their own inside the trace folder."""
_AGAINST = (
    "saved and lost in the table are against the text as it was written, up to the budget (fixed); what is said above "
    "it is against landed"
)
_MEASURES = (
    "premature (the paper's): halted before the budget and wrong; lost: of these, what the full decode has right; "
    "rescued: right, where the full decode is wrong"
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of `bitcal replay`."""
    parser.add_argument("traces", type=Path, help="a folder that bitcal record wrote")
    options.add_method_options(parser)
    options.add_budgets(parser, None)
    options.add_answers(parser, "as recorded")
    parser.add_argument(
        "--out", type=options.folder, help="for outcomes.parquet and summary.json (TRACES/replays/NUMBER)"
    )
    options.add_overwrite(parser)
    options.add_full(parser)
    options.add_json(parser)


def run(args: argparse.Namespace) -> None:
    """Replay, print the table, and write the outcomes."""
    opened = open_recording(args.traces, answers=args.answers, declare=options.declared(args))
    budgets = build.budgets_of(args.budgets, args.profile, opened)
    summary = replay_recording(args, opened, budgets, args.out)
    if args.json:
        print(json.dumps({"schema": 1, **summary}))
    else:
        show(opened.description, summary, full=args.full)
        print(f"outcomes and summary: {summary['folder']}")
        suggest(f"bitcal report {summary['folder']}")


def show(description: dict[str, Any], summary: dict[str, Any], *, full: bool) -> None:
    """For people: the verdict, what was promised, a table; where it is asked for all measures and the paired tests."""
    rows, promises = summary["rows"], summary["promises"]
    print(fill(verdict(rows, summary["comparisons"], summary["promises"]), NARROW))
    for promise in promises:
        print(fill(f"{promise['method']}, budget {promise['budget']:,}: {promise['line']}", NARROW))
    title = title_of(description, rows) + ended(description)
    if full:
        print_rows(rows, title)
        print(fill(_MEASURES, NARROW))
        print_comparisons(summary["comparisons"])
    else:
        print_narrow(rows, title, {(name, budget): risk for (_, name, budget), risk in targets(promises).items()})
        if any(row["method"] == "landed" for row in rows):
            print(fill(_AGAINST, NARROW))
        print("all measures and the paired tests: --full, or the page")


def replay_recording(
    args: argparse.Namespace, opened: Opened, budgets: Sequence[int], out: Path | None, home: Path | None = None
) -> dict[str, Any]:
    """Every method at every budget on a recording: rows and paired tests, written with the outcomes.

    Args:
        args: Which methods.
        opened: The recording.
        budgets: Caps on new tokens.
        out: Where they go; other results that are there are refused.
        home: Without `out`, a run folder that may hold them itself; else they go into the trace folder.
    """
    store, description = opened.store, opened.description
    methods = build.methods_of(args, opened, budgets)
    parameters = [describe_parameters(method) for method in methods]
    # As the file will have it.
    follows_from = {
        "parameters": parameters,
        "recording": store.manifest.sha256,
        "n": len(opened.traces),
        "answers": description["answers"],
        "declared": sorted(opened.identity.declared),
    }
    key = json.loads(json.dumps(follows_from))
    if out is None:
        out = place_of_results(home or store.folder, key, inside=home is not None)
        check_writable(out)
    else:
        refuse_overwriting(out, key, overwrite=args.overwrite)
    done: list[Outcome] = []
    rows, promises = [], []
    with progress("replaying", len(methods) * len(opened.traces), quiet=args.json) as advance:
        for method in methods:
            more = outcomes(opened.traces, method, opened.task, identity=opened.identity, tick=lambda: advance(1))
            done += more
            promises.append(kept(method, more, build.known_items(method, opened.traces)))
            rows.append({**summarise(more, description), "min_tokens": getattr(method.parameters, "min_tokens", None)})
    took = describe(store)
    for row in rows:
        # Time and energy were measured for decoding to the recorded end, and for nothing else.
        whole = row["method"] == "fixed" and row["budget"] == description["budget"] and took["seconds"] > 0
        row["seconds_per_item"] = took["seconds"] / took["items"] if whole else None
        row["joules_per_item"] = None if took["joules"] is None else took["joules"] / took["tokens"] * row["avg_tokens"]
        row["joules_measured"] = whole and row["joules_per_item"] is not None
    summary: dict[str, Any] = {"rows": rows, "comparisons": compare(done), "recording": took}
    summary["promises"] = [promise for promise in promises if promise is not None]
    drifted = {m.parameters.budget: m.monitor.drifted for m in methods if getattr(m, "monitor", None) is not None}
    if drifted:
        summary["drifted"] = any(drifted.values())
    out.mkdir(parents=True, exist_ok=True)
    write_outcomes(out / "outcomes.parquet", done)
    where = os.path.relpath(store.folder, out)
    about = {"parameters": parameters, "manifest": store.manifest.to_dict(), "traces": where, "key": key}
    if "without_gold" in description:
        about["without_gold"] = description["without_gold"]
    if opened.identity.declared:
        about["declared"] = sorted(opened.identity.declared)
    write_json(out / "summary.json", {"schema": 1, **summary, **about})
    return {**summary, "folder": str(out)}


def write_outcomes(path: Path, found: Sequence[Outcome]) -> None:
    """Outcomes as Parquet, one row each."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table({f.name: [getattr(o, f.name) for o in found] for f in fields(Outcome)})
    write_atomically(path, lambda temporary: pq.write_table(table, temporary, compression="zstd"))


def title_of(description: dict[str, Any], rows: Sequence[dict[str, Any]]) -> str:
    """What a table is about, in one line."""
    style = f", {description['style']}" if description.get("style") else ""
    decoding = _decoding(description["decoding"])
    model = f"{description['model']} at {description['bits']:g} bits ({description.get('scheme') or 'scheme unknown'})"
    floors = {row["min_tokens"] for row in rows if row["method"] != "fixed"} - {None}
    floor = f", floor {floors.pop()}" if len(floors) == 1 else ""
    return f"{model}, {description['task']}{style}, {decoding}, N={rows[0]['n']}{floor}"


def ended(told: Mapping[str, Any]) -> str:
    """What is right where items have no gold answer, by what a description or a summary tells."""
    return ", right: as the full text ends" if told.get("without_gold") else ""


def _decoding(settings: dict[str, Any]) -> str:
    """How tokens were chosen, in a few words."""
    if settings["temperature"] is None:
        return "as logged"
    if settings["temperature"] == 0:
        return "greedy"
    more = [
        f"{name.replace('_', '-')} {settings[name]:g}" for name, off in _OFF.items() if settings.get(name, off) != off
    ]
    return ", ".join([f"T={settings['temperature']:g}", *more])


_OFF = {"top_p": 1.0, "top_k": 0, "min_p": 0.0}
