"""bitcal cascade: a cheap and a dear recording of the same items -> what handing over between them would come to."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from textwrap import fill
from typing import Any

from bitcal_tts.commands import build, options
from bitcal_tts.commands.places import refuse_existing
from bitcal_tts.commands.progress import progress
from bitcal_tts.commands.recordings import Opened, open_recording
from bitcal_tts.commands.table import NARROW, print_table
from bitcal_tts.evaluation.promises import seen
from bitcal_tts.evaluation.statistics import mcnemar, paired_difference, savings
from bitcal_tts.files import write_json
from bitcal_tts.halting.handing import weight_bytes
from bitcal_tts.halting.methods import build_method
from bitcal_tts.traces.cascade import cascade_outcomes
from bitcal_tts.traces.outcome import Outcome
from bitcal_tts.traces.replay import outcomes

EXAMPLE = """example:
  bitcal record --bits 2 --style thinking --task stories --budget 1536 --n 500 --probes 16 --out traces/2
  bitcal record --bits 16 --style thinking --task stories --budget 1536 --n 500 --probes 16 --out traces/16
  bitcal fit traces/2-calibration --handed-to traces/16-calibration --budget 512 --out profile.json
  bitcal cascade traces/2 traces/16 --profile profile.json --budget 512

The first model has a budget of its own; whatever it has not settled by then the second answers, from the beginning:
that is what was recorded of it. Live it goes on from the same text (bitcal_tts.engines.cascade)."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of `bitcal cascade`."""
    parser.add_argument("first", type=Path, help="a trace folder of the cheap model")
    parser.add_argument("second", type=Path, help="a trace folder of the dear model, the same items")
    options.add_method_options(parser, "complete, or settled with --profile")
    parser.add_argument(
        "--budget",
        type=options.positive,
        help="hard cap on the first model's new tokens (a third of what was recorded)",
    )
    parser.add_argument(
        "--weights", metavar="A,B", help="what a token of each costs (bytes of weights that it moves, where known)"
    )
    options.add_answers(parser, "as recorded")
    parser.add_argument("--out", type=options.file, metavar="FILE", help="a JSON file for the result")
    options.add_overwrite(parser)
    options.add_json(parser)


def run(args: argparse.Namespace) -> None:
    """Replay both, print, and write."""
    if args.out:
        refuse_existing(args.out, overwrite=args.overwrite)
    result = cascade(args)
    if args.out:
        write_json(args.out, {"schema": 1, **result})
    if args.json:
        print(json.dumps({"schema": 1, **result}))
    else:
        _show(result)
        if args.out:
            print(f"written: {args.out}")


def cascade(args: argparse.Namespace) -> dict[str, Any]:
    """The cascade beside each model alone."""
    second = open_recording(args.second, answers=args.answers, gold=True)
    told = {**options.declared(args), "handed_to": second.recording.name}
    first = open_recording(args.first, answers=args.answers, declare=told, gold=True)
    budget = args.budget or first.description["budget"] // 3
    if args.methods is None:
        args.methods = ["settled"] if args.profile else ["complete"]
    if len(args.methods) != 1:
        raise ValueError(f"one method decides when the first model stops, got {', '.join(args.methods)}")
    (method,) = build.methods_of(args, first, [budget])
    whole = [_to_the_end(one) for one in (first, second)]
    share = _share(args.weights, first.description, second.description)
    with progress("replaying", len(first.traces), quiet=args.json) as advance:
        found, dear = cascade_outcomes(
            first.traces, second.traces, method, whole[1], first.task, share=share, identity=first.identity,
            tick=lambda: advance(1),
        )  # fmt: skip
    cheap = outcomes(first.traces, whole[0], first.task)
    names = [one.recording.name for one in (first, second)]
    rows = [
        _row(f"{names[0]}, alone", [o.correct for o in cheap], [share * o.cost for o in cheap], dear),
        _row(f"{names[1]}, alone", [o.correct for o in dear], [float(o.cost) for o in dear], dear),
        _row("cascade", [o.correct for o in found], [o.cost for o in found], dear),
    ]
    profile = getattr(method.parameters, "profile", None)
    evidence = None if profile is None else profile.evidence[f"{first.description['bits']:g}"]
    lost = sum(not one.handed_over and not one.correct and o.correct for one, o in zip(found, dear, strict=True))
    return {
        "n": len(found), "budget": budget, "method": args.methods[0], "weight_of_first": share,
        "handed_over": sum(o.handed_over for o in found) / len(found), "rows": rows,
        "lost": lost, "promise": None if evidence is None else seen(evidence, lost, len(found)),
    }  # fmt: skip


def _to_the_end(opened: Opened) -> Any:
    """What each model does alone, and the second with what it is handed; what it would land with, only probes tell."""
    about = opened.description
    if about["probes"] is not None:
        return opened.recording.landed
    return build_method("fixed", bits=about["bits"], budget=about["budget"], answers=opened.task.format.name)


def _share(weights: str | None, first: dict[str, Any], second: dict[str, Any]) -> float:
    if weights is None:
        return weight_bytes(first) / weight_bytes(second)
    try:
        cheap, dear = (float(part) for part in weights.split(","))
    except ValueError:
        raise ValueError(f"--weights takes two numbers such as 1,8, got {weights!r}") from None
    if cheap <= 0 or dear <= 0:
        raise ValueError(f"--weights must be above 0, got {weights!r}")
    return cheap / dear


def _row(name: str, right: list[bool], cost: list[float], dear: list[Outcome]) -> dict[str, Any]:
    """A way of answering, against the second model alone."""
    base = [o.correct for o in dear]
    return {
        "name": name, "accuracy": sum(right) / len(right), "cost": sum(cost) / len(cost),
        "saved": savings(cost, [float(o.cost) for o in dear])._asdict(),
        "difference": paired_difference(right, base)._asdict(), "p": mcnemar(right, base).p_value,
    }  # fmt: skip


def _show(result: dict[str, Any]) -> None:
    alone, whole = result["rows"][1], result["rows"][2]
    saved, points = whole["saved"], whole["difference"]
    verdict = (
        f"The cascade costs {100 * (1 - saved['value']):.0f} % of the second model alone and is right "
        f"{100 * whole['accuracy']:.1f} % of the time instead of {100 * alone['accuracy']:.1f} % "
        f"({100 * points['value']:+.1f} points [{100 * points['low']:+.1f}, {100 * points['high']:+.1f}]); "
        f"{100 * result['handed_over']:.0f} % of the items were handed over."
    )
    print(fill(verdict, NARROW))
    if result["promise"]:
        print(fill(result["promise"]["line"], NARROW))
    cells = [
        (
            row["name"],
            f"{100 * row['accuracy']:.1f}",
            f"{row['cost']:.0f}",
            f"{100 * row['saved']['value']:.0f} [{100 * row['saved']['low']:.0f}, {100 * row['saved']['high']:.0f}]",
        )
        for row in result["rows"]
    ]
    title = (
        f"{result['method']} on the first with a budget of {result['budget']}, N={result['n']}; a token of the first "
        f"costs {result['weight_of_first']:.2f}"
    )
    print_table(title, ("", "accuracy %", "cost", "saved % [95 %]"), cells)
