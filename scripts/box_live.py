"""The certified gate live on the largest model in the box, against decoding to the end and landing there.

    python scripts/box_live.py --profile results/box/profiles/tiny-15m-0.01.json --out results/box/live.json

Held-out problems that no profile has seen; a run of each method in turn, or several (`--repeats`), alone on the card:
lost answers, tokens, seconds, latency from a request's prompt to its end, joules where the card tells. Both methods
have the same draws; a text may part all the same where rows that left have made the batch another one, and counts as
lost or rescued then.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from bitcal_tts import build_method, load_profile
from bitcal_tts.commands.build import engine_for
from bitcal_tts.engines.base import Decoding, Request
from bitcal_tts.evaluation.statistics import wilson
from bitcal_tts.files import write_json
from bitcal_tts.tasks import load_task
from bitcal_tts.traces.energy import EnergyMeter
from bitcal_tts.traces.record import environment

MODEL, TASK, BUDGET = "tiny-15m", "stories", 1536
BITS = (16, 4, 2)
Row = dict[str, Any]


class Kept(NamedTuple):
    """What is kept of a completion: all of thousands would be memory that every process has a share in."""

    answer: str | None
    tokens: int
    decoded: int
    seconds: float


def median_of(
    repeats: int, engine: Any, requests: list[Request], decoding: Decoding, batch: int
) -> tuple[Row, dict[str, Kept]]:
    """The one of several runs that took neither longest nor shortest, and what each of them took."""
    runs = sorted(
        (measured(engine, requests, decoding, batch) for _ in range(repeats)), key=lambda run: run[0]["seconds"]
    )
    row, done = runs[(repeats - 1) // 2]
    return {**row, "seconds_of_all": [other["seconds"] for other, _ in runs]}, done


def measured(engine: Any, requests: list[Request], decoding: Decoding, batch: int) -> tuple[Row, dict[str, Kept]]:
    """One run, and what it took."""
    meter, began = EnergyMeter(), time.perf_counter()
    done = {
        c.id: Kept(c.answer, len(c.token_ids), c.decoded, c.seconds)
        for c in engine.decode(requests, decoding, batch_size=batch)
    }
    seconds, joules = time.perf_counter() - began, meter.joules()
    tokens = sum(kept.tokens for kept in done.values())
    latency = np.percentile([kept.seconds for kept in done.values()], (50, 95))
    return {
        "tokens": tokens,
        "decoded": sum(kept.decoded for kept in done.values()),
        "seconds": round(seconds, 2),
        "tokens_per_second": round(tokens / seconds),
        "latency_p50": round(float(latency[0]), 3),
        "latency_p95": round(float(latency[1]), 3),
        "joules": joules,
    }, done


def live(bits: int, profile: Any, n: int, batch: int, split: str, seed: int, repeats: int) -> Row:
    """Both methods at one precision."""
    thinking = {"enable_thinking": True}
    engine = engine_for(MODEL, bits, template_options=thinking, device=None, compute_dtype=None)
    task, decoding = load_task(TASK, split=split), Decoding(0.6, seed)
    items = task.items(n, seed)
    opening, close = profile.identity["thinking"]
    methods = {
        "landed": build_method("landed", bits=bits, budget=BUDGET, answers="gsm8k", opening=opening, close=close),
        "settled": build_method("settled", bits=bits, budget=BUDGET, profile=profile, declare={"task": TASK}),
    }
    rows: Row = {}
    right: dict[str, list[bool]] = {}
    requests = {
        name: [
            Request(str(i), task.prompt(item), method, seed=i, question=item.question) for i, item in enumerate(items)
        ]
        for name, method in methods.items()
    }
    # Everything that will be captured: all lengths, whole batches and what is left of them, for the longest prompts.
    measured(engine, sorted(requests["landed"], key=lambda request: -len(request.prompt))[:batch], decoding, batch)
    for name in methods:
        row, done = median_of(repeats, engine, requests[name], decoding, batch)
        right[name] = [task.correct(done[str(i)].answer, item) for i, item in enumerate(items)]
        joules = None if row["joules"] is None else row["joules"] / n
        rows[name] = {**row, "accuracy": sum(right[name]) / n, "joules_per_answer": joules}
        print(bits, name, rows[name], flush=True)
    lost = sum(full and not stopped for full, stopped in zip(right["landed"], right["settled"], strict=True))
    rescued = sum(stopped and not full for full, stopped in zip(right["landed"], right["settled"], strict=True))
    full, stopped = rows["landed"], rows["settled"]
    tokens_saved, time_saved = (1 - stopped[key] / full[key] for key in ("tokens", "seconds"))
    return {
        "bits": bits,
        "n": n,
        "methods": rows,
        "lost": lost,
        "lost_interval": wilson(lost, n),
        "rescued": rescued,
        "tokens_saved": tokens_saved,
        "time_saved": time_saved,
        "time_saved_over_tokens_saved": time_saved / tokens_saved,
        "promise": profile.evidence[str(bits)],
    }


def main() -> None:
    """All precisions."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profile", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--n", type=int, default=4096, help="problems (%(default)s)")
    parser.add_argument("--batch", type=int, default=1024, help="rows decoded together (%(default)s)")
    parser.add_argument("--split", default="test", help="their templates (%(default)s)")
    parser.add_argument("--seed", type=int, default=2, help="of the problems and of the texts (%(default)s)")
    parser.add_argument("--repeats", type=int, default=1, help="runs of each method; the median counts (%(default)s)")
    parser.add_argument("--bits", default=",".join(map(str, BITS)), help="%(default)s")
    args = parser.parse_args()
    profile = load_profile(args.profile)
    rows = []
    for bits in map(int, args.bits.split(",")):
        rows.append(live(bits, profile, args.n, args.batch, args.split, args.seed, args.repeats))
        write_json(args.out, {"schema": 1, "model": MODEL, "task": TASK, "split": args.split, "seed": args.seed,
                              "budget": BUDGET, "batch": args.batch, "rows": rows,
                              "environment": environment()})  # fmt: skip
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
