"""bitcal run: record, replay every method, report; on the model in the box unless told otherwise."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from bitcal_tts.commands import build, options
from bitcal_tts.commands.places import check_writable
from bitcal_tts.commands.record import record_traces
from bitcal_tts.commands.recordings import open_recording
from bitcal_tts.commands.replay import replay_recording, show
from bitcal_tts.commands.report import write_report
from bitcal_tts.halting.methods import parameters_of
from bitcal_tts.halting.rules import RULES
from bitcal_tts.installing import can_draw, install_command
from bitcal_tts.tiny import models

EXAMPLE = """example:
  bitcal run
  bitcal run --model tiny-15m --style thinking --bits 3 --n 500 --temperature 0.6
  bitcal run --config configs/experiment_gsm8k_minimal.yaml

A config file holds option names and values; options on the command line come before it."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of `bitcal run`."""
    options.add_model_options(parser)
    options.add_method_options(parser)
    options.add_budgets(parser, [128, 256, 512])
    options.add_block(parser, "the batch")
    options.add_probes(parser)
    options.add_ray(parser)
    parser.add_argument("--config", metavar="FILE", help="options from a YAML file")
    parser.add_argument("--out", type=options.folder, help="the run's folder (runs/NAME by model, bits, task and seed)")
    options.add_overwrite(parser)
    options.add_full(parser)
    options.add_json(parser)


def run(args: argparse.Namespace) -> None:
    """The whole experiment."""
    args.style = build.style_of(args)
    if args.bits is None and args.model in models.available():
        args.bits = 4
    args.n = build.items_asked(args, build.task_of(args))
    for name in args.methods or ():  # a bad name or a missing profile should not cost a recording
        parameters_of(name)
    if "settled" in (args.methods or ()) and not args.profile:
        raise ValueError("method 'settled' needs a profile: fit one with bitcal fit, and give it with --profile")
    folder = args.out or Path("runs") / _name(args)
    if args.out is None:
        check_writable(folder)
    budgets = args.budgets
    if args.probes is None and (args.profile or set(args.methods or ()) & {"landed", "settled", *RULES}):
        args.probes = 16  # what these methods do can only be replayed with probes
    record_traces(args, folder / "traces", max(budgets))
    opened = open_recording(folder / "traces", answers=args.answers, declare=options.declared(args))
    out = folder if args.overwrite else None
    summary = replay_recording(args, opened, budgets, out, home=folder)
    if args.json:
        print(json.dumps({"schema": 1, **summary}))
        return
    took = summary["recording"]
    show(opened.description, summary, full=args.full)
    print(
        f"{took['tokens']:,} tokens decoded once in {took['seconds']:.0f} s ({took['tokens_per_second']:.0f} tokens/s)"
    )
    results = Path(summary["folder"])
    print(f"traces: {opened.store.folder}")
    print(f"outcomes and summary: {results}")
    if can_draw():
        print(f"report: {write_report([results])[0]}")
    else:
        print(f"for the report with figures: {install_command('report')}")


def _name(args: argparse.Namespace) -> str:
    model = (args.model or args.url).rstrip("/").rpartition("/")[2]
    bits = "" if args.bits is None else f"{args.bits:g}bit"
    n = "" if args.n is None else f"n{args.n}"
    parts = [model, bits, args.task, args.style, f"t{args.temperature:g}", f"s{args.seed}", n]
    return "-".join(part for part in parts if part)
