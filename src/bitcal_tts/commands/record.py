"""bitcal record: model x task -> a trace folder, resumable."""

from __future__ import annotations

import argparse
import json
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from bitcal_tts.calibration.fit import fewest_items
from bitcal_tts.commands import build, options
from bitcal_tts.commands.options import USUAL_MODEL
from bitcal_tts.commands.progress import note, progress, suggest

EXAMPLE = """example:
  bitcal record --model tiny-4m --bits 4 --n 500 --out traces/tiny-4m-nf4
  bitcal record --model Qwen/Qwen2.5-7B-Instruct --bits 4 --task gsm8k --n 1319 --budget 1024 --out traces/qwen7b

  bitcal record --url http://127.0.0.1:8080 --task gsm8k --probes --out traces/served

  bitcal record --model tiny-4m --bits 4 --n 900 --probes --out traces/tiny-4m-nf4

  bitcal record --model Qwen/Qwen2.5-7B-Instruct --bits 4 --task gsm8k --ray auto --block 100 --out traces/qwen7b

Stop it with Ctrl-C, or kill it: the same command goes on where it was. The last but one adds 400 problems, and probes
to all of them; what was recorded is not decoded again. The last one spreads blocks of 100 over a Ray cluster."""

_FEW = 25  # items that a processor decodes nearly as fast, each, as a whole batch
_RISKS, _CONFIDENCE = (0.01, 0.02, 0.05), 0.9  # what one would promise, the smallest first


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of `bitcal record`."""
    options.add_model_options(parser)
    parser.add_argument("--out", type=options.folder, required=True, help="the trace folder")
    parser.add_argument("--budget", type=options.positive, default=512, help="hard cap on new tokens (%(default)s)")
    parser.add_argument(
        "--chunk-size",
        type=options.positive,
        default=16,
        help="hidden states are compared every k tokens (%(default)s)",
    )
    options.add_block(parser, f"the batch; {_FEW} where a processor decodes, or a server with few slots")
    options.add_probes(parser)
    options.add_ray(parser)
    parser.add_argument("--hidden", action="store_true", help="keep the hidden vectors, not only their cosines")
    options.add_json(parser)


def run(args: argparse.Namespace) -> None:
    """Record, and say what was recorded."""
    before = _there(args.out)
    store = record_traces(args, args.out, args.budget, few_together=True)
    summary = describe(store)
    if args.json:
        print(json.dumps({"schema": 1, "folder": str(args.out), **summary}))
    else:
        there = f" ({before} of them were there already)" if before else ""
        print(f"{summary['items']} traces, {summary['tokens']:,} tokens in {args.out}{there}")
        print(f"decoding them took {summary['seconds']:.1f} s, {summary['tokens_per_second']:.0f} tokens/s")
        suggest(next_step(store, args.out))


def _there(folder: Path) -> int:
    """How many traces a folder has."""
    from bitcal_tts.traces.store import TraceStore

    return int(describe(TraceStore.open(folder))["items"]) if TraceStore.is_in(folder) else 0


def next_step(store: Any, folder: Path) -> str:
    """What one would do with a recording."""
    description = store.description
    if description.get("split") != "calibration":
        return f"bitcal replay {folder} (with --profile FILE, if you have one)"
    risk = next((risk for risk in _RISKS if store.manifest.n >= fewest_items(risk, _CONFIDENCE)), None)
    if risk is None:
        enough = fewest_items(_RISKS[-1], _CONFIDENCE)
        return f"the same command with --n {enough} or more: fewer certify no promise of {100 * _RISKS[-1]:g} %"
    fit = f"bitcal fit {folder} --risk {risk:g} --out profile.json"
    return fit if description["probes"] is not None else f"the same command with --probes, then {fit}"


def record_traces(args: argparse.Namespace, folder: Path, budget: int, *, few_together: bool = False) -> Any:
    """Record what is missing of the folder the options describe.

    Args:
        args: The options.
        folder: Where to.
        budget: Hard cap on new tokens.
        few_together: Whether a processor is given a few items at a time: it decodes them nearly as fast as many, and an
            interruption loses less.
    """
    if not args.json:
        note(f"preparing {args.url or args.model or USUAL_MODEL}")
    from bitcal_tts.traces.record import record

    args.style = build.style_of(args)
    task = build.task_of(args)
    decoding = build.decoding_of(args)
    n = build.items_asked(args, task)
    first = task.items(n, args.seed)[0]  # bad options fail before a model is loaded
    if args.data and args.answers is None and task.format.name == "marked_text" and not args.json:
        note(
            f"note: the gold answers are no numbers, such as {first.answer[:60]!r}, and are compared as texts; "
            "--answers number compares the number in them"
        )
    cluster = _cluster(args, decoding) if args.ray else None
    engine = cluster or build.engine_of(args)
    block = _block(args, engine, few_together=few_together)
    if block is not None and block < n and args.probes is not None and not args.json:
        note(f"{block} problems at a time, then their probes: the first counts come when the first problem has ended")
    with (
        closing(engine),
        progress(
            f"recording {args.model or args.url} at {engine.bits:g} bits", max(n, _there(folder)), quiet=args.json,
            then=None if args.probes is None else "probing",
        ) as advance,
    ):  # fmt: skip
        return record(
            engine,
            task,
            folder,
            n=n,
            budget=budget,
            seed=args.seed,
            decoding=decoding,
            batch_size=args.batch,
            block_size=block,
            chunk_size=16 if args.chunk_size is None else args.chunk_size,
            keep_hidden=getattr(args, "hidden", False),
            probes=args.probes,
            skip_long=args.skip_long,
            progress=advance,
            probed=None if args.probes is None else partial(advance, after=True),
            spread=None if cluster is None else cluster.spread,
        )


def _block(args: argparse.Namespace, engine: Any, *, few_together: bool) -> int | None:
    """Items written together, where that is not the batch."""
    block: int | None = args.block
    if block is None and few_together:
        at_once = getattr(engine, "at_once", None)  # of a server: one with few slots takes long for a batch
        if at_once is not None:
            return min(int(args.batch), max(_FEW, 4 * int(at_once(args.batch))))
        if engine.describe().get("device") == "cpu":
            return min(int(args.batch), _FEW)
    return block


def _cluster(args: argparse.Namespace, decoding: Any) -> Any:
    """The engine that the options name, on every worker of a Ray cluster."""
    if args.url is not None:
        raise ValueError("--ray spreads engines over machines, and a server at --url decodes by itself: leave one out")
    from bitcal_tts.traces.cluster import Cluster

    return Cluster(
        args.ray,
        partial(build.engine_of, args),
        partial(build.task_of, args),
        decoding,
        workers=args.ray_workers,
        chunk_size=16 if args.chunk_size is None else args.chunk_size,
    )


def describe(store: Any) -> dict[str, Any]:
    """How much was recorded, and what it took."""
    parts = store.measurements()
    seconds = sum(part.get("seconds", 0.0) for part in parts)
    tokens = sum(part.get("tokens", 0) for part in parts)
    joules = [part.get("joules") for part in parts]
    return {
        "items": sum(part.get("items", 0) for part in parts),
        "tokens": tokens,
        "seconds": round(seconds, 3),
        "tokens_per_second": round(tokens / seconds, 1) if seconds else 0.0,
        "joules": sum(joules) if tokens and None not in joules else None,
    }
