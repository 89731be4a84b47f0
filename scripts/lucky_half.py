"""Whether the problems that certified a profile are easier to stop at than others, or only for its own scorer.

    python scripts/lucky_half.py --profile results/box/profiles/tiny-15m-0.01.json --bits 4 \
        --certified runs/box/tiny-15m-4bit-thinking-t0.6-stories-calibration --others runs/others --out FILE

`--certified` holds the problems that the profile was fitted and certified on, recorded again or not; `--others` more of
the same split, by another seed. Lost answers of the profile at its own threshold; then of scorers that have seen none
of the certified problems, at thresholds that need the same tokens on the other problems.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bitcal_tts import load_profile
from bitcal_tts.calibration.fit import KINDS, fit_scorer
from bitcal_tts.calibration.recording import mark_of
from bitcal_tts.commands.recordings import open_recording
from bitcal_tts.evaluation.statistics import wilson
from bitcal_tts.files import write_json
from bitcal_tts.halting.features import NAMES
from bitcal_tts.traces.looks import LookTable
from bitcal_tts.traces.record import environment

SHARES = (0.35, 0.40, 0.45)
Row = dict[str, Any]


def losses(tables: dict[str, LookTable], threshold: float) -> Row:
    """Lost answers of each part at a threshold."""
    found: Row = {}
    for name, table in tables.items():
        lost = int(table.cut(threshold).losses("gold").sum())
        found[name] = {"n": table.n, "lost": lost, "interval": wilson(lost, table.n)}
    return found


def threshold_for(table: LookTable, share: float) -> float:
    """The threshold at which a table needs such a share of the full run's tokens."""
    candidates = np.quantile(table.scores, np.linspace(0.3, 0.9999, 300))
    full = table.full_tokens.mean()
    return float(min(candidates, key=lambda t: abs(table.cut(float(t)).cost.mean() / full - share)))


def main() -> None:
    """Count and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("profile", "certified", "others", "out"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--bits", type=float, required=True)
    args = parser.parse_args()
    profile = load_profile(args.profile)
    budget, looks = int(profile.identity["budget"]), str(profile.settings["looks"])
    certified, others = (open_recording(folder).recording for folder in (args.certified, args.others))
    walked, walked_others = (recording.table(budget, looks) for recording in (certified, others))
    marks, fitted = [mark_of(trace) for trace in certified.traces], set(profile.fitted["questions"])
    certifying: Sequence[int] = [i for i, mark in enumerate(marks) if mark not in fitted]
    fitting: Sequence[int] = [i for i, mark in enumerate(marks) if mark in fitted]

    def parts(scores: Any) -> dict[str, LookTable]:
        table, other = walked.judged(scores), walked_others.judged(scores)
        return {
            "certifying": table.of(certifying), "fitting": table.of(fitting),
            "other problems": other.of(range(0, other.n, 2)), "more of them": other.of(range(1, other.n, 2)),
        }  # fmt: skip

    rows: list[Row] = [
        {"scorer": "the profile's", "threshold": (own := profile.threshold(args.bits)),
         "parts": losses(parts(profile.scores), own)}
    ]  # fmt: skip
    for kind in KINDS:
        # Fitted on every second of the other problems: on those it is at home.
        scorer = fit_scorer([walked_others.of(range(0, walked_others.n, 2))], kind, "gold", NAMES)
        judged = parts(scorer.scores)
        for share in SHARES:
            threshold = threshold_for(judged["more of them"], share)
            rows.append({"scorer": f"{kind}, fitted on half of the others", "share_of_tokens": share,
                         "threshold": threshold, "parts": losses(judged, threshold)})  # fmt: skip
    for row in rows:
        print(row["scorer"], round(row["threshold"], 3), {k: (v["lost"], v["n"]) for k, v in row["parts"].items()})
    write_json(args.out, {"schema": 1, "bits": args.bits, "rows": rows, "environment": environment()})


if __name__ == "__main__":
    main()
