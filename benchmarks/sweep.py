"""1,319 traces x 1,000 thresholds: the vectorised sweep (goal: under 10 s) against one replay a threshold."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

from bitcal_tts import build_method
from bitcal_tts.tasks import load_task
from bitcal_tts.traces.record import record
from bitcal_tts.traces.replay import outcomes
from bitcal_tts.traces.sweep import Sweep
from common import arguments, load, report, timed

N, THRESHOLDS, BUDGET = 1319, 1000, 256


def main() -> None:
    """Record (not timed), sweep, and replay a few thresholds for comparison."""
    args = arguments(__doc__ or "")
    task = load_task()
    with tempfile.TemporaryDirectory() as folder:
        store = record(load(args), task, Path(folder) / "t", n=N, budget=BUDGET, batch_size=64, block_size=N)
        traces = store.read()
    methods = [
        build_method("bitcal_tts", bits=args.bits, budget=BUDGET, min_tokens=48, stop_confidence=float(c), tail=False)
        for c in np.linspace(0, 1, THRESHOLDS)
    ]
    seconds, results = timed(lambda: Sweep(traces, methods[0], task).run([m.parameters for m in methods]))
    few = methods[:: THRESHOLDS // 5]
    replay_seconds, replayed = timed(lambda: [outcomes(traces, m, task) for m in few])
    for method, found in zip(few, replayed, strict=True):
        assert results[methods.index(method)].tokens.tolist() == [o.tokens for o in found]
    one_by_one = replay_seconds / len(few) * THRESHOLDS
    report("sweep", args, [{
        "traces": N,
        "thresholds": THRESHOLDS,
        "seconds": seconds,
        "seconds_one_replay_a_threshold_estimated": one_by_one,
        "speedup": one_by_one / seconds,
        "goal": "< 10 s",
    }])  # fmt: skip


if __name__ == "__main__":
    main()
