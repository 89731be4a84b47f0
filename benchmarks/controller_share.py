"""Controller time as a share of decode time, live, at batch 1 and 32 (goal: at most 1 %)."""

from __future__ import annotations

import time
from typing import Any

from bitcal_tts import Decision, Step, build_method
from bitcal_tts.halting.paper import PaperRule
from common import arguments, load, median, report, requests


class Timed(PaperRule):
    """A method that measures itself and never halts, so that every step is decided on."""

    spent = 0.0
    steps = 0

    def fresh(self) -> Timed:
        """The same for another request."""
        return Timed(self.parameters)

    def observe(self, step: Step) -> Decision:
        """Decide, and take the time."""
        began = time.perf_counter()
        decision = super().observe(step)
        Timed.spent += time.perf_counter() - began
        Timed.steps += 1
        return decision


def measure(engine: Any, batch: int, n: int) -> dict[str, float]:
    """One live run: share, and microseconds a decision."""
    Timed.spent, Timed.steps = 0.0, 0
    never = build_method("bitcal_tts", bits=4, budget=256, min_tokens=10**6)
    began = time.perf_counter()
    list(engine.decode(requests(n, 256, Timed(never.parameters)), batch_size=batch))
    total = time.perf_counter() - began
    return {"share": Timed.spent / total, "microseconds_a_step": 1e6 * Timed.spent / Timed.steps}


def main() -> None:
    """Measure and report."""
    args = arguments(__doc__ or "")
    engine = load(args)
    list(engine.decode(requests(4, 16), batch_size=4))
    rows = []
    for batch, n in ((1, 2), (32, 64)):
        runs = [measure(engine, batch, n) for _ in range(args.repeats)]
        rows.append({
            "batch": batch,
            "controller_over_decode_time": median([r["share"] for r in runs]),
            "microseconds_a_step": median([r["microseconds_a_step"] for r in runs]),
            "goal": "<= 0.01",
        })  # fmt: skip
    report("controller_share", args, rows)


if __name__ == "__main__":
    main()
