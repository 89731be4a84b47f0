"""What `settled` and `complete` reach on held-out problems, beside every rule of the field, at every precision.

    python scripts/settled_results.py --traces runs/full --out results/settled

Fits one profile a risk on the calibration recordings of tiny-15m (thinking, T=0.6), pooled over precisions, with a
threshold certified for each; replays it on the held-out recordings; then compares every rule on the same traces.
Written: goals.json and goals.md, profile-RISK.json, compare-BITS.json with a figure each.
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path
from typing import Any

from bitcal_tts import UnreachableStopWarning, build_method
from bitcal_tts.calibration.fit import Recording, fit, settled_parameters
from bitcal_tts.calibration.store import save_profile
from bitcal_tts.commands.compare import compare_store
from bitcal_tts.commands.replay import task_of_store
from bitcal_tts.evaluation.comparison import compare
from bitcal_tts.evaluation.figures import draw_to, frontier_figure
from bitcal_tts.evaluation.metrics import summarise
from bitcal_tts.evaluation.statistics import wilson
from bitcal_tts.files import write_json, write_text
from bitcal_tts.halting.profile import Profile
from bitcal_tts.halting.settled import Settled
from bitcal_tts.traces.record import environment
from bitcal_tts.traces.replay import Outcome, outcomes
from bitcal_tts.traces.store import TraceStore

BITS = (16, 4, 3, 2)
RISKS = (0.01, 0.005)
Row = dict[str, Any]


def read(folder: Path) -> Recording:
    """A recording with its task."""
    store = TraceStore.open(folder)
    return Recording(store.identity, store.read(), task_of_store(store.identity))


def evaluate(recording: Recording, profile: Profile, risk: float) -> tuple[list[Row], list[Outcome]]:
    """Rows of fixed, complete and settled on one held-out recording."""
    identity, budget = recording.identity, recording.identity["budget"]
    opening, close = identity.get("thinking") or (None, None)
    settings = settled_parameters(identity, profile, budget, threshold=profile.threshold(recording.bits))
    answers: Row = {"answers": identity["answers"], "opening": opening, "close": close}
    methods: list[Any] = [
        build_method("fixed", bits=identity["bits"], budget=budget),
        build_method("complete", bits=identity["bits"], budget=budget, **answers),
    ]
    if identity.get("probes") is not None:
        methods.append(Settled(settings))
    rows, found = [], []
    for method in methods:
        done = outcomes(recording.traces, method, recording.task)
        found += done
        row = {**summarise(done, dict(identity)), "risk": risk if done[0].method == "settled" else None}
        lost = wilson(sum(o.lost for o in done), len(done))
        rows.append({**row, "lost_low": lost.low, "lost_high": lost.high})
    return rows, found


def table(rows: list[Row]) -> str:
    """As Markdown."""
    lines = [
        "| bits | method | risk | accuracy % [95 %] | tokens | of full | lost % [95 %] | N |",
        "|---:|---|---:|---:|---:|---:|---:|---:|",
    ]
    seen = set()
    for row in rows:
        key = (row["bits"], row["style"], row["method"], row["risk"])
        if key in seen:
            continue
        seen.add(key)
        risk = "" if row["risk"] is None else f"{100 * row['risk']:g} %"
        lines.append(
            f"| {row['bits']:g} | {row['method']} ({row['style']}) | {risk} | {100 * row['accuracy']:.1f} "
            f"[{100 * row['accuracy_low']:.1f}, {100 * row['accuracy_high']:.1f}] | {row['avg_tokens']:.0f} "
            f"| {1 - row['savings']:.3f} | {100 * row['lost_correct_rate']:.2f} [{100 * row['lost_low']:.2f}, "
            f"{100 * row['lost_high']:.2f}] | {row['n']} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Fit, replay, compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--kind", default="logistic")
    parser.add_argument("--no-compare", action="store_true", help="only fit and replay")
    args = parser.parse_args()
    warnings.simplefilter("ignore", UnreachableStopWarning)
    args.out.mkdir(parents=True, exist_ok=True)
    calibration = [read(args.traces / f"tiny-15m-{bits}bit-thinking-t0.6-calibration") for bits in BITS]
    held_out = {bits: read(args.traces / f"tiny-15m-{bits}bit-thinking-t0.6") for bits in BITS}
    rows: list[Row] = []
    tests: list[Row] = []
    seconds = {}
    for risk in RISKS:
        began = time.perf_counter()
        profile = fit(calibration, risk=risk, confidence=0.9, kind=args.kind)
        seconds[f"{risk:g}"] = round(time.perf_counter() - began, 1)
        save_profile(args.out / f"profile-{risk:g}.json", profile)
        for bits, recording in held_out.items():
            more, found = evaluate(recording, profile, risk)
            rows += more
            tests += [{"bits": bits, "risk": risk, **test} for test in compare(found, against=["fixed"])]
        print(f"risk {risk:g}: fitted in {seconds[f'{risk:g}']} s", flush=True)
    instruct = read(args.traces / "tiny-15m-4bit-instruct-t0")
    more, found = evaluate(instruct, profile, RISKS[-1])
    rows += more
    tests += [{"bits": 4, "style": "instruct", **test} for test in compare(found, against=["fixed"])]
    write_json(args.out / "goals.json", {
        "schema": 1, "rows": rows, "comparisons": tests, "fit_seconds": seconds, "environment": environment(),
    })  # fmt: skip
    write_text(args.out / "goals.md", table(rows) + "\n")
    if args.no_compare:
        return
    for bits in BITS:
        told = compare_store(argparse.Namespace(
            traces=args.traces / f"tiny-15m-{bits}bit-thinking-t0.6", profile=str(args.out / "profile-0.01.json"),
            methods=None, budget=None, target=0.01, json=True, force=False, overrides=[], chunk_size=None,
            min_tokens=None,
        ))  # fmt: skip
        write_json(args.out / f"compare-{bits}.json", {"schema": 1, **told})
        draw_to(args.out / f"frontier-{bits}", lambda t=told: frontier_figure(t["curves"], t["title"]))  # type: ignore[misc]
        print(f"compared at {bits} bits", flush=True)


if __name__ == "__main__":
    main()
