"""Long thinking on one GPU: a 7B shape with a budget of 32k tokens, and lengths that real models' texts have.

    python benchmarks/long_thinking.py --lengths lengths.json --out results/benchmarks/long_thinking.json

`lengths.json` is a list of tokens a text. The run is cut off after `--seconds`: tokens a second, peak memory, the share
of slots in use and how many there was room for, as they were until then.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bitcal_tts.engines.base import Request
from bitcal_tts.engines.checkpoint import Checkpoint
from bitcal_tts.engines.forward import Forward
from bitcal_tts.engines.slots import Slots
from bitcal_tts.engines.transformers import TransformersEngine
from bitcal_tts.files import write_json
from bitcal_tts.halting.methods import to_the_end
from bitcal_tts.traces.record import environment
from decode_steps import SHAPES, prompts, random_model, tokenizer

BUDGET = 32768


class TimeIsUpError(Exception):
    """The window is over."""


def watching(engine: TransformersEngine, watch: Callable[[Slots, int], None]) -> None:
    """Have somebody told of the slots of an engine after every chunk, and of its steps."""
    make = engine._slots_for

    def make_watched(*args: Any, **kwargs: Any) -> Slots:
        slots = make(*args, **kwargs)
        run = slots.run

        def run_watched(*args: Any, **kwargs: Any) -> int:
            steps = run(*args, **kwargs)
            watch(slots, steps)
            return steps

        slots.run = run_watched  # type: ignore[method-assign]
        return slots

    engine._slots_for = make_watched  # type: ignore[method-assign]


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=SHAPES, default="small")
    parser.add_argument("--lengths", type=Path, required=True)
    parser.add_argument("--n", type=int, default=400, help="requests (%(default)s)")
    parser.add_argument("--batch", type=int, default=100, help="the most that decode together (%(default)s)")
    parser.add_argument("--seconds", type=float, default=120.0, help="the window (%(default)g)")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = random_model(args.shape, device)
    vocabulary = model.config.vocab_size
    checkpoint = Checkpoint(f"{args.shape} shape", model, tokenizer(vocabulary), device, "", markers=None)
    engine = TransformersEngine(checkpoint, processes=1)
    lengths = np.minimum(np.random.default_rng(0).choice(json.loads(args.lengths.read_text()), args.n), BUDGET)
    # The first has the whole budget, which is what a cache that is made for it at once would be made for.
    lengths[0] = BUDGET
    requests = [
        Request(str(i), text, to_the_end(max(1, int(length))))
        for i, (text, length) in enumerate(zip(prompts(args.n, vocabulary), lengths, strict=True))
    ]
    weights = torch.cuda.memory_allocated() if device.type == "cuda" else 0
    began, done = time.perf_counter(), []
    seen: list[tuple[int, int, int]] = []  # steps, and rows and slots at each

    def watch(slots: Slots, steps: int) -> None:
        seen.append((steps, slots.count, slots.size))
        if time.perf_counter() - began > args.seconds:
            raise TimeIsUpError

    watching(engine, watch)
    try:
        for completion in engine.decode(requests, batch_size=args.batch):
            done.append(len(completion.token_ids))
    except TimeIsUpError:
        pass
    seconds = time.perf_counter() - began
    steps = sum(n for n, _, _ in seen)
    tokens, places = (sum(chunk[0] * chunk[i] for chunk in seen) for i in (1, 2))
    sizes = [size for _, _, size in seen]
    row = {
        "batch": args.batch, "n": args.n, "budget": BUDGET, "seconds": seconds, "finished": len(done),
        "mean_length": float(lengths.mean()), "tokens_per_second": tokens / seconds,
        "ms_a_step": 1e3 * seconds / steps, "steps": steps,
        "slots_in_use": tokens / places,
        "smallest_room": min(sizes), "largest_room": max(sizes),
        "weights_gib": weights / 2**30,
        "peak_gib": torch.cuda.max_memory_allocated() / 2**30 if device.type == "cuda" else None,
        "whole_at_once_gib": args.batch * (BUDGET + 200) * Forward(checkpoint).bytes_per_token / 2**30,
    }  # fmt: skip
    print(row, flush=True)
    if args.out is not None:
        write_json(args.out, {"benchmark": "long_thinking", "shape": args.shape, "rows": [row],
                              "environment": environment()})  # fmt: skip


if __name__ == "__main__":
    main()
