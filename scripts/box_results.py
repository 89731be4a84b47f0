"""What `settled` reaches on the largest model in the box, from the recordings of `scripts/box_run.py`.

    python scripts/box_results.py --traces runs/box --out results/box --parts fit   # then commit, then record the test
    python scripts/box_results.py --traces runs/box --out results/box

Parts: `fit` writes the profiles from the calibration recordings alone; `promises` replays them on held-out problems of
held-out templates, on other problems and on another training seed; `bits` asks whether the precision or the error rate
breaks a promise made at 16 bits; `draws` certifies again and again on draws from the held-out problems, as many as
there might have been; `budgets` cuts the budget; `field` compares every rule on the same traces. Written:
profiles/*.json, promises.json, bits.json, draws.json, budgets.json, compare-BITS.json with a figure each, results.md.
"""

from __future__ import annotations

import argparse
import json
import warnings
from pathlib import Path
from typing import Any

from bitcal_tts import UnreachableStopWarning, build_method
from bitcal_tts.calibration.fit import fit
from bitcal_tts.calibration.recording import Recording
from bitcal_tts.calibration.store import load_profile, save_profile
from bitcal_tts.commands.compare import compare_store
from bitcal_tts.commands.recordings import open_recording
from bitcal_tts.evaluation.comparison import compare
from bitcal_tts.evaluation.drawing import draw_to
from bitcal_tts.evaluation.evidence import frontier_figure
from bitcal_tts.evaluation.statistics import wilson
from bitcal_tts.files import write_json, write_text
from bitcal_tts.halting.profile import Profile
from bitcal_tts.traces.outcome import Outcome
from bitcal_tts.traces.record import environment
from bitcal_tts.traces.replay import outcomes
from promises import Population
from promises import promises as of_draws
from promises import tables as draw_tables

BITS = (16, 4, 2)
CONFIDENCE = 0.9
BUDGETS = (256, 512, 768, 1024, 1536)
PROFILES: dict[str, tuple[str, tuple[int, ...], float]] = {
    "tiny-15m-0.01": ("tiny-15m", BITS, 0.01),
    "tiny-15m-0.05": ("tiny-15m", BITS, 0.05),
    "tiny-15m-16bit-0.01": ("tiny-15m", (16,), 0.01),
    "tiny-4m-0.02": ("tiny-4m", (4,), 0.02),
    "tiny-4m-seed1-0.02": ("tiny-4m-seed1", (4,), 0.02),
}
"""By name: the model, the precisions whose texts are pooled, and the risk."""
PARTS = ("fit", "promises", "bits", "draws", "budgets", "field")
DRAWS = 400
Row = dict[str, Any]


def recording(
    traces: Path, model: str, bits: int, split: str = "test", task: str = "stories", t: str = "0.6"
) -> Recording:
    """One of the recordings."""
    return open_recording(traces / f"{model}-{bits}bit-thinking-t{t}-{task}-{split}").recording


def fit_all(traces: Path, out: Path) -> None:
    """From calibration recordings alone."""
    for name, (model, bits, risk) in PROFILES.items():
        known = [recording(traces, model, one, "calibration") for one in bits]
        save_profile(out / "profiles" / f"{name}.json", fit(known, risk=risk, confidence=CONFIDENCE))
        print(name, flush=True)


def load(out: Path, name: str) -> Profile:
    """A fitted profile."""
    return load_profile(out / "profiles" / f"{name}.json")


class Held:
    """A recording of problems that no profile was fitted on, and the baseline on it."""

    def __init__(self, of: Recording) -> None:
        self.of, self.full_budget = of, int(of.description["budget"])
        self._landed: dict[int, list[Outcome]] = {}

    def landed(self, budget: int) -> list[Outcome]:
        """To the end, and where the budget runs out landed like every other method."""
        if budget not in self._landed:
            opening, close = self.of.description["thinking"]
            method = build_method(
                "landed",
                bits=self.of.bits,
                budget=budget,
                answers=self.of.task.format.name,
                opening=opening,
                close=close,
            )
            self._landed[budget] = outcomes(self.of.traces, method, self.of.task)
        return self._landed[budget]

    def settled(self, profile: Profile, budget: int, *, forced: bool) -> tuple[Row, list[Outcome]]:
        """What a profile does, against the baseline: accuracy, tokens and what is lost, with intervals."""
        method = build_method("settled", bits=self.of.bits, budget=budget, profile=profile, force=forced)
        done = outcomes(self.of.traces, method, self.of.task, identity=self.of.identity)
        base, n = self.landed(budget), len(done)
        lost = sum(b.correct and not d.correct for d, b in zip(done, base, strict=True))
        right, full = (wilson(sum(o.correct for o in some), n) for some in (done, base))
        return {
            "n": n,
            "accuracy": right._asdict(),
            "landed_accuracy": full._asdict(),
            "tokens": sum(o.cost for o in done) / n,
            "landed_tokens": sum(o.cost for o in base) / n,
            "share": sum(o.cost for o in done) / max(1, sum(o.cost for o in base)),
            "lost": wilson(lost, n)._asdict(),
        }, done

    def promise(self, profile: Profile, risk: float, where: str, *, forced: bool = False) -> Row:
        """Whether a promise is kept; where it is served elsewhere than promised, it is forced."""
        row, done = self.settled(profile, self.full_budget, forced=forced)
        (test,) = compare([*self.landed(self.full_budget), *done], base="settled")
        told = {"risk": risk, "where": where, "bits": self.of.bits, "forced": forced}
        return {**row, **told, "kept": row["lost"]["value"] <= risk, "against_landed": test}


def promises(traces: Path, out: Path) -> None:
    """The profiles on problems they have not seen: of the same task, of others, and on another training seed."""
    known = {risk: load(out, f"tiny-15m-{risk}") for risk in (0.01, 0.05)}
    rows = []
    for where, bits, split, task in (
        *(("held-out templates", bits, "test", "stories") for bits in BITS),
        ("gsm_symbolic, unseen templates", 4, "unseen", "gsm_symbolic"),
        ("sums", 4, "test", "chain_sum"),
    ):
        held = Held(recording(traces, "tiny-15m", bits, split, task))
        rows += [held.promise(known[risk], risk, where, forced=task != "stories") for risk in known]
    rows.sort(key=lambda row: row["risk"])
    for model in ("tiny-4m", "tiny-4m-seed1"):
        rows.append(Held(recording(traces, model, 4)).promise(load(out, f"{model}-0.02"), 0.02, model))
    write_json(
        out / "promises.json", {"schema": 1, "confidence": CONFIDENCE, "rows": rows, "environment": environment()}
    )


def why_bits(traces: Path, out: Path) -> None:
    """The profile of 16 bits on 2 bits, and on texts at 16 bits that are wrong as often."""
    profile = load(out, "tiny-15m-16bit-0.01")
    rows = [
        Held(of).promise(profile, 0.01, where, forced=forced)
        for where, of, forced in (
            ("tiny-15m, 16 bits: what it was fitted for", recording(traces, "tiny-15m", 16), False),
            ("tiny-15m, 4 bits", recording(traces, "tiny-15m", 4), True),
            ("tiny-15m, 2 bits", recording(traces, "tiny-15m", 2), True),
            ("tiny-15m, 16 bits, T=1.3", recording(traces, "tiny-15m", 16, t="1.3"), True),
            ("tiny-1m, 16 bits", recording(traces, "tiny-1m", 16), True),
        )
    ]
    write_json(out / "bits.json", {"schema": 1, "rows": rows, "environment": environment()})


def draws(traces: Path, out: Path) -> None:
    """How often a promise breaks, and what it saves, by how many items it was certified on; the population is known."""
    profile, rows = load(out, "tiny-15m-0.01"), []
    for bits in BITS:
        of = recording(traces, "tiny-15m", bits)
        table = of.table(int(of.description["budget"]), "sentences").judged(profile.scores)
        rows += of_draws(f"{bits} bits", Population(table), DRAWS)
    write_json(out / "draws.json", {"schema": 1, "confidence": CONFIDENCE, "rows": rows, "environment": environment()})


def budgets(traces: Path, out: Path) -> None:
    """What the threshold that was certified at the full budget saves and loses at smaller ones; there it is forced."""
    profile, rows = load(out, "tiny-15m-0.01"), []
    for bits in BITS:
        held = Held(recording(traces, "tiny-15m", bits))
        for budget in BUDGETS:
            forced = budget != held.full_budget
            row, _ = held.settled(profile, budget, forced=forced)
            rows.append({"bits": bits, "budget": budget, "forced": forced, **row})
    write_json(out / "budgets.json", {"schema": 1, "rows": rows, "environment": environment()})


def field(traces: Path, out: Path) -> None:
    """Every rule on the same traces, at each precision."""
    for bits in BITS:
        told = compare_store(argparse.Namespace(
            traces=traces / f"tiny-15m-{bits}bit-thinking-t0.6-stories-test",
            profile=str(out / "profiles" / "tiny-15m-0.01.json"), methods=None, budget=None, target=0.01, json=True,
            force=False, overrides=[], chunk_size=None, min_tokens=None, answers=None, declare=[],
        ))  # fmt: skip
        write_json(out / f"compare-{bits}.json", {"schema": 1, **told})
        print(f"compared at {bits} bits", flush=True)


def report(out: Path) -> None:
    """All that is there, as Markdown."""
    parts = ["# On the models in the box\n"]
    for name, title in (("promises", "Promises on what was not seen"), ("bits", "A profile of 16 bits elsewhere")):
        if (out / f"{name}.json").is_file():
            parts.append(promise_table(title, json.loads((out / f"{name}.json").read_text())["rows"]))
    if (out / "draws.json").is_file():
        parts.append(draw_tables(json.loads((out / "draws.json").read_text())["rows"]).replace("# ", "## ", 1))
    if (out / "budgets.json").is_file():
        parts.append(budget_table(json.loads((out / "budgets.json").read_text())["rows"]))
    told = {b: json.loads(p.read_text()) for b in BITS if (p := out / f"compare-{b}.json").is_file()}
    if told:
        parts.append(field_table(told))
        for bits, result in told.items():
            draw_to(out / f"frontier-{bits}", lambda r=result: frontier_figure(r))  # type: ignore[misc]
    write_text(out / "results.md", "\n".join(parts))


def percent(interval: Row, digits: int = 1) -> str:
    """A share with its interval."""
    value, low, high = (100 * interval[key] for key in ("value", "low", "high"))
    return f"{value:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def promise_table(title: str, rows: list[Row]) -> str:
    """As Markdown."""
    lines = [
        f"## {title}\n",
        "| where | bits | promised | N | landed: accuracy % @ tokens | settled: accuracy % | of the tokens | lost % | "
        "kept | points against landed (p, Holm) |",
        "|---|---:|---:|---:|---|---|---:|---:|---|---|",
    ]
    for r in rows:
        test, how = r["against_landed"], " (forced)" if r["forced"] else ""
        lines.append(
            f"| {r['where']} | {r['bits']:g} | {100 * r['risk']:g} %{how} | {r['n']:,} "
            f"| {percent(r['landed_accuracy'])} @ {r['landed_tokens']:.0f} | {percent(r['accuracy'])} "
            f"| {r['share']:.3f} | {percent(r['lost'], 2)} | {'yes' if r['kept'] else '**no**'} "
            f"| {100 * test['difference']:+.1f} ({test['p_corrected']:.1g}, {test['verdict']}) |"
        )
    return "\n".join(lines) + "\n"


def budget_table(rows: list[Row]) -> str:
    """As Markdown."""
    lines = [
        "## Smaller budgets\n",
        "| bits | budget | landed: accuracy % @ tokens | settled: accuracy % | of the tokens | lost % |",
        "|---:|---:|---|---|---:|---:|",
    ]
    for r in rows:
        lines.append(
            f"| {r['bits']} | {r['budget']:,}{' (forced)' if r['forced'] else ''} | {percent(r['landed_accuracy'])} @ "
            f"{r['landed_tokens']:.0f} | {percent(r['accuracy'])} | {r['share']:.3f} | {percent(r['lost'], 2)} |"
        )
    return "\n".join(lines) + "\n"


def field_table(told: dict[int, Row]) -> str:
    """The points that every rule would choose, by precision: share of the full run's tokens, and what is lost."""
    lines = [
        "## Every rule on the same traces\n",
        f"| rule | at most lost | {' | '.join(f'{bits} bits' for bits in told)} |",
        f"|---|---:|{'---|' * len(told)}",
    ]
    names = list(dict.fromkeys(row["method"] for result in told.values() for row in result["rows"]))
    for name in names:
        for target in (None, 0.01, 0.05):
            cells = []
            for result in told.values():
                rows = [r for r in result["rows"] if (r["method"], r["target"]) == (name, target)]
                cells += [
                    f"{1 - r['savings']:.2f} ({1 - r['savings_probes_free']:.2f}), {100 * r['lost_correct_rate']:.2f} %"
                    for r in rows
                ][:1] or ["-"]
            if set(cells) != {"-"}:
                shown = ("certified 1 %" if name == "settled" else "") if target is None else f"{100 * target:g} %"
                lines.append(f"| {name} | {shown} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """The parts that are asked for, then the report of all that is there."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--parts", default=",".join(PARTS[1:]), help=f"of {','.join(PARTS)} (%(default)s)")
    args = parser.parse_args()
    warnings.simplefilter("ignore", UnreachableStopWarning)
    (args.out / "profiles").mkdir(parents=True, exist_ok=True)
    parts = {"fit": fit_all, "promises": promises, "bits": why_bits, "draws": draws, "budgets": budgets, "field": field}
    for part in filter(None, args.parts.split(",")):
        parts[part](args.traces, args.out)
    report(args.out)


if __name__ == "__main__":
    main()
