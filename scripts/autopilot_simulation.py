"""Does looking after every request cost the promise? Many autopilots whose thresholds lose too often by a hair.

    python scripts/autopilot_simulation.py

Each run tries its thresholds on requests until there are no more, and begins to stop as soon as one passes. At the
boundary, where losses come exactly at the risk, a promise is wrong, and may be made in at most 1 - confidence of the
runs. Runs whose strictest thresholds keep the risk may promise those and none of the others. Then the alarm: how often
it goes off where the promise is kept, and how many answers are lost until it does where it is not.
Writes results/autopilot/simulation.json.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from bitcal_tts.calibration.anytime import Alarm
from bitcal_tts.calibration.recording import BLANK
from bitcal_tts.calibration.risk import binomial_p_value
from bitcal_tts.evaluation.statistics import wilson
from bitcal_tts.files import write_json
from bitcal_tts.serving.pilot import PATIENCE
from bitcal_tts.serving.rounds import Round, Trial
from bitcal_tts.traces.record import environment

RISK, CONFIDENCE = 0.02, 0.9
RATES = {
    "all at the risk": (0.02, 0.02, 0.02, 0.02),
    "two keep it, two do not": (0.004, 0.01, 0.02, 0.03),
    "all keep it": (0.002, 0.004, 0.008, 0.012),
}


def promised(rates: tuple[float, ...], runs: int, requests: int, rng: np.random.Generator) -> dict[str, Any]:
    """How many runs promise what they may not, and when the first promise comes."""
    wrong = 0
    first: list[int] = []
    for run in range(runs):
        one = Round(BLANK, [float(len(rates) - i) for i in range(len(rates))], RISK, 1 - CONFIDENCE)
        # One draw a request: a looser threshold loses what a stricter one loses, and more.
        for n, draw in enumerate(rng.random(requests)):
            lost: list[bool | None] = [bool(draw < rate) for rate in rates]
            one.take(Trial(lost, [50] * len(rates), 100, 0.5))
            if one.passed and len(first) == run:
                first.append(n + 1)
        if not one.passed:
            first.append(requests)
        wrong += any(rate >= RISK for rate in rates[: one.passed])
    interval = wilson(wrong, runs)
    return {
        "rates": rates, "runs": runs, "requests": requests, "wrong_promises": wrong, "share": wrong / runs,
        "low": interval.low, "high": interval.high, "first_promise_median": float(np.median(first)),
    }  # fmt: skip


def peeking(runs: int, requests: int, rng: np.random.Generator) -> dict[str, Any]:
    """What an exact test for a fixed number of requests does when it is asked after every one of them."""
    most = int(requests * RISK * 3)
    passes = np.zeros((requests, most), dtype=np.bool_)
    for n in range(1, requests + 1):
        for k in range(min(most, n + 1)):
            passes[n - 1, k] = binomial_p_value(k, n, RISK) <= 1 - CONFIDENCE
    wrong = 0
    for _ in range(runs):
        losses = np.minimum(np.cumsum(rng.random(requests) < RISK), most - 1)
        wrong += bool(passes[np.arange(requests), losses].any())
    interval = wilson(wrong, runs)
    return {"runs": runs, "requests": requests, "share": wrong / runs, "low": interval.low, "high": interval.high}


def alarms(
    true: float, runs: int, requests: int, shadow: float, rng: np.random.Generator, before: int = 200
) -> dict[str, Any]:
    """How often the alarm goes off within so many shadow requests after a change, and answers lost until then."""
    went = 0
    lost: list[float] = []
    for _ in range(runs):
        alarm = Alarm(RISK, PATIENCE)
        for _ in range(before):
            alarm.take(lost=bool(rng.random() < RISK / 4))
        if alarm.rung:
            continue
        for draw in rng.random(requests):
            alarm.take(lost=bool(draw < true))
            if alarm.rung:
                went += 1
                lost.append((alarm.n - before) * (1 - shadow) / shadow * true)
                break
    interval = wilson(went, runs)
    return {
        "rate": true, "runs": runs, "shadow_requests": requests, "share": went / runs, "low": interval.low,
        "high": interval.high, "answers_lost_median": float(np.median(lost)) if lost else None,
    }  # fmt: skip


def main() -> None:
    """Simulate and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=500)
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "results/autopilot/simulation.json")
    args = parser.parse_args()
    rng = np.random.default_rng(20261116)
    found: dict[str, Any] = {"risk": RISK, "confidence": CONFIDENCE, "patience": PATIENCE}
    found["promises"] = {name: promised(rates, args.runs, args.requests, rng) for name, rates in RATES.items()}
    found["a fixed-sample test, asked every time"] = peeking(args.runs, args.requests, rng)
    found["alarms"] = [alarms(rate, args.runs, 500, 0.05, rng) for rate in (0.01, 0.02, 0.05, 0.1, 0.2, 0.4)]
    args.out.parent.mkdir(parents=True, exist_ok=True)
    write_json(args.out, {**found, "environment": environment()})
    for name, row in found["promises"].items():
        wrong = f"wrong promises {row['share']:.1%} of {row['runs']} runs"
        print(f"{name}: {wrong}, first promise after {row['first_promise_median']:.0f}")
    print(f"a fixed-sample test asked every time: {found['a fixed-sample test, asked every time']['share']:.1%} wrong")
    for row in found["alarms"]:
        lost = row["answers_lost_median"]
        print(f"losses at {row['rate']:.0%}: alarm in {row['share']:.1%}, answers lost until then {lost}")


if __name__ == "__main__":
    main()
