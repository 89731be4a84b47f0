"""What the benchmarks share: the model, the prompts, and how a result is printed and kept."""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2

from bitcal_tts import UnreachableStopWarning
from bitcal_tts.engines.base import Request
from bitcal_tts.engines.checkpoint import load_checkpoint
from bitcal_tts.engines.llama_server import free_port
from bitcal_tts.engines.transformers import TransformersEngine
from bitcal_tts.files import write_json
from bitcal_tts.halting.methods import to_the_end
from bitcal_tts.tasks import load_task
from bitcal_tts.tiny import models
from bitcal_tts.traces.record import environment

RESULTS = Path(__file__).parents[1] / "results" / "benchmarks"


def arguments(description: str) -> argparse.Namespace:
    """Options every benchmark takes."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--model", default="tiny-15m")
    parser.add_argument("--bits", type=float, default=4)
    parser.add_argument("--repeats", type=int, default=3, help="the median of this many is reported")
    # The paper's defaults cannot reach their confidence stop; that is said in the docs, not in every benchmark.
    warnings.simplefilter("ignore", UnreachableStopWarning)
    return parser.parse_args()


def load(args: argparse.Namespace) -> TransformersEngine:
    """The engine under test."""
    checkpoint = load_checkpoint(
        models.resolve(args.model), bits=args.bits, name=args.model, template_options={"enable_thinking": False}
    )
    return TransformersEngine(checkpoint)


def requests(n: int, budget: int, method: Any = None) -> list[Request]:
    """Prompts of the default task, decoded to the end unless a method is given, which then owns the budget."""
    task = load_task()
    items = task.items(n, seed=0)
    method = method or to_the_end(budget)
    return [Request(str(i), task.prompt(item), method, seed=i) for i, item in enumerate(items)]


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds, and what the work returned."""
    began = time.perf_counter()
    result = work()
    return time.perf_counter() - began, result


def median(values: list[float]) -> float:
    """The middle value: a shared machine has slow moments."""
    return statistics.median(values)


def report(name: str, args: argparse.Namespace, rows: list[dict[str, Any]]) -> None:
    """Print the rows and keep them with the machine they were measured on."""
    for row in rows:
        print(
            "  ".join(
                f"{key}={value:.4g}" if isinstance(value, float) else f"{key}={value}" for key, value in row.items()
            )
        )
    RESULTS.mkdir(parents=True, exist_ok=True)
    write_json(
        RESULTS / f"{name}.json",
        {"benchmark": name, "arguments": vars(args), "rows": rows, "environment": environment()},
    )


class SidecarProcess:
    """`bitcal serve` as a process of its own, as people run it, on a port that is free.

    Args:
        upstream: URL of the server that it stands before.
        *options: Of the command.
    """

    def __init__(self, upstream: str, *options: str) -> None:
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        command = [sys.executable, "-m", "bitcal_tts", "serve", "--upstream", upstream, "--port", str(port), *options]
        self._process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        while self._process.poll() is None:
            with contextlib.suppress(httpx2.HTTPError):
                self.get("/healthz")
                return
            time.sleep(0.1)
        raise RuntimeError(f"it ended with {self._process.returncode}: {' '.join(command)}")

    def get(self, path: str) -> str:
        """A page of it."""
        return httpx2.get(f"{self.url}{path}", trust_env=False).text

    def resident_mib(self) -> float:
        """Its memory."""
        pages = int(Path(f"/proc/{self._process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20

    def open_sockets(self) -> int:
        """Its sockets, those that it listens on included."""
        found = 0
        for link in Path(f"/proc/{self._process.pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                found += str(link.readlink()).startswith("socket:")
        return found

    def close(self) -> None:
        """End it."""
        self._process.terminate()
        self._process.wait(90)
