"""The autopilot on recorded traffic, in many orders: when it promises, what that saves, and whether it is kept.

    python scripts/autopilot_replay.py TRACES --orders 12

TRACES is a recording with probes at sentence ends. Each order of it is traffic of its own, half of which is sampled;
what side requests would have answered was recorded. Losses and savings are then counted on all requests that the pilot
has not seen. Writes results/autopilot/replay.json.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import anyio
import numpy as np
from numpy.typing import NDArray

from bitcal_tts.commands.recordings import open_recording
from bitcal_tts.evaluation.statistics import wilson
from bitcal_tts.files import write_json
from bitcal_tts.halting.identity import Identity
from bitcal_tts.serving.memory import Memory
from bitcal_tts.serving.observing import spread
from bitcal_tts.serving.pilot import ASKED, Pilot
from bitcal_tts.serving.rounds import Kept, Round, Trial, Tried
from bitcal_tts.serving.state import Setting, Terms
from bitcal_tts.traces.looks import LookTable
from bitcal_tts.traces.record import environment

RISKS = (0.02, 0.05)
_held: dict[str, Any] = {}


def asked(table: LookTable, phase: float) -> Tried:
    """What the pilot asks of a request that it learns from."""
    return Tried(table.only(np.array(spread(len(table), ASKED, phase), dtype=np.int64)), None, 0)


def tried(table: LookTable, thresholds: list[float], wanted: range, scores: Any) -> Tried:
    """What it asks of one that a round is tried on."""
    judged = table.judged(scores)
    trial = Trial([None] * len(thresholds), [None] * len(thresholds), int(table.full_tokens[0]),
                  float(judged.first_scores()[0]))  # fmt: skip
    looks = set()
    for which in wanted:
        cut = judged.cut(thresholds[which])
        trial.lost[which], trial.cost[which] = bool(cut.changed[0]), int(cut.tokens[0])
        looks |= set(judged.first_looks(thresholds[which]).tolist())
    return Tried(table.only(np.array(sorted(looks - {-1}), dtype=np.int64)), trial, 0)


def kept(table: LookTable, standing: Round, served: int) -> Kept | None:
    """What a promise that stands would have made of a request."""
    trial = tried(table, standing.thresholds, range(served, served + 1), standing.scorer.scores).trial
    return None if trial is None else trial.kept(served)


def course(job: tuple[int, float]) -> dict[str, Any]:
    """One order of the requests at one risk."""
    order, risk = job
    table, parts, most = _held["table"], _held["parts"], _held["requests"]
    rng = np.random.default_rng(order)
    traffic = rng.permutation(table.n)[:most]
    sampled = rng.random(len(traffic)) < Terms(risk).learn
    events: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        pilot = Pilot(_held["setting"], Terms(risk), Memory(Path(folder)))
        state = pilot.state
        served: tuple[list[float], int | None] | None = None
        for number, request in enumerate(traffic.tolist()):
            if not sampled[number]:
                continue
            of = state.round
            if of is None:
                found = asked(parts[request], rng.random())
            else:
                found = tried(parts[request], of.thresholds, pilot._wanted(of), of.scorer.scores)
            if state.standing is not None and state.served is not None:
                found = found._replace(kept=kept(parts[request], state.standing, state.served))
            pilot._apply(found, of)
            if state.round is None:
                anyio.run(pilot._fit_when_due)
            now = None if state.serving is None else (state.serving.thresholds, state.served)
            if now != served:
                events.append({"request": number + 1, **_worth(pilot, traffic[: number + 1])})
                served = now
    return {"order": order, "risk": risk, "events": events}


def _worth(pilot: Pilot, seen: NDArray[np.int64]) -> dict[str, Any]:
    """What is served from now on, on requests that it has not seen."""
    of, which = pilot.state.serving, pilot.state.served
    if of is None or which is None:
        return {"scorer": pilot.state.rounds, "share": 1.0, "lost": 0, "n": 0}
    rest = np.setdiff1d(np.arange(_held["table"].n), seen)
    cut = _held["table"].of(rest).judged(of.scorer.scores).cut(of.thresholds[which])
    return {"scorer": pilot.state.rounds, "share": cut.share, "lost": int(cut.changed.sum()), "n": len(rest)}


def main() -> None:
    """Replay and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", type=Path)
    parser.add_argument("--orders", type=int, default=12)
    parser.add_argument("--requests", type=int, default=3000, help="of each order (%(default)s)")
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "results/autopilot/replay.json")
    args = parser.parse_args()
    opened = open_recording(args.traces)
    about = opened.description
    table = opened.recording.table(about["budget"], "sentences")
    setting = Setting(
        Identity({"model": about["model"]}), float(about["bits"]), about["budget"], opened.task.format.name,
        tuple(about["thinking"] or (None, None)),
    )  # fmt: skip
    _held.update(table=table, parts=[table.of([i]) for i in range(table.n)], setting=setting, requests=args.requests)
    jobs = [(order, risk) for order in range(args.orders) for risk in RISKS]
    with ProcessPoolExecutor(os.cpu_count(), multiprocessing.get_context("fork")) as pool:
        courses = list(pool.map(course, jobs))
    found: dict[str, Any] = {"traces": table.n, "requests": args.requests, "orders": args.orders, "confidence": 0.9}
    found["risks"] = {str(risk): summary([one for one in courses if one["risk"] == risk], risk) for risk in RISKS}
    write_json(args.out, {**found, "courses": courses, "environment": environment()})
    print(found)


def summary(courses: list[dict[str, Any]], risk: float) -> dict[str, Any]:
    """Of all orders at a risk: the first promise, what is served at the end, and promises that were not kept."""
    promised = [[event for event in one["events"] if event["n"]] for one in courses]
    firsts = [events[0]["request"] for events in promised if events]
    broken = [any(wilson(event["lost"], event["n"]).low > risk for event in events) for events in promised]
    ends = [one["events"][-1]["share"] if one["events"] else 1.0 for one in courses]
    losses = [
        one["events"][-1]["lost"] / one["events"][-1]["n"]
        for one in courses
        if one["events"] and one["events"][-1]["n"]
    ]
    return {
        "promised": len(firsts), "first_promise_median": float(np.median(firsts)) if firsts else None,
        "broken": sum(broken), "share_at_the_end_median": float(np.median(ends)),
        "share_at_the_end": sorted(round(share, 3) for share in ends),
        "lost_at_the_end_median": float(np.median(losses)) if losses else None,
    }  # fmt: skip


if __name__ == "__main__":
    main()
