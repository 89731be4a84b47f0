"""What halting adds to a token inside vLLM and llama.cpp: the same decoding with and without it, in one run.

    python benchmarks/engine_overhead.py llamacpp --model tiny-15m-Q4_K.gguf
    .venv-vllm/bin/python benchmarks/engine_overhead.py vllm

`settled` judges every sentence with the scorer of the package, and never stops: all rows decode the same tokens. The
alternative is the engine by itself; inside llama-cpp-python also an empty logits processor, which makes it copy logits
as ours does. Rounds alternate; the median of each counts. Writes results/engines/overhead-ENGINE.json.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from bitcal_tts.calibration.starters import load_starter
from bitcal_tts.files import write_json
from bitcal_tts.halting.methods import build_method
from bitcal_tts.halting.profile import Profile, mean_of
from bitcal_tts.tasks import load_task
from bitcal_tts.traces.record import environment

BITS = 16.0
ROUNDS = 5


def never_stopping() -> Profile:
    """The scorer of the package, with a threshold that nothing reaches."""
    starter = load_starter("numbers")
    assert starter is not None
    scorer = mean_of(starter.scorers)
    evidence = {f"{BITS:g}": {"risk": 0.01}}
    return Profile("boosted", scorer.features, scorer.model, {BITS: math.inf}, settings={}, evidence=evidence)


def alternated(runs: dict[str, Callable[[], int]]) -> dict[str, float]:
    """Milliseconds a token of each, the median of some rounds."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for run in runs.values():
        run()
    for _ in range(ROUNDS):
        for name, run in runs.items():
            began = time.perf_counter()
            tokens = run()
            times[name].append((time.perf_counter() - began) / tokens * 1e3)
    return {name: statistics.median(values) for name, values in times.items()}


def in_llamacpp(args: argparse.Namespace) -> list[dict[str, Any]]:
    """llama-cpp-python's own loop, one request at a time."""
    import llama_cpp

    from bitcal_tts.engines.llama_server import gguf_of
    from bitcal_tts.engines.llamacpp import Halting

    path = gguf_of(args.model)
    assert path is not None
    llm = llama_cpp.Llama(str(path), n_ctx=2048, verbose=False)
    task = load_task()
    (item,) = task.items(1, seed=1)
    method = build_method("settled", bits=BITS, budget=10**6, profile=never_stopping(), force=True, answers="gsm8k")
    prompt = llm.tokenize(task.prompt(item).encode())

    def decode(**more: Any) -> int:
        told = llm.create_completion(prompt, **{"max_tokens": args.tokens, "temperature": 0.0, **more})
        return int(told["usage"]["completion_tokens"])

    def halting() -> int:
        more = Halting(llm, method, question=item.question).kwargs()
        return decode(**{**more, "max_tokens": args.tokens})

    empty = llama_cpp.LogitsProcessorList([lambda ids, scores: scores])
    found = alternated({"alone": decode, "empty": lambda: decode(logits_processor=empty), "halting": halting})
    return [{"model": path.name, "batch": 1, **found}]


def in_vllm(args: argparse.Namespace) -> list[dict[str, Any]]:
    """VLLM in process, with requests side by side."""
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    with tempfile.TemporaryDirectory() as folder:
        os.environ["BITCAL_PROFILES"] = folder
        write_json(Path(folder) / "never.json", never_stopping().to_dict())
        from vllm import LLM, SamplingParams

        from bitcal_tts.tiny import models

        llm = LLM(
            model=models.resolve(args.model), dtype="bfloat16", enforce_eager=True, kv_cache_memory_bytes=1 << 29,
            max_model_len=1024, logits_processors=["bitcal_tts.engines.vllm:Halting"], disable_log_stats=True,
        )  # fmt: skip
        rows = []
        for batch in (1, 4, 16):
            items = load_task().items(batch, seed=1)
            messages: Any = [[{"role": "user", "content": load_task().prompt(item)}] for item in items]

            def decode(*, watched: bool, items: Any = items, messages: Any = messages) -> int:
                params = []
                for item in items:
                    told = {"method": "settled", "bits": BITS, "budget": 10**6, "question": item.question}
                    told["options"] = {"profile": "never", "force": True, "answers": "gsm8k"}
                    params.append(
                        SamplingParams(
                            temperature=0, max_tokens=args.tokens, ignore_eos=True,
                            extra_args={"bitcal": json.dumps(told)} if watched else None,
                        )
                    )  # fmt: skip
                done = llm.chat(messages, params, use_tqdm=False)
                return sum(len(one.outputs[0].token_ids) for one in done)

            found = alternated({"alone": partial(decode, watched=False), "halting": partial(decode, watched=True)})
            rows.append({"model": args.model, "batch": batch, **found})
        return rows


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engine", choices=("llamacpp", "vllm"))
    parser.add_argument("--model", default="tiny-15m", nargs="+")
    parser.add_argument("--tokens", type=int, default=400)
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "results/engines")
    args = parser.parse_args()
    rows = []
    for model in [args.model] if isinstance(args.model, str) else args.model:
        one = argparse.Namespace(**{**vars(args), "model": model})
        rows += in_llamacpp(one) if args.engine == "llamacpp" else in_vllm(one)
    for row in rows:
        row["added"] = row["halting"] / row["alone"] - 1
        name = f"{row['model']}, batch {row['batch']}"
        print(f"{name}: {row['alone']:.3f} ms a token alone, {row['added']:+.1%} with halting")
    args.out.mkdir(parents=True, exist_ok=True)
    told = {"unit": "ms a token", "rounds": ROUNDS, "tokens": args.tokens}
    write_json(args.out / f"overhead-{args.engine}.json", {**told, "rows": rows, "environment": environment()})


if __name__ == "__main__":
    main()
