"""What `settled` and `complete` reach on held-out problems, beside every rule of the field, at every precision.

    python scripts/settled_results.py --traces runs/full --out results/settled

Fits profiles of both kinds at each risk on the calibration recordings of tiny-15m (thinking, T=0.6), pooled over
precisions, with a threshold certified for each, and adds one more precision by its threshold alone; replays them on two
draws of held-out problems, the one that was looked at while `settled` was built and a fresh one; then compares every
rule on the fresh one.
Written: profile-KIND-RISK.json, goals.json and .md, simulation.json, why_bits.json with its figure, ablation.json and
.md, compare-BITS.json with a figure each.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import time
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from bitcal_tts import UnreachableStopWarning, build_method
from bitcal_tts.calibration.fit import KINDS, fit
from bitcal_tts.calibration.recording import Recording
from bitcal_tts.calibration.risk import P_VALUES, certify, grid
from bitcal_tts.calibration.store import load_profile, save_profile
from bitcal_tts.commands.build import floor_of
from bitcal_tts.commands.compare import compare_store
from bitcal_tts.commands.recordings import open_recording
from bitcal_tts.evaluation.comparison import compare, corrected
from bitcal_tts.evaluation.drawing import draw_to
from bitcal_tts.evaluation.evidence import frontier_figure, why_bits_figure
from bitcal_tts.evaluation.metrics import summarise
from bitcal_tts.evaluation.statistics import savings, wilson
from bitcal_tts.evaluation.tables import test_cells
from bitcal_tts.files import write_json, write_text
from bitcal_tts.halting.features import MARKERS, NAMES
from bitcal_tts.halting.request import RequestParameters
from bitcal_tts.traces.outcome import Outcome
from bitcal_tts.traces.record import environment
from bitcal_tts.traces.replay import outcomes

BITS = (16, 8, 4, 3, 2)
ADDED = 8  # recorded after the scorers were fitted
RISKS = (0.01, 0.005)
DRAWS = {1: "Fresh: drawn after every choice was made", 0: "Looked at while it was built"}
Row = dict[str, Any]


def evaluate(recording: Recording, methods: list[Any], **told: Any) -> tuple[list[Row], list[Outcome]]:
    """A row a method on one held-out recording, with what is told of them."""
    rows, found = [], []
    for method in methods:
        done = outcomes(recording.traces, method, recording.task, identity=recording.identity)
        found += done
        lost = wilson(sum(o.lost for o in done), len(done))
        row = {**summarise(done, dict(recording.description)), "seed": recording.description["seed"]}
        rows.append({**row, "lost_low": lost.low, "lost_high": lost.high, **told})
    return rows, found


def plain(recording: Recording) -> list[Any]:
    """The methods that need no fitting; the paper's own where it was made for, in texts without thinking."""
    about = dict(recording.description)
    opening, close = about["thinking"] or (None, None)
    shared = {"bits": about["bits"], "budget": about["budget"]}
    complete = build_method("complete", **shared, opening=opening, close=close)
    found: list[Any] = [build_method("fixed", **shared), complete]
    if about["style"] == "instruct":
        floor = floor_of(None, about, recording.traces)
        found.append(build_method("bitcal_tts", **shared, chunk_size=about["chunk_size"], min_tokens=floor))
    return found


def table(rows: list[Row]) -> str:
    """As Markdown."""
    lines = [
        "| bits | method | risk | accuracy % [95 %] | tokens | of full | lost % [95 %] | N |",
        "|---:|---|---:|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        risk = "" if row["risk"] is None else f"{100 * row['risk']:g} %"
        lines.append(
            f"| {row['bits']:g} | {row['method']} ({row['kind'] or row['style']}) | {risk} "
            f"| {100 * row['accuracy']:.1f} "
            f"[{100 * row['accuracy_low']:.1f}, {100 * row['accuracy_high']:.1f}] | {row['avg_tokens']:.0f} "
            f"| {1 - row['savings']:.3f} | {100 * row['lost_correct_rate']:.2f} [{100 * row['lost_low']:.2f}, "
            f"{100 * row['lost_high']:.2f}] | {row['n']} |"
        )
    return "\n".join(lines)


def tests_table(tests: list[Row]) -> str:
    """As Markdown."""
    lines = ["| bits | method | risk | against fixed, points | p (Holm) | verdict |", "|---:|---|---:|---:|---:|---|"]
    for test in tests:
        risk = "" if test["risk"] is None else f"{100 * test['risk']:g} %"
        name = f"{test['method']} ({test['kind'] or test['style']})"
        lines.append(f"| {test['bits']:g} | {name} | {risk} | {' | '.join(test_cells(test))} |")
    return "\n".join(lines)


def fit_profiles(calibration: list[Recording], out: Path) -> None:
    """Profiles of both kinds at both risks."""
    pooled = [r for r in calibration if r.bits != ADDED]
    added = [r for r in calibration if r.bits == ADDED]
    for kind in KINDS:
        for risk in RISKS:
            began = time.perf_counter()
            profile = fit(pooled, risk=risk, confidence=0.9, kind=kind)
            save_profile(profile_path(out, kind, risk), fit(added, risk=risk, confidence=0.9, known=profile))
            print(f"{kind}, risk {risk:g}: {time.perf_counter() - began:.1f} s", flush=True)


def profile_path(out: Path, kind: str, risk: float) -> Path:
    """Where a profile is kept."""
    return out / f"profile-{kind}-{risk:g}.json"


def goals(traces: Path, out: Path) -> None:
    """What the profiles that are there reach on both draws of held-out problems."""
    rows: list[Row] = []
    tests: list[Row] = []
    for seed in DRAWS:
        for style in ("thinking", "instruct"):
            for bits in BITS:
                recording = held_out_recording(traces, bits, seed, style)
                more, found = evaluate(recording, plain(recording), risk=None, kind=None)
                rows += more
                own = [{"risk": None, "kind": None, **test} for test in compare(found, against=["fixed"])]
                for kind, risk in itertools.product(KINDS, RISKS) if style == "thinking" else ():
                    profile = load_profile(profile_path(out, kind, risk))
                    budget = recording.description["budget"]
                    method = build_method("settled", bits=bits, budget=budget, profile=profile)
                    more, gated = evaluate(recording, [method], risk=risk, kind=kind)
                    rows += more
                    fixed = [o for o in found if o.method == "fixed"]
                    own += [{"risk": risk, "kind": kind, **t} for t in compare(fixed + gated, against=["fixed"])]
                tests += [{**test, "seed": seed, "bits": bits, "style": style} for test in own]
                print(f"{style}, seed {seed}, {bits} bits", flush=True)
    tests = [test for seed in DRAWS for test in corrected([t for t in tests if t["seed"] == seed])]
    write_json(out / "goals.json", {
        "schema": 1, "rows": rows, "comparisons": tests, "environment": environment(),
    })  # fmt: skip
    parts = [
        f"# {title} (seed {seed})\n\n{table([r for r in rows if r['seed'] == seed])}\n\n"
        f"{tests_table([t for t in tests if t['seed'] == seed])}\n"
        for seed, title in DRAWS.items()
    ]
    write_text(out / "goals.md", "\n".join(parts))


def held_out_recording(traces: Path, bits: int, seed: int, style: str = "thinking") -> Recording:
    """A draw of held-out problems at a precision."""
    return open_recording(held_out_folder(traces, bits, seed, style)).recording


def held_out_folder(traces: Path, bits: int, seed: int, style: str = "thinking") -> Path:
    """Where it lies."""
    temperature = "0.6" if style == "thinking" else "0"
    return traces / f"tiny-15m-{bits}bit-{style}-t{temperature}{f'-seed{seed}' if seed else ''}"


def simulate(calibration: list[Recording], held_out: dict[int, Recording], out: Path, draws: int) -> None:
    """How often a certified threshold breaks its promise where the population is known exactly.

    The population is the calibration recording of a precision. A scorer is fitted on the held-out recordings, which it
    does not share a question with; then a calibration sample is drawn from the population again and again, with
    replacement, a threshold is certified on it, and its risk is looked up in the population.
    """
    scorer = fit(list(held_out.values()), risk=0.05, confidence=0.9, share=0.9)
    rng = np.random.default_rng(0)
    told: list[Row] = []
    for recording in calibration:
        looks = recording.table(512, "sentences").judged(scorer.scores)
        own = held_out[int(recording.bits)].table(512, "sentences")
        thresholds = grid(own.judged(scorer.scores).scores)
        lost = np.stack([looks.cut(t).lost for t in thresholds], axis=1)
        population = lost.mean(axis=0)
        column = {t: j for j, t in enumerate(thresholds)}
        for risk in (0.005, 0.01, 0.02):
            for test in P_VALUES:
                for n in (500, 2000):
                    broken = certified = 0
                    for _ in range(draws):
                        sums = lost[rng.integers(0, looks.n, n)].sum(axis=0)
                        losses = dict(zip(thresholds, map(int, sums), strict=True))
                        found = certify(losses.__getitem__, n, thresholds, risk=risk, confidence=0.9, p_value=test)
                        if math.isfinite(found.threshold):
                            certified += 1
                            broken += bool(population[column[found.threshold]] > risk)
                    told.append({
                        "bits": recording.bits, "risk": risk, "p_value": test, "n": n, "draws": draws,
                        "certified": certified / draws, "promise_broken": broken / draws,
                    })  # fmt: skip
        print(f"simulated at {recording.bits:g} bits", flush=True)
    worst = max(float(row["promise_broken"]) for row in told)
    write_json(out / "simulation.json", {
        "schema": 1, "confidence": 0.9, "allowed": 0.1, "worst": worst, "rows": told, "environment": environment(),
    })  # fmt: skip


def why_bits(calibration: list[Recording], held_out: dict[int, Recording], out: Path) -> None:
    """A profile of full precision forced onto fewer bits, the same with a refitted threshold, and others.

    Lost-correct rates on the held-out recording of each precision, at risk 1 %.
    """
    by_bits = {int(r.bits): r for r in calibration}
    options: Row = {"risk": 0.01, "confidence": 0.9}
    full = fit([by_bits[16]], **options)
    pooled = load_profile(profile_path(out, "logistic", 0.01))
    told = []
    for bits, recording in held_out.items():
        looks = recording.table(512, "sentences")
        own = fit([by_bits[bits]], **options)
        refitted = full if bits == 16 else fit([by_bits[bits]], known=full, **options)
        for name, profile, threshold in (
            ("fitted at 16 bits, its threshold reused", full, full.thresholds[16.0]),
            ("fitted at 16 bits, threshold refitted", refitted, refitted.thresholds[float(bits)]),
            ("own scorer and threshold", own, own.thresholds[float(bits)]),
            ("pooled, bits a feature, threshold each", pooled, pooled.thresholds[float(bits)]),
        ):
            cut = looks.judged(profile.scores).cut(threshold)
            lost = wilson(int(cut.lost.sum()), looks.n)
            told.append({
                "bits": bits, "calibrator": name, "threshold": threshold if math.isfinite(threshold) else None,
                "n": looks.n, "lost": lost.value, "lost_low": lost.low, "lost_high": lost.high,
                "tokens": float(cut.cost.mean()), "full_tokens": float(looks.full_tokens.mean()),
                "accuracy": float(cut.correct.mean()), "full_accuracy": float(looks.full_right.mean()),
            })  # fmt: skip
    write_json(out / "why_bits.json", {"schema": 1, "risk": 0.01, "rows": told, "environment": environment()})
    draw_to(out / "why_bits", lambda: why_bits_figure(told, 0.01))


def ablate(calibration: list[Recording], held_out: dict[int, Recording], out: Path) -> None:
    """Groups of features left out, the detector left out, trees for the logistic: at risk 1 %, with paired tests."""

    def without(*starts: str) -> tuple[str, ...]:
        return tuple(name for name in NAMES if not name.startswith(starts))

    groups = {
        "all": NAMES,
        "without log-probabilities and margins": without("logprob", "margin", "probability", "unlikely"),
        "without entropies": without("entropy"),
        "without counts of statements": without("statements", "agreeing", "other_values"),
        "without markers": without(*MARKERS, "redo_since"),
        "without bits": without("coarseness"),
        "without length": without("tokens", "share_of_budget"),
    }
    variants: list[tuple[str, Row]] = [(name, {"features": names}) for name, names in groups.items()]
    variants += [
        ("boosted trees", {"kind": "boosted"}),
        ("label: the full run's answer", {"label": "final"}),
        ("boundaries only, no detector", {"looks": "boundaries"}),
        ("statements and boundaries", {"looks": "both"}),
        ("Hoeffding-Bentkus p-values", {"p_value": "hoeffding_bentkus"}),
    ]
    told = []
    for bits in (4, 2):
        recording = held_out[bits]
        own = [r for r in calibration if r.bits == bits]
        found: list[Outcome] = []
        rows = []
        for name, changes in variants:
            profile = fit(own, **{"risk": 0.01, "confidence": 0.9, **changes})
            looks = recording.table(512, changes.get("looks", "sentences"))
            cut = looks.judged(profile.scores).cut(profile.threshold(bits))
            settings = RequestParameters(name=name, bits=bits, budget=512)
            found += cut.outcomes(recording.traces, settings)
            rows.append({
                "variant": name, "tokens": float(cut.cost.mean()),
                "share_of_full": float(cut.cost.sum() / looks.full_tokens.sum()), "accuracy": float(cut.correct.mean()),
                "full_accuracy": float(looks.full_right.mean()), "lost": float(cut.lost.mean()),
            })  # fmt: skip
        base = [o.tokens for o in found if o.method == "all"]
        for row in rows:
            mine = [o.tokens for o in found if o.method == row["variant"]]
            row["more_tokens_than_all"] = {k: -v for k, v in savings(mine, base)._asdict().items()}
        told.append({"bits": bits, "n": looks.n, "rows": rows, "tests": compare(found, against=["all"])})
        print(f"ablated at {bits} bits", flush=True)
    write_json(out / "ablation.json", {"schema": 1, "risk": 0.01, "ablations": told, "environment": environment()})
    write_text(out / "ablation.md", "\n\n".join(map(ablation_table, told)) + "\n")


def ablation_table(told: Row) -> str:
    """As Markdown."""
    tests = {test["method"]: test for test in told["tests"]}
    lines = [
        f"## {told['bits']} bits, N = {told['n']}, risk 1 %\n",
        "| variant | tokens | of full | lost % | accuracy % | against all, points | p (Holm) | verdict |",
        "|---|---:|---:|---:|---:|---:|---:|---|",
    ]
    for row in told["rows"]:
        shown = test_cells(tests.get(row["variant"]))
        lines.append(
            f"| {row['variant']} | {row['tokens']:.0f} | {row['share_of_full']:.3f} | {100 * row['lost']:.2f} "
            f"| {100 * row['accuracy']:.1f} | {' | '.join(shown)} |"
        )
    return "\n".join(lines)


def field(traces: Path, out: Path) -> None:
    """Every rule on the same traces, at each precision."""
    for bits in BITS:
        told = compare_store(argparse.Namespace(
            traces=held_out_folder(traces, bits, 1), profile=str(profile_path(out, "logistic", 0.01)),
            methods=None, budget=None, target=0.01, json=True, force=False, overrides=[], chunk_size=None,
            min_tokens=None, answers=None, declare=[],
        ))  # fmt: skip
        write_json(out / f"compare-{bits}.json", {"schema": 1, **told})
        print(f"compared at {bits} bits", flush=True)
    field_table(out)


def field_table(out: Path) -> None:
    """The points that every rule would choose, by precision: share of the full run's tokens, and what is lost."""
    told = {bits: json.loads((out / f"compare-{bits}.json").read_text()) for bits in BITS}
    for bits, result in told.items():
        draw_to(out / f"frontier-{bits}", lambda r=result: frontier_figure(r))  # type: ignore[misc]
    lines = [
        f"| rule | at most lost | {' | '.join(f'{bits} bits' for bits in BITS)} |",
        f"|---|---:|{'---:|' * len(BITS)}",
    ]
    names = list(dict.fromkeys(row["method"] for result in told.values() for row in result["rows"]))
    for name in names:
        for target in (None, 0.01, 0.05):
            cells = []
            for bits in BITS:
                rows = [r for r in told[bits]["rows"] if (r["method"], r["target"]) == (name, target)]
                cells += [f"{1 - r['savings']:.2f} ({100 * r['lost_correct_rate']:.2f} %)" for r in rows] or ["-"]
            if set(cells) != {"-"}:
                shown = ("certified" if name == "settled" else "") if target is None else f"{100 * target:g} %"
                lines.append(f"| {name} | {shown} | {' | '.join(cells)} |")
    write_text(out / "field.md", "\n".join(lines) + "\n")


def main() -> None:
    """Fit, replay, simulate, ablate, compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--parts", default="fit,goals,simulate,why_bits,ablate,field", help="comma-separated (all)")
    parser.add_argument("--draws", type=int, default=1000, help="of the simulation (%(default)s)")
    args = parser.parse_args()
    warnings.simplefilter("ignore", UnreachableStopWarning)
    args.out.mkdir(parents=True, exist_ok=True)

    @cache
    def calibration() -> list[Recording]:
        return [
            open_recording(args.traces / f"tiny-15m-{bits}bit-thinking-t0.6-calibration").recording for bits in BITS
        ]

    @cache
    def fresh() -> dict[int, Recording]:
        return {bits: held_out_recording(args.traces, bits, 1) for bits in BITS}

    parts: dict[str, Callable[[], None]] = {
        "fit": lambda: fit_profiles(calibration(), args.out),
        "goals": lambda: goals(args.traces, args.out),
        "simulate": lambda: simulate(calibration(), fresh(), args.out, args.draws),
        "why_bits": lambda: why_bits(calibration(), fresh(), args.out),
        "ablate": lambda: ablate(calibration(), fresh(), args.out),
        "field": lambda: field(args.traces, args.out),
        "field_table": lambda: field_table(args.out),
    }
    for part in args.parts.split(","):
        parts[part]()


if __name__ == "__main__":
    main()
