"""What the sidecar adds: time between tokens and tokens a second, through it and straight to the server, in one run.

    python benchmarks/sidecar_latency.py --out results/benchmarks/sidecar_latency.json

The same problems, greedily, to their end; the alternative is the same server without the sidecar. Through it a request
asks for the likeliest tokens, which the server has to sort, so that case is measured straight as well.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx2
import numpy as np

from bitcal_tts.engines.gguf import export_gguf
from bitcal_tts.engines.llama_server import OwnServer
from bitcal_tts.files import write_json
from bitcal_tts.tasks import load_task
from bitcal_tts.tiny import models
from bitcal_tts.traces.record import environment
from common import SidecarProcess

BUDGET = 300


async def stream(client: httpx2.AsyncClient, path: str, body: dict[str, Any], gaps: list[float]) -> int:
    """One stream: the times between its events; how many there were."""
    events, before = 0, 0.0
    async with client.stream("POST", path, json=body) as answer:
        assert answer.status_code == 200, await answer.aread()
        async for line in answer.aiter_lines():
            if not line.startswith("data: {"):
                continue
            now = time.perf_counter()
            if events:
                gaps.append(now - before)
            before = now
            events += 1
    return events


async def measured(url: str, prompts: list[str], at_once: int, more: dict[str, Any]) -> dict[str, float]:
    """All problems, some at once."""
    gaps: list[float] = []
    places = asyncio.Semaphore(at_once)
    fresh = httpx2.Limits(max_keepalive_connections=0)  # llama.cpp closes connections that are kept
    async with httpx2.AsyncClient(base_url=url, timeout=300, limits=fresh, trust_env=False) as client:

        async def one(prompt: str) -> int:
            async with places:
                body = {
                    "messages": [{"role": "user", "content": prompt}], "temperature": 0, "max_tokens": BUDGET,
                    "stream": True, "chat_template_kwargs": {"enable_thinking": True}, **more,
                }  # fmt: skip
                return await stream(client, "/v1/chat/completions", body, gaps)

        began = time.perf_counter()
        events = sum(await asyncio.gather(*map(one, prompts)))
        seconds = time.perf_counter() - began
    milliseconds = 1000 * np.array(gaps)
    return {
        "events": events, "seconds": round(seconds, 2), "events_per_second": round(events / seconds, 1),
        "gap_median_ms": round(float(np.median(milliseconds)), 3),
        "gap_p99_ms": round(float(np.quantile(milliseconds, 0.99)), 3),
    }  # fmt: skip


def main() -> None:
    """Measure and print the differences."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=40)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    task = load_task()
    prompts = [task.prompt(item) for item in task.items(args.n, seed=9)]
    rows = []
    with tempfile.TemporaryDirectory() as name:
        file = Path(name) / "tiny-15m-Q4_0.gguf"
        export_gguf(models.resolve("tiny-15m"), "Q4_0", file)
        own = OwnServer(file, parallel=8, context=1024, threads=1)
        running = SidecarProcess(own.url, "--method", "stated", "--answers", "gsm8k", "--budget", str(BUDGET))
        ways: dict[str, tuple[str, dict[str, Any]]] = {
            "straight": (own.url, {}),
            "straight, with the 20 likeliest": (own.url, {"logprobs": True, "top_logprobs": 20}),
            "through the sidecar, to the end": (running.url, {"bitcal": {"method": "fixed"}}),
            "through the sidecar, looking at every token": (running.url, {"bitcal": {"method": "cusum"}}),
        }
        for at_once in (1, 8):
            asyncio.run(measured(own.url, prompts[:8], at_once, {}))  # warm
            found = {way: asyncio.run(measured(url, prompts, at_once, more)) for way, (url, more) in ways.items()}
            base = found["straight"]
            for way, row in found.items():
                rows.append({
                    "at_once": at_once, "way": way, **row,
                    "added_median_ms": round(row["gap_median_ms"] - base["gap_median_ms"], 3),
                    "added_p99_ms": round(row["gap_p99_ms"] - base["gap_p99_ms"], 3),
                    "throughput_ratio": round(row["events_per_second"] / base["events_per_second"], 3),
                })  # fmt: skip
                print(json.dumps(rows[-1]), flush=True)
        running.close()
        own.close()
    if args.out:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        write_json(args.out, {"budget": BUDGET, "n": args.n, "rows": rows, "environment": environment()})


if __name__ == "__main__":
    main()
