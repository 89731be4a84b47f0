"""bitcal fit: trace folders -> a profile for the method settled, with its guarantee."""

from __future__ import annotations

import argparse
import itertools
import json
import math
from collections.abc import Sequence
from pathlib import Path
from textwrap import fill
from typing import Any

from bitcal_tts.calibration.boosting import load_lightgbm
from bitcal_tts.calibration.fit import AMONG, KINDS, LABELS, SHARE, fit
from bitcal_tts.calibration.recording import Recording
from bitcal_tts.calibration.risk import P_VALUES
from bitcal_tts.calibration.starters import STARTERS, load_starter
from bitcal_tts.calibration.store import load_profile, save_profile
from bitcal_tts.commands import options
from bitcal_tts.commands.progress import note, progress, suggest
from bitcal_tts.commands.recordings import open_recording
from bitcal_tts.commands.table import NARROW, print_table
from bitcal_tts.evaluation.promises import promised
from bitcal_tts.evaluation.verdict import MANY, WORTH
from bitcal_tts.halting.features import NAMES
from bitcal_tts.halting.profile import Profile
from bitcal_tts.halting.settled import SettledParameters

EXAMPLE = """example:
  bitcal record --task stories --style thinking --temperature 0.6 --budget 1536 --split calibration --n 2000 --probes \\
      --out traces/calibration
  bitcal fit traces/calibration --risk 0.01 --confidence 0.9 --out profile.json
  bitcal replay traces/test --profile profile.json
  bitcal fit traces/calibration-2bit --profile profile.json --out profile.json
  bitcal fit traces/imported --from starter --risk 0.02 --out profile.json

With --confidence, at most --risk of all requests are right at full length and wrong when stopped. Several folders of
one model are pooled, each precision with a threshold of its own. With --profile a precision is added to one that is
there: its scorer is kept, and nine tenths of the items certify the threshold (for 1 % at least 230 without a loss)."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of `bitcal fit`."""
    parser.add_argument("traces", type=Path, nargs="+", help="folders that bitcal record --probes wrote")
    parser.add_argument("--out", type=options.file, required=True, help="the profile, a JSON file")
    parser.add_argument("--risk", type=float, default=0.01, help="most lost-correct answers to promise (%(default)s)")
    parser.add_argument("--confidence", type=float, default=0.9, help="how surely the promise holds (%(default)s)")
    parser.add_argument("--kind", choices=KINDS, default="boosted", help="the scorer (%(default)s)")
    parser.add_argument(
        "--label", choices=LABELS, default="gold",
        help="gold: the answer is right; final: it is the full run's, no gold answers needed (%(default)s)",
    )  # fmt: skip
    parser.add_argument("--looks", choices=SettledParameters.LOOKS, default="sentences",
                        help="where it may stop (%(default)s)")  # fmt: skip
    parser.add_argument("--features", type=_features, default=list(NAMES), help="comma-separated, to leave some out")
    parser.add_argument("--share", type=float, default=SHARE, help="of the items, for the scorer (%(default)s)")
    parser.add_argument("--p-value", choices=tuple(P_VALUES), default="binomial", help="the test (%(default)s)")
    parser.add_argument("--among", choices=AMONG, default="all",
                        help="the risk is a share of all requests, or of those whose full run is right")  # fmt: skip
    parser.add_argument("--joint", action="store_true",
                        help="the confidence holds for all precisions together, not for each")  # fmt: skip
    parser.add_argument("--budget", type=options.positive, help="hard cap on new tokens (the recorded one)")
    parser.add_argument(
        "--handed-to", type=Path, metavar="TRACES",
        help="the same items by a second model, which answers what is not settled (see bitcal cascade)",
    )  # fmt: skip
    parser.add_argument("--seed", type=int, default=0, help="chooses which items fit and which certify (%(default)s)")
    parser.add_argument("--profile", type=Path, metavar="FILE", help="keep this profile's scorer, add thresholds only")
    parser.add_argument("--from", choices=("starter",), dest="start",
                        help="keep the scorer that comes with the package, certify a threshold only")  # fmt: skip
    options.add_answers(parser, "as recorded")
    options.add_declare(parser)
    options.add_overwrite(parser)
    options.add_json(parser)


def _features(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    unknown = [name for name in names if name not in NAMES]
    if unknown:
        raise argparse.ArgumentTypeError(f"unknown features {', '.join(unknown)}; known: {', '.join(NAMES)}")
    return names


def run(args: argparse.Namespace) -> None:
    """Fit, write the profile, and say what it promises."""
    known = load_profile(args.profile) if args.profile else None
    kept = _may_write(args.out, args.profile, known, overwrite=args.overwrite)
    told = options.declared(args)
    recordings = [
        open_recording(folder, answers=args.answers, declare=told, gold=True).recording for folder in args.traces
    ]
    replaced = sorted({r.bits for r in recordings} & kept)
    if replaced:
        raise ValueError(
            f"{args.out} has a threshold for {', '.join(f'{bits:g}' for bits in replaced)} bits already: choose "
            "another --out, or say --overwrite"
        )
    scorer = _starter(recordings) if args.start else None
    if known is not None and scorer is not None:
        raise ValueError("--profile and --from both bring a scorer: choose one")
    if known is not None or scorer is not None:
        usual = {"kind": "boosted", "label": "gold", "looks": "sentences", "features": list(NAMES), "share": SHARE}
        changed = [f"--{name}" for name, value in usual.items() if getattr(args, name) != value]
        if changed:
            option = "--profile" if scorer is None else "--from"
            raise ValueError(f"{', '.join(changed)} cannot be changed with {option}: its scorer is kept as it is")
    if known is None and scorer is None and args.kind == "boosted":
        load_lightgbm()  # before the traces are read
    other = (
        None if args.handed_to is None else open_recording(args.handed_to, answers=args.answers, gold=True).recording
    )
    steps = sum(len(r.traces) for r in recordings)
    read = itertools.count(1)
    with progress("reading", steps, quiet=args.json) as advance:

        def tick() -> None:
            advance(1)
            if next(read) == steps and not args.json:
                note("testing thresholds" if known or scorer else "fitting a scorer, then testing thresholds")

        profile = fit(
            recordings,
            risk=args.risk,
            confidence=args.confidence,
            kind=args.kind,
            label=args.label,
            features=args.features,
            looks=args.looks,
            share=args.share,
            p_value=args.p_value,
            among=args.among,
            joint=args.joint,
            budget=args.budget,
            seed=args.seed,
            known=known,
            scorer=scorer,
            handed_to=other,
            tick=tick,
        )
    save_profile(args.out, profile)
    if args.json:
        print(json.dumps({"schema": 1, "profile": str(args.out), "evidence": profile.evidence}))
    else:
        _show(profile, args.out, start=args.start is not None)
        suggest(_next_step(profile, args.out))


def _starter(recordings: Sequence[Recording]) -> Profile:
    """The scorer in the package for these answers."""
    kinds = {recording.task.format.values for recording in recordings}
    if len(kinds) > 1:
        told = " and ".join(sorted(str(kind or "any text") for kind in kinds))
        raise ValueError(f"folders that are fitted together must have one kind of answers, not {told}")
    (kind,) = kinds
    starter = None if kind is None else load_starter(kind)
    if starter is None:
        raise ValueError(
            f"there is no starter for answers that are {kind or 'any text'}, only for {' and '.join(STARTERS)}: leave "
            "--from out, and a scorer is fitted on half of the texts"
        )
    return starter.whole


def _next_step(profile: Profile, path: Path) -> str:
    """What one would do with a profile."""
    if any(told["certified"] and "handed_to" in told for told in profile.evidence.values()):
        return f"on problems that it was not fitted on: bitcal cascade FIRST SECOND --profile {path}"
    if any(told["certified"] for told in profile.evidence.values()):
        return f"on problems that it was not fitted on: bitcal replay TRACES --profile {path}"
    if all(told["more_items_needed"] is None for told in profile.evidence.values()):
        return "a larger --risk, or --kind, --looks and --features that judge better: more items would not help"
    if profile.identity.is_log:
        return "more texts in the log; import and fit them again, in a folder of their own"
    return "the same bitcal record with a larger --n adds items to the folder; then fit again, with --overwrite"


def _may_write(out: Path, source: Path | None, known: Profile | None, *, overwrite: bool) -> set[float]:
    """Refuse to replace another profile unasked; the bits whose thresholds must be kept, where it is the known one."""
    if overwrite or not out.exists():
        return set()
    if known is None or source is None or source.resolve() != out.resolve():
        raise ValueError(f"{out} is there already: choose another --out, or say --overwrite")
    return set(known.thresholds)


def _show(profile: Profile, path: Path, *, start: bool) -> None:
    """What is promised, a line a precision, and the table of what it rests on.

    Args:
        profile: As it was fitted.
        path: Where it is.
        start: Whether its scorer came with the package.
    """
    rows = []
    for bits in sorted(profile.thresholds, reverse=True):
        told: dict[str, Any] = profile.evidence[f"{bits:g}"]
        threshold = profile.thresholds[bits]
        print(fill(f"at {bits:g} bits, on {profile.identity['task']}: {promised(told)}", NARROW))
        if told["certified"] and told["tokens"] > (1 - WORTH) * told["full_tokens"]:
            note(
                "note: at this threshold it saves nothing to speak of: a larger --risk"
                f"{', or a scorer of its own (without --from),' if start else ''} may"
            )
        cut_off = told.get("cut_off_rate", 0.0)
        if cut_off >= MANY and "handed_to" not in told:
            note(
                f"note: {100 * cut_off:.0f} % of these full runs are cut off at the budget of "
                f"{profile.identity['budget']:,}. What they had no time to answer is not counted as lost: a larger "
                "--budget where they are recorded makes the promise say more"
            )
        accuracy = f"{100 * told['accuracy']:.1f} ({100 * told['full_accuracy']:.1f})"
        tried = "{}" if told["certified"] else "({})"  # at the strictest threshold, which did not pass
        rows.append((
            f"{bits:g}", str(told["certified_items"]), tried.format(told["losses"]),
            tried.format(f"{told['p_value']:.2g}"),
            f"{threshold:.5f}" if math.isfinite(threshold) else "never stops",
            f"{told['tokens']:.0f} of {told['full_tokens']:.0f}",
            accuracy if profile.fitted["label"] == "gold" else "-",
        ))  # fmt: skip
    names = ("bits", "items", "losses", "p", "threshold", "tokens", "accuracy % (full)")
    print_table("What it was certified on", names, rows, width=NARROW)
    if not all(told["certified"] for told in profile.evidence.values()):
        print("in brackets: at the strictest threshold that was tried, which did not pass")
    print(f"profile: {path}")
