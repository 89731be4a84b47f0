"""Accuracy of the models in the box by size, style, precision and temperature, with the paper's three methods.

    python scripts/evaluate_tiny.py --out results/tiny_accuracy.json

Every cell decodes the same held-out problems once, to the full budget, and replays the methods on them.
"""

from __future__ import annotations

import argparse
import itertools
import time
import warnings
from pathlib import Path
from typing import Any

from bitcal_tts import UnreachableStopWarning, build_method
from bitcal_tts.engines.base import Decoding, Request
from bitcal_tts.engines.checkpoint import load_checkpoint
from bitcal_tts.engines.transformers import TransformersEngine
from bitcal_tts.evaluation.metrics import summarise
from bitcal_tts.files import write_json
from bitcal_tts.tasks import load_task
from bitcal_tts.tiny import models
from bitcal_tts.traces.record import environment
from bitcal_tts.traces.replay import outcomes
from bitcal_tts.traces.schema import to_trace

METHODS = ("fixed", "adaptive", "bitcal_tts")


def evaluate(args: argparse.Namespace, model: str, bits: float, style: str) -> list[dict[str, Any]]:
    """Rows of one model at one precision and style."""
    task = load_task()
    items = task.items(args.n, args.seed)
    checkpoint = load_checkpoint(
        models.resolve(model), bits=bits, name=model, template_options={"enable_thinking": style == "thinking"}
    )
    engine = TransformersEngine(checkpoint)
    rows = []
    for temperature in args.temperatures:
        reqs = [Request(str(i), task.prompt(item), args.budget, seed=i) for i, item in enumerate(items)]
        began = time.perf_counter()
        done = {int(c.id): c for c in engine.decode(reqs, Decoding(temperature, args.seed), batch_size=args.batch)}
        seconds = time.perf_counter() - began
        traces = [to_trace(i, item, done[i]) for i, item in enumerate(items)]
        tokens = sum(map(len, traces))
        identity = {
            **engine.describe(), **task.describe(), "style": style, "decoding": {"temperature": temperature},
        }  # fmt: skip
        for name in METHODS:
            method = build_method(name, bits=bits, budget=args.budget, min_tokens=models.MIN_TOKENS)
            row = summarise(outcomes(traces, method, task), identity)
            rows.append({
                **row,
                "scheme": checkpoint.scheme,
                "body_bits_per_weight": checkpoint.body_bits,
                "compute_dtype": identity["compute_dtype"],
                "model_sha256": checkpoint.sha256,
                "tokens_per_second": tokens / seconds,
            })  # fmt: skip
        fixed = rows[-3]
        print(f"{model} {bits:g} bits {style} T={temperature:g}: {fixed['accuracy']:.3f} @ {fixed['avg_tokens']:.0f}, "
              f"{tokens / seconds:.0f} tokens/s", flush=True)  # fmt: skip
    return rows


def main() -> None:
    """Evaluate the grid that the options describe; rows are written after every model and precision."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--models", nargs="+", default=["tiny-15m", "tiny-4m", "tiny-1m"])
    parser.add_argument("--bits", nargs="+", type=float, default=[16, 8, 4, 3, 2])
    parser.add_argument("--styles", nargs="+", default=["instruct", "thinking"])
    parser.add_argument("--temperatures", nargs="+", type=float, default=[0.0, 0.6])
    parser.add_argument("--n", type=int, default=1319)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--budget", type=int, default=512)
    parser.add_argument("--batch", type=int, default=1319)
    args = parser.parse_args()
    warnings.simplefilter("ignore", UnreachableStopWarning)
    rows: list[dict[str, Any]] = []
    for model, bits, style in itertools.product(args.models, args.bits, args.styles):
        rows += evaluate(args, model, bits, style)
        options = {key: value for key, value in vars(args).items() if key != "out"}
        args.out.parent.mkdir(parents=True, exist_ok=True)
        write_json(args.out, {"schema": 1, "rows": rows, "options": options, "environment": environment()})


if __name__ == "__main__":
    main()
