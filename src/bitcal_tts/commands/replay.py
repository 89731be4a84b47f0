"""bitcal replay: trace folder x methods x budgets -> outcomes."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from bitcal_tts.commands import build, options
from bitcal_tts.commands.progress import progress
from bitcal_tts.commands.record import describe
from bitcal_tts.commands.table import print_comparisons, print_rows
from bitcal_tts.evaluation.comparison import compare
from bitcal_tts.evaluation.metrics import summarise
from bitcal_tts.files import write_atomically, write_json
from bitcal_tts.halting.methods import describe_parameters
from bitcal_tts.tasks import Task
from bitcal_tts.tasks.registry import restore_task
from bitcal_tts.traces.replay import Outcome, outcomes
from bitcal_tts.traces.store import TraceError, TraceStore

EXAMPLE = """example:
  bitcal replay traces/tiny-4m-nf4 --methods fixed,adaptive,bitcal_tts --budgets 128,256,512
  bitcal replay traces/tiny-4m-nf4 --methods bitcal_tts --set tail=false --json"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of `bitcal replay`."""
    parser.add_argument("traces", type=Path, help="a folder that bitcal record wrote")
    options.add_method_options(parser)
    options.add_budgets(parser, None)
    parser.add_argument("--out", type=Path, help="where outcomes.parquet and summary.json go (the trace folder)")
    options.add_json(parser)


def run(args: argparse.Namespace) -> None:
    """Replay, print the table, and write the outcomes."""
    store = open_complete(args.traces)
    summary = replay_store(args, store, args.budgets or [store.identity["budget"]], args.out or args.traces)
    if args.json:
        print(json.dumps({"schema": 1, **summary}))
    else:
        show(store.identity, summary)


def show(identity: dict[str, Any], summary: dict[str, Any]) -> None:
    """The table and the paired tests, for people."""
    print_rows(summary["rows"], title_of(identity, summary["rows"]))
    print_comparisons(summary["comparisons"])


def replay_store(args: argparse.Namespace, store: TraceStore, budgets: Sequence[int], out: Path) -> dict[str, Any]:
    """Every method at every budget on a store: rows and paired tests. They and the outcomes are written to `out`."""
    identity = store.identity
    task = task_of_store(identity)
    traces = store.read()
    methods = build.methods_of(args, identity, budgets, traces)
    found: list[Outcome] = []
    rows = []
    with progress("replaying", len(methods) * len(traces), quiet=args.json) as advance:
        for method in methods:
            done = outcomes(traces, method, task, recorded_chunk_size=identity["chunk_size"], tick=lambda: advance(1))
            found += done
            rows.append({**summarise(done, identity), "min_tokens": getattr(method.parameters, "min_tokens", None)})
    out.mkdir(parents=True, exist_ok=True)
    write_outcomes(out / "outcomes.parquet", found)
    took = describe(store)
    for row in rows:
        # Time and energy were measured for decoding to the recorded end, and for nothing else.
        whole = row["method"] == "fixed" and row["budget"] == identity["budget"]
        row["seconds_per_item"] = took["seconds"] / took["items"] if whole else None
        row["joules_per_item"] = took["joules"] / took["items"] if whole and took["joules"] is not None else None
    summary: dict[str, Any] = {"rows": rows, "comparisons": compare(found), "recording": took}
    drifted = {m.parameters.budget: m.monitor.drifted for m in methods if getattr(m, "monitor", None) is not None}
    if drifted:
        summary["drifted"] = any(drifted.values())
    parameters = [describe_parameters(method) for method in methods]
    where = os.path.relpath(store.folder, out)
    told = {"parameters": parameters, "manifest": store.manifest, "traces": where}
    write_json(out / "summary.json", {"schema": 1, **summary, **told})
    return summary


def open_complete(folder: Path) -> TraceStore:
    """A store that was recorded to its end."""
    store = TraceStore.open(folder)
    if not store.complete:
        raise TraceError(
            f"{folder} is not complete: {len(store.blocks())} of {store.identity['blocks']} blocks; "
            "run the same bitcal record again to finish it"
        )
    return store


def task_of_store(identity: dict[str, Any]) -> Task:
    """The task whose items a store holds, for its answer format and scorer."""
    return restore_task(
        identity["task"],
        identity["answers"],
        split=identity.get("split", "test"),
        execute=identity.get("execute", False),
    )


def write_outcomes(path: Path, found: Sequence[Outcome]) -> None:
    """Outcomes as Parquet, one row each."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table({f.name: [getattr(o, f.name) for o in found] for f in fields(Outcome)})
    write_atomically(path, lambda temporary: pq.write_table(table, temporary, compression="zstd"))


def title_of(identity: dict[str, Any], rows: Sequence[dict[str, Any]]) -> str:
    """What a table is about, in one line."""
    style = f", {identity['style']}" if identity.get("style") else ""
    t = identity["decoding"]["temperature"]
    decoding = "greedy" if t == 0 else f"T={t:g}"
    model = f"{identity['model']} at {identity['bits']:g} bits ({identity['scheme']})"
    floors = {row["min_tokens"] for row in rows} - {None}
    floor = f", floor {floors.pop()}" if len(floors) == 1 else ""
    return f"{model}, {identity['task']}{style}, {decoding}, N={rows[0]['n']}{floor}"
