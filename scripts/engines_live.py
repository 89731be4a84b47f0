"""`settled` live in an engine: recorded there, fitted there, and served there on problems it has not seen.

    python scripts/engines_live.py llamacpp --types F16,Q8_0,Q4_K,Q3_K,Q2_K
    python scripts/engines_live.py llama-server --types Q4_K
    python scripts/engines_live.py transformers --bits 4
    python scripts/engines_live.py vllm --url http://127.0.0.1:8000 --bits 16     # a server of tiny-15m

Each precision has its own recording and profile. The same problems are decoded live to their end and with the profile:
tokens, seconds, right answers that were lost, and whether the promise was kept. Writes results/engines/ENGINE.json, in
which the rows of other precisions stay.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from bitcal_tts.calibration.store import load_profile
from bitcal_tts.cli import main as bitcal
from bitcal_tts.engines.base import Completion, Decoding, Request
from bitcal_tts.engines.gguf import export_gguf
from bitcal_tts.evaluation.statistics import wilson
from bitcal_tts.files import write_json
from bitcal_tts.halting.methods import build_method, to_the_end
from bitcal_tts.tasks import load_task
from bitcal_tts.tiny import models
from bitcal_tts.traces.record import environment, record

MODEL, TASK, BUDGET, SEED = "tiny-15m", "stories", 1536, 7
THINKING = {"enable_thinking": True}


def engines(args: argparse.Namespace, folder: Path) -> Iterator[Any]:
    """The engine at each precision."""
    if args.engine == "transformers":
        from bitcal_tts.engines.checkpoint import load_checkpoint
        from bitcal_tts.engines.transformers import TransformersEngine

        for bits in args.bits or [4.0]:
            yield TransformersEngine(
                load_checkpoint(models.resolve(MODEL), bits=bits, name=MODEL, template_options=THINKING)
            )
        return
    if args.engine == "vllm":
        from bitcal_tts.engines.http import HttpEngine

        yield HttpEngine(args.url, bits=(args.bits or [16.0])[0], template_options=THINKING)
        return
    for kind in args.types.split(","):
        path = folder / f"{MODEL}-{kind}.gguf"
        export_gguf(models.resolve(MODEL), kind, path)
        if args.engine == "llama-server":
            from bitcal_tts.engines.http import HttpEngine
            from bitcal_tts.engines.llama_server import OwnServer

            server = OwnServer(path, parallel=8, context=2 * BUDGET)
            yield HttpEngine(server.url, owned=server, template_options=THINKING)
        else:
            from bitcal_tts.engines.gguf_engine import LlamaCppEngine

            yield LlamaCppEngine(path, template_options=THINKING, hidden=False, threads=args.threads)


def live(engine: Any, method: Any, n: int, batch: int, decoding: Decoding) -> tuple[list[Completion], float]:
    """All problems of the test split, and the seconds that they took."""
    task = load_task(TASK)
    requests = [
        Request(str(i), task.prompt(item), method, seed=i, question=item.question)
        for i, item in enumerate(task.items(n, seed=SEED))
    ]
    began = time.perf_counter()
    done = {completion.id: completion for completion in engine.decode(requests, decoding, batch_size=batch)}
    return [done[str(i)] for i in range(n)], time.perf_counter() - began


def measured(engine: Any, args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """One precision of one engine."""
    decoding, task = Decoding(temperature=0.6, seed=SEED), load_task(TASK)
    about = engine.describe()
    calibration = folder / f"calibration-{about.get('scheme', 'unknown')}".replace(" ", "-")
    record(
        engine, load_task(TASK, split="calibration"), calibration, n=args.calibration, budget=BUDGET, decoding=decoding,
        batch_size=args.batch, block_size=args.calibration, probes=32,
    )  # fmt: skip
    path = calibration.with_suffix(".json")
    untold = [key for key in ("model_sha256", "template_sha256", "scheme") if key not in about]
    declared = [part for key in untold for part in ("--declare", f"{key}=as served")]
    fit = ["fit", str(calibration), "--risk", str(args.risk), "--out", str(path), *declared]
    assert bitcal(fit) == 0
    profile = load_profile(path)
    evidence = profile.evidence[f"{engine.bits:g}"]
    told = {"task": TASK, **dict.fromkeys(untold, "as served")}
    method = build_method("settled", bits=engine.bits, budget=BUDGET, profile=profile, declare=told)
    full, seconds = live(engine, to_the_end(BUDGET), args.n, args.batch, decoding)
    stopped, seconds_stopped = live(engine, method, args.n, args.batch, decoding)
    items = task.items(args.n, seed=SEED)
    right = [task.correct(done.answer, item) for done, item in zip(full, items, strict=True)]
    still = [task.correct(done.answer, item) for done, item in zip(stopped, items, strict=True)]
    lost = sum(a and not b and done.finish == "halted" for a, b, done in zip(right, still, stopped, strict=True))
    interval = wilson(lost, args.n)
    tokens = [sum(len(done.token_ids) for done in one) for one in (full, stopped)]
    return {
        "engine": about["engine"], "scheme": about.get("scheme"), "bits": engine.bits,
        "bits_per_weight": about.get("body_bits_per_weight"), "n": args.n, "calibration": args.calibration,
        "batch": args.batch, "threads": args.threads, "risk": args.risk, "certified": bool(evidence["certified"]),
        "full_accuracy": sum(right) / args.n, "accuracy": sum(still) / args.n,
        "full_tokens": tokens[0], "tokens": tokens[1], "tokens_saved": 1 - tokens[1] / tokens[0],
        "full_seconds": round(seconds, 2), "seconds": round(seconds_stopped, 2),
        "seconds_saved": 1 - seconds_stopped / seconds, "lost": lost, "lost_rate": lost / args.n,
        "lost_low": interval.low, "lost_high": interval.high, "refuted": interval.low > args.risk,
    }  # fmt: skip


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engine", choices=("transformers", "llamacpp", "llama-server", "vllm"))
    parser.add_argument("--types", default="F16,Q8_0,Q4_K,Q3_K,Q2_K", help="GGUF types, one precision each")
    parser.add_argument("--bits", type=float, nargs="*")
    parser.add_argument("--url", help="of the vLLM server")
    parser.add_argument("--threads", type=int, help="of llama.cpp in process (all cores)")
    parser.add_argument("--n", type=int, default=200)
    parser.add_argument("--calibration", type=int, default=300)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--risk", type=float, default=0.05)
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "results/engines")
    args = parser.parse_args()
    path = args.out / f"{args.engine}.json"
    rows = json.loads(path.read_text())["rows"] if path.exists() else []
    with tempfile.TemporaryDirectory() as folder:
        for engine in engines(args, Path(folder)):
            with closing(engine):
                row = measured(engine, args, Path(folder))
            rows = [*(other for other in rows if other["scheme"] != row["scheme"]), row]
            print(row, flush=True)
            args.out.mkdir(parents=True, exist_ok=True)
            told = {"model": MODEL, "task": TASK, "temperature": 0.6, "budget": BUDGET}
            write_json(path, {**told, "rows": rows, "environment": environment()})


if __name__ == "__main__":
    main()
