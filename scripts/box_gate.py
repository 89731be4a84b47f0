"""The gate that reads values and the question beside the one it replaces, on live landings of a model in the box.

    python scripts/box_gate.py --calibration runs/box/calibration --test runs/box/test

Both folders are recorded with probes, so that what the model answers after a landing is known at every look: also how
often that is another answer than the one read off the text. Writes results/real_texts/box.json.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np

from bitcal_tts.calibration.fit import fit
from bitcal_tts.calibration.recording import Recording
from bitcal_tts.commands.recordings import open_recording
from bitcal_tts.evaluation.statistics import wilson
from bitcal_tts.files import write_json
from bitcal_tts.halting.features import NAMES, OF_THE_TEXT, signal_of
from bitcal_tts.halting.signals import TEXT_ONLY
from bitcal_tts.traces.record import environment
from bitcal_tts.traces.schema import SIGNAL_COLUMNS

GATES: dict[str, dict[str, Any]] = {
    "statements, logistic (0.1)": {"looks": "statements", "features": OF_THE_TEXT, "kind": "logistic"},
    "statements, trees": {"looks": "statements", "features": OF_THE_TEXT, "kind": "boosted"},
    "values and question, logistic": {"looks": "sentences", "features": NAMES, "kind": "logistic"},
    "values and question, trees": {"looks": "sentences", "features": NAMES, "kind": "boosted"},
    "values and question, trees, text only": {
        "looks": "sentences", "features": [n for n in NAMES if signal_of(n) is None], "kind": "boosted",
    },
}  # fmt: skip


def main() -> None:
    """Compare and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calibration", type=Path, required=True)
    parser.add_argument("--test", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "results/real_texts/box.json")
    args = parser.parse_args()
    calibration, test = (open_recording(folder).recording for folder in (args.calibration, args.test))
    budget, rows = int(test.description["budget"]), []
    for name, settings in GATES.items():
        for risk in (0.01, 0.02):
            profile = fit([calibration], risk=risk, confidence=0.9, **settings)
            table = test.table(budget, settings["looks"]).judged(profile.scores)
            threshold = profile.threshold(test.bits)
            cut = table.cut(threshold) if math.isfinite(threshold) else table.full()
            lost = wilson(int(cut.lost.sum()), table.n)
            rows.append({
                "gate": name, "risk": risk, "n": table.n, "share": cut.share,
                "lost": float(cut.lost.mean()), "lost_low": lost.low, "lost_high": lost.high,
                "accuracy": float(cut.correct.mean()), "full_accuracy": float(cut.full_correct.mean()),
            })  # fmt: skip
            print(rows[-1])
    read = _read_off(calibration, test, budget)
    print(read)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    write_json(args.out, {
        "model": test.description["model"], "bits": test.bits, "temperature": 0.6,
        "calibration": len(calibration.traces), "rows": rows, "read_off_the_text": read, "environment": environment(),
    })  # fmt: skip


def _read_off(calibration: Recording, test: Recording, budget: int) -> dict[str, Any]:
    """At the same stops: what the model answers, and what is read off the text."""
    profile = fit([calibration], risk=0.02, confidence=0.9, **GATES["values and question, trees, text only"])
    threshold = profile.threshold(test.bits)
    blind = [
        dataclasses.replace(trace, probes=None, signals=TEXT_ONLY, **dict.fromkeys(SIGNAL_COLUMNS))  # type: ignore[arg-type]
        for trace in test.traces
    ]
    texts = Recording({**test.description, "probes": None}, blind, test.task, test.identity)
    table = test.table(budget, "sentences").judged(profile.scores)
    live = table.cut(threshold)
    read = texts.table(budget, "sentences").judged(profile.scores).cut(threshold)
    both = live.halted & read.halted
    landings = (live.tokens - table.places(np.full(table.n, threshold)))[both]
    return {
        "stopped": int(both.sum()),
        "lost_live": float(live.lost.mean()),
        "lost_read": float(read.lost.mean()),
        "right_live_wrong_read": int((both & live.correct & ~read.correct).sum()),
        "wrong_live_right_read": int((both & ~live.correct & read.correct).sum()),
        "landing_tokens": [float(quantile) for quantile in np.quantile(landings, (0.05, 0.5, 0.95))],
    }


if __name__ == "__main__":
    main()
