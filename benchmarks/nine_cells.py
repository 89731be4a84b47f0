"""Three methods at three budgets: one recording and nine replays against nine separate live decodes."""

from __future__ import annotations

import tempfile
from pathlib import Path

from bitcal_tts import build_method
from bitcal_tts.tasks import load_task
from bitcal_tts.traces.record import record
from bitcal_tts.traces.replay import outcomes
from common import arguments, load, report, requests, timed

BATCH, N, BUDGETS = 32, 96, (128, 256, 512)
METHODS = ("fixed", "adaptive", "bitcal_tts")


def main() -> None:
    """Measure both ways once."""
    args = arguments(__doc__ or "")
    engine = load(args)
    task = load_task()
    cells = [build_method(m, bits=args.bits, budget=b, min_tokens=48) for m in METHODS for b in BUDGETS]
    list(engine.decode(requests(4, 16), batch_size=4))

    def live() -> None:
        for method in cells:
            list(engine.decode(requests(N, method.parameters.budget, method), batch_size=BATCH))

    def record_once() -> None:
        with tempfile.TemporaryDirectory() as folder:
            store = record(engine, task, Path(folder) / "t", n=N, budget=max(BUDGETS), batch_size=BATCH, block_size=N)
            traces = store.read()
            for method in cells:
                outcomes(traces, method, task)

    separate, _ = timed(live)
    once, _ = timed(record_once)
    report("nine_cells", args, [{
        "n": N,
        "seconds_nine_decodes": separate,
        "seconds_record_once_replay_nine": once,
        "speedup": separate / once,
    }])  # fmt: skip


if __name__ == "__main__":
    main()
