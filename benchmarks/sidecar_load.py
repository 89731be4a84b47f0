"""The sidecar under load: many streams for minutes, clients that hang up, an upstream that dies and comes back.

    python benchmarks/sidecar_load.py --streams 64 --seconds 120 --out results/benchmarks/sidecar_load.json

Every answered request must be complete, every failed one a clear error, and nothing may be left behind: no open
request, no busy slot, no task, no socket; memory must stay flat. The sidecar is a process of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx2

from bitcal_tts.engines.gguf import export_gguf
from bitcal_tts.engines.llama_server import OwnServer
from bitcal_tts.files import write_json
from bitcal_tts.tasks import load_task
from bitcal_tts.tiny import models
from bitcal_tts.traces.record import environment
from common import SidecarProcess

SLOTS, BUDGET = 8, 200


async def one(client: httpx2.AsyncClient, body: dict[str, Any], hang_up: bool, seen: Counter[str]) -> None:
    """A stream: complete, or a clear error, or left."""
    try:
        async with client.stream("POST", "/v1/chat/completions", json=body) as answer:
            if answer.status_code != 200:
                told = json.loads(await answer.aread())
                assert told["error"]["message"] and answer.status_code in (429, 502), answer.status_code
                seen[f"refused {answer.status_code}"] += 1
                return
            events = 0
            done = account = error = False
            async for line in answer.aiter_lines():
                events += line.startswith("data: ")
                done = done or line == "data: [DONE]"
                if line.startswith("data: {"):
                    event = json.loads(line[6:])
                    error = error or "error" in event
                    account = account or event.get("bitcal", {}).get("honoured") is True
                if hang_up and events > 5:
                    seen["hung up"] += 1
                    return
            assert done, "a stream that ended without its end"
            assert account != error, "a stream that is neither complete nor an error"
            seen["complete" if account else "failed in the stream"] += 1
    except httpx2.HTTPError as problem:
        seen[f"client {type(problem).__name__}"] += 1


async def load(sidecar: SidecarProcess, streams: int, seconds: float, kill: Any) -> tuple[Counter[str], list[float]]:
    """Streams side by side for so long; in the middle the upstream is killed, and started again."""
    task = load_task()
    prompts = [task.prompt(item) for item in task.items(200, seed=5)]
    seen: Counter[str] = Counter()
    memory: list[float] = []
    until = time.monotonic() + seconds
    limits = httpx2.Limits(max_connections=None)
    async with httpx2.AsyncClient(base_url=sidecar.url, timeout=120, limits=limits, trust_env=False) as client:

        async def stream(number: int) -> None:
            draw = random.Random(number)
            while time.monotonic() < until:
                body = {
                    "messages": [{"role": "user", "content": draw.choice(prompts)}],
                    "temperature": 0.6,
                    "stream": True,
                }
                await one(client, body, draw.random() < 0.1, seen)

        async def watch() -> None:
            while time.monotonic() < until:
                memory.append(sidecar.resident_mib())
                await asyncio.sleep(1)

        async def break_it() -> None:
            await asyncio.sleep(seconds / 2)
            await asyncio.to_thread(kill)

        await asyncio.gather(watch(), break_it(), *(stream(i) for i in range(streams)))
    return seen, memory


def main() -> None:
    """Load it and look at what is left."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        file = Path(name) / "tiny-4m-Q4_0.gguf"
        export_gguf(models.resolve("tiny-4m"), "Q4_0", file)
        server = [OwnServer(file, parallel=SLOTS, context=512)]
        port = int(server[0].url.rpartition(":")[2])
        sidecar = SidecarProcess(server[0].url, "--method", "stated", "--answers", "gsm8k", "--budget", str(BUDGET))

        def kill() -> None:
            server[0]._process.kill()
            server[0].close()
            time.sleep(2)
            server[0] = OwnServer(file, parallel=SLOTS, context=512, port=port)

        sockets = sidecar.open_sockets()
        began = time.monotonic()
        seen, memory = asyncio.run(load(sidecar, args.streams, args.seconds, kill))
        took = time.monotonic() - began
        for _ in range(100):
            slots = httpx2.get(f"{server[0].url}/slots", trust_env=False).json()
            left = sum(bool(slot["is_processing"]) for slot in slots)
            if left == 0 and "bitcal_open_requests 0.0" in sidecar.get("/metrics"):
                break
            time.sleep(0.1)
        still_open = "bitcal_open_requests 0.0" not in sidecar.get("/metrics")
        time.sleep(6)  # idle connections are given back after five seconds
        found = {
            "streams": args.streams, "seconds": round(took, 1), "slots": SLOTS, "requests": sum(seen.values()),
            "outcomes": dict(seen), "slots_left_busy": left, "requests_left_open": still_open,
            "sockets_before": sockets, "sockets_after": sidecar.open_sockets(),
            "memory_mib_every_tenth_of_the_time": [round(float(x), 1) for x in memory[:: max(1, len(memory) // 10)]],
            "memory_mib_most": round(max(memory), 1),
        }  # fmt: skip
        sidecar.close()
        server[0].close()
    print(found)
    if args.out:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        write_json(args.out, {**found, "environment": environment()})


if __name__ == "__main__":
    main()
