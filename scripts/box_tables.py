"""The paper's rule on the models in the box: tables, figures, signal reliability and the ablation, from trace folders.

    python scripts/box_run.py --traces runs/box --stage cards --jobs 6      # on a machine with a GPU
    python scripts/box_tables.py --traces runs/box --out results/box

Written: rows.json (every model x bits x style x method x budget, with paired tests), outcomes.parquet, tables.md in the
paper's layout (part `rows`); ablation.json and .md, reliability.json (part `ablation`); figures (part `figures`).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import warnings
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from bitcal_tts import UnreachableStopWarning, build_method
from bitcal_tts.commands.build import floor_of
from bitcal_tts.commands.record import describe
from bitcal_tts.commands.recordings import task_of
from bitcal_tts.commands.replay import write_outcomes
from bitcal_tts.evaluation.comparison import compare, corrected
from bitcal_tts.evaluation.metrics import summarise
from bitcal_tts.evaluation.signal_card import confidence_reliability
from bitcal_tts.evaluation.tables import name_of, paper_tables, test_cells
from bitcal_tts.files import write_json, write_text
from bitcal_tts.tiny import models
from bitcal_tts.traces.outcome import Outcome
from bitcal_tts.traces.replay import outcomes
from bitcal_tts.traces.store import TraceStore

BUDGETS = {"instruct": (128, 256, 512), "thinking": (512, 1024, 1536)}
METHODS = ("fixed", "adaptive", "bitcal_tts", "complete")
PARTS = ("rows", "ablation", "figures")
Row = dict[str, Any]


def replay_cell(store: TraceStore) -> tuple[list[Row], list[Row], list[Outcome]]:
    """Every method at every budget on one recording."""
    identity, task, traces = store.description, task_of(store.description), store.read()
    took = describe(store)
    rows, found = [], []
    for budget in BUDGETS[identity["style"]]:
        for name in METHODS:
            options: Row = {"min_tokens": models.MIN_TOKENS}
            if name == "complete":
                opening, close = identity["thinking"] or (None, None)
                options = {"answers": identity["answers"], "opening": opening, "close": close}
            done = outcomes(traces, build_method(name, bits=identity["bits"], budget=budget, **options), task)
            found += done
            rows.append({
                **summarise(done, identity),
                "scheme": identity["scheme"],
                "body_bits_per_weight": identity["body_bits_per_weight"],
                "compute_dtype": identity["compute_dtype"],
                "model_sha256": identity["model_sha256"],
                "recorded_tokens": took["tokens"],
                "traces": store.folder.name,
            })  # fmt: skip
    tests = [{"run": name_of(rows[0]), **test} for test in compare(found)]
    return rows, tests, found


def variants(identity: dict[str, Any], auto_floor: int) -> dict[str, dict[str, Any]]:
    """The paper's method with its parts switched, one at a time; names say what differs from it."""
    usual = {"min_tokens": models.MIN_TOKENS}
    parts: dict[str, dict[str, Any]] = {
        "bitcal_tts": {},
        "scale off": {"scale": False},
        "tail off": {"tail": False},
        "scale off, tail off (adaptive)": {"scale": False, "tail": False},
        "hidden off": {"hidden": False},
        "floor 0": {"min_tokens": 0},
        "floor 96": {"min_tokens": 96},
        "floor 128 (the paper's)": {"min_tokens": 128},
        f"floor {auto_floor} (mean solution length)": {"min_tokens": auto_floor},
        "chunk 8": {"chunk_size": 8, "hidden": False},
        "chunk 32": {"chunk_size": 32, "hidden": False},
        "chunk 16, hidden off": {"hidden": False},
        "theta_c 0.50": {"stop_confidence": 0.50},
        "theta_c 0.55": {"stop_confidence": 0.55},
        "theta_c 0.60": {"stop_confidence": 0.60},
        "theta_c 0.90 (higher)": {"stop_confidence": 0.90},
    }
    return {name: {**usual, **changes} for name, changes in parts.items()}


def ablate(store: TraceStore, budget: int) -> dict[str, Any]:
    """The ablation on one recording, with paired tests against the paper's method and against fixed."""
    identity, task, traces = store.description, task_of(store.description), store.read()
    auto = floor_of("auto", identity, traces)
    found = outcomes(traces, build_method("fixed", bits=identity["bits"], budget=budget), task)
    rows = [summarise(found, identity)]
    for name, changes in variants(identity, auto).items():
        method = build_method("bitcal_tts", bits=identity["bits"], budget=budget, **changes)
        done = [Outcome(**{**o.__dict__, "method": name}) for o in outcomes(traces, method, task)]
        found += done
        rows.append({**summarise(done, identity), "parameters": changes})
    return {"rows": rows, "comparisons": compare(found, against=["bitcal_tts"]), "traces": store.folder.name}


def ablation_table(told: dict[str, Any]) -> str:
    """As Markdown."""
    tests = {(t["method"], t["against"]): t for t in told["comparisons"]}
    first = told["rows"][0]
    lines = [
        f"## {name_of(first)}, B = {first['budget']}, N = {first['n']}\n",
        "| variant | acc. % | tokens | lost % | confident stops | against bitcal_tts, points | p (Holm) | verdict |",
        "|---|---:|---:|---:|---:|---:|---:|---|",
    ]
    for row in told["rows"]:
        shown = test_cells(tests.get((row["method"], "bitcal_tts")))
        lines.append(
            f"| {row['method']} | {100 * row['accuracy']:.1f} | {row['avg_tokens']:.0f} "
            f"| {100 * row['lost_correct_rate']:.1f} | {row['reasons'].get('confident', 0)} | {' | '.join(shown)} |"
        )
    return "\n".join(lines)


def reliabilities(stores: Sequence[TraceStore]) -> list[Row]:
    """The paper's confidence against "the answer now is right" on each recording."""
    told = []
    for store in stores:
        identity = store.description
        reliable = confidence_reliability(
            store.read(), task_of(identity), bits=identity["bits"], budget=identity["budget"],
            chunk_size=identity["chunk_size"], min_tokens=models.MIN_TOKENS,
        )  # fmt: skip
        row = {key: identity[key] for key in ("model", "bits", "scheme", "style")}
        told.append({**row, "temperature": identity["decoding"]["temperature"], "n": identity["n"], **reliable})
    return told


def _order(store: TraceStore) -> tuple[Any, ...]:
    """By style, temperature, then the largest and most precise first."""
    about = store.description
    return (about["style"], about["decoding"]["temperature"], -about["parameters"], -about["bits"])


def main() -> None:
    """Everything that follows from the recordings."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--parts", default=",".join(PARTS), help="%(default)s")
    args = parser.parse_args()
    warnings.simplefilter("ignore", UnreachableStopWarning)
    stores = [
        store
        for store in map(TraceStore.open, sorted(p.parent for p in args.traces.glob("*/manifest.json")))
        if (store.description["task"], store.description["split"]) == ("gsm_symbolic", "test")
    ]
    stores.sort(key=_order)
    parts = args.parts.split(",")
    args.out.mkdir(parents=True, exist_ok=True)
    if "rows" in parts:
        replay_all(stores, args.out, args.jobs)
    if "ablation" in parts:
        ablation(stores, args.out)
    if "figures" in parts:
        figures(args.out)


def replay_all(stores: list[TraceStore], out: Path, jobs: int) -> None:
    """Every method on every recording."""
    rows: list[Row] = []
    tests: list[Row] = []
    everything: list[Outcome] = []
    with ProcessPoolExecutor(jobs) as pool:
        for i, (store, cell) in enumerate(zip(stores, pool.map(replay_cell, stores), strict=True), 1):
            more, tested, found = cell
            rows += more
            tests += tested
            name = store.folder.name
            everything += [Outcome(**{**o.__dict__, "item": f"{name}/{o.item}"}) for o in found]
            print(f"[{i}/{len(stores)}] {name}", flush=True)
    write_json(out / "rows.json", {
        "schema": 1, "rows": rows, "comparisons": corrected(tests),
        "environment": stores[0].manifest.environment,
    })  # fmt: skip
    write_outcomes(out / "outcomes.parquet", everything)
    write_text(out / "tables.md", paper_tables([r for r in rows if r["style"] == "instruct"]))


def ablation(stores: list[TraceStore], out: Path) -> None:
    """The paper's method in parts, and its confidence as a probability."""
    by_name = {store.folder.name.removesuffix("-gsm_symbolic-test"): store for store in stores}
    ablations = [ablate(by_name[f"{m}-{b}bit-instruct-t0"], 512) for m in ("tiny-15m", "tiny-1m") for b in (4, 16, 2)]
    write_json(out / "ablation.json", {"schema": 1, "ablations": ablations})
    write_text(out / "ablation.md", "# Ablation\n\n" + "\n\n".join(map(ablation_table, ablations)) + "\n")
    told = reliabilities(
        [store for name, store in by_name.items() if re.fullmatch(r"tiny-15m-\d+bit-instruct-t0", name)]
    )
    write_json(out / "reliability.json", {"schema": 1, "rows": told})


def figures(out: Path) -> None:
    """Pictures of what the other parts wrote."""
    from bitcal_tts.evaluation.drawing import draw_to
    from bitcal_tts.evaluation.evidence import reliability_diagram
    from bitcal_tts.evaluation.figures import draw_all

    rows = json.loads((out / "rows.json").read_text())["rows"]
    draw_all([r for r in rows if r["style"] == "instruct"], out / "figures")
    told = json.loads((out / "reliability.json").read_text())["rows"]
    draw_to(out / "figures" / "reliability", lambda: reliability_diagram(told))


if __name__ == "__main__":
    main()
