"""The autopilot on real traffic: time to the first promise, whether it is kept, and a change of the model.

    python scripts/autopilot_live.py

A model in the box behind llama.cpp's server, the sidecar before it, clients with problems of the box's task. First so
many requests while it learns and begins to stop; then so many more, of which every stopped one is continued to its end
afterwards, from exactly where it was stopped: that is what it would have answered. Then the server is replaced by one
with the 2-bit model, at the same address, under the same name. Writes results/autopilot/live.json and a figure.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests/support"))

from sidecar import Running

from bitcal_tts.calibration.anytime import rate_interval
from bitcal_tts.engines.base import Decoding
from bitcal_tts.engines.gguf import export_gguf
from bitcal_tts.engines.llama_server import OwnServer
from bitcal_tts.engines.wire import Standing
from bitcal_tts.evaluation.statistics import wilson
from bitcal_tts.files import write_json
from bitcal_tts.halting.stopping import answer_of
from bitcal_tts.serving.generation import Generation
from bitcal_tts.tasks import load_task
from bitcal_tts.tiny import models
from bitcal_tts.traces.record import environment

TASK, BUDGET, TEMPERATURE, AT_ONCE = "stories", 1536, 0.6, 8


class Traffic:
    """Clients, and what they got."""

    def __init__(self, running: Running, first: int) -> None:
        self.running, self.sent = running, first
        self.task = load_task(TASK, split="test")
        self.stopped: list[tuple[Generation, str | None]] = []
        sidecar = running.sidecar
        leave = sidecar._leave

        def noted(generation: Generation) -> None:
            admitted = generation.course.admitted
            if admitted is not None and admitted.role == "stopped" and generation.course.session.over:
                self.stopped.append((generation, generation.outcome.answer))
            leave(generation)

        sidecar._leave = noted  # type: ignore[method-assign]

    async def send(self, n: int, until: Any = None) -> list[dict[str, Any]]:
        """So many requests, some at once; or until something is so."""
        import openai

        items = self.task.items(self.sent + n, seed=20261116)[self.sent :]
        client = openai.AsyncOpenAI(base_url=f"{self.running.url}/v1", api_key="none", max_retries=5)
        places = asyncio.Semaphore(AT_ONCE)
        rows: list[dict[str, Any]] = []
        began = time.monotonic()

        async def one(i: int, item: Any) -> None:
            async with places:
                if until is not None and until():
                    return
                message: Any = {"role": "user", "content": self.task.prompt(item)}
                try:
                    answer: Any = await client.chat.completions.create(
                        model="any",
                        messages=[message],
                        temperature=TEMPERATURE,
                        seed=i,
                    )
                except openai.APIError as error:
                    rows.append({"error": type(error).__name__})
                    return
                told = answer.bitcal
                right = self.task.correct(self.task.format.value(answer.choices[0].message.content or ""), item)
                rows.append({"role": told["autopilot"]["role"], "phase": told["autopilot"]["phase"], "right": right,
                             "tokens": answer.usage.completion_tokens})  # fmt: skip
                if len(rows) % 100 == 0:
                    phase, seconds = self.status()["phase"], time.monotonic() - began
                    print(f"{len(rows)} of {n} in {seconds:.0f} s, {phase}", flush=True)

        await asyncio.gather(*(one(self.sent + i, item) for i, item in enumerate(items)))
        self.sent += len(rows)
        await client.close()
        return rows

    def status(self) -> dict[str, Any]:
        """Of the one pilot there is."""
        assert self.running.sidecar.autopilot is not None
        return self.running.sidecar.autopilot.status()[0]

    def continued(self) -> list[tuple[bool, int, int]]:
        """Of every stopped request: whether its answer changed, tokens it took, tokens it would have taken."""
        engine = self.running.engine

        def one(job: tuple[Generation, str | None]) -> tuple[bool, int, int]:
            generation, answer = job
            decision, p = generation.outcome.decision, generation.course.session.method.parameters
            if decision is None:
                return False, generation.outcome.tokens, generation.outcome.tokens
            standing: Standing = generation._standing(decision.tokens)
            text, tokens = standing.text, decision.tokens
            with engine.stream(standing, BUDGET - tokens, Decoding(TEMPERATURE), 1 + generation._seed) as pieces:
                for piece in pieces:
                    text += piece.text
                    tokens += len(piece.ids)
            final = answer_of(text, p)
            return not p.format.keeps(answer, final), generation.outcome.tokens, tokens

        with ThreadPoolExecutor(AT_ONCE) as pool:
            return list(pool.map(one, self.stopped))


def main() -> None:
    """Run and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="tiny-4m")
    parser.add_argument("--learn", type=int, default=800, help="requests while it learns (%(default)s)")
    parser.add_argument("--keep", type=int, default=400, help="requests that it must keep its promise on (%(default)s)")
    parser.add_argument("--swapped", type=int, default=400, help="most requests after the swap (%(default)s)")
    parser.add_argument("--risk", type=float, default=0.05)
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "results/autopilot/live.json")
    args = parser.parse_args()
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    logging.getLogger("bitcal.autopilot").setLevel(logging.INFO)
    with tempfile.TemporaryDirectory() as name:
        found = measured(args, Path(name))
    args.out.parent.mkdir(parents=True, exist_ok=True)
    write_json(args.out, {**found, "environment": environment()})
    draw(found, args.out.with_suffix(".png"))
    print({key: value for key, value in found.items() if key not in ("history", "events")})


def measured(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """The whole course of it."""
    files = {}
    for kind in ("Q4_K", "Q2_K"):
        (folder / kind).mkdir()
        files[kind] = folder / kind / f"{args.model}.gguf"
        export_gguf(models.resolve(args.model), kind, files[kind])
    server = OwnServer(files["Q4_K"], parallel=AT_ONCE, context=2 * BUDGET)
    port = int(server.url.rpartition(":")[2])
    running = Running(server.url, "--risk", str(args.risk), "--budget", str(BUDGET), "--state", str(folder / "state"))
    running.engine.changed = lambda: None  # type: ignore[method-assign]  # a server that tells nothing of itself
    traffic = Traffic(running, 0)
    try:
        began = time.monotonic()
        first = asyncio.run(traffic.send(args.learn))
        status = traffic.status()
        promise = next((i for i, row in enumerate(first) if row.get("phase") == "stopping"), None)
        print(f"first promise at request {promise}", flush=True)
        traffic.stopped.clear()
        second = asyncio.run(traffic.send(args.keep))
        seconds = time.monotonic() - began
        kept = traffic.status()
        tried = traffic.continued()
        changed = sum(one for one, _, _ in tried)
        interval = wilson(changed, max(1, len(tried)))
        server.close()
        server = OwnServer(files["Q2_K"], parallel=AT_ONCE, context=2 * BUDGET, port=port)
        traffic.stopped.clear()
        third = asyncio.run(traffic.send(args.swapped, until=lambda: traffic.status()["phase"] == "learning"))
        after = traffic.status()
        lost = [one for one, _, _ in traffic.continued()]
    finally:
        running.close()
        server.close()
    return {
        "model": args.model, "task": TASK, "risk": args.risk, "confidence": 0.9, "temperature": TEMPERATURE,
        "budget": BUDGET, "at_once": AT_ONCE, "seconds": round(seconds, 1),
        "first_promise_at_request": promise,
        "learning": {**_summary(first), "phase": status["phase"], "thresholds": status["thresholds"]},
        "keeping": {
            **_summary(second), "stopped_and_continued": len(tried), "changed": changed,
            "changed_rate": changed / max(1, len(tried)), "changed_low": interval.low, "changed_high": interval.high,
            "tokens": sum(a for _, a, _ in tried), "full_tokens": sum(b for _, _, b in tried),
            "shadow": kept["shadow"], "net_saved": kept["net"],
        },
        "swapped": {
            **_summary(third), "noticed_after": len(third) if after["phase"] == "learning" else None,
            "why": after["why"], "stopped": len(lost), "lost": sum(lost),
            "lost_interval": rate_interval(sum(lost), len(lost)),
        },
        "counts_at_the_end": after["counts"], "events": after["events"], "history": after["history"],
    }  # fmt: skip


def _summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    good = [row for row in rows if "error" not in row]
    roles = {role: sum(row["role"] == role for row in good) for role in ("plain", "watched", "stopped")}
    accuracy = {
        f"accuracy_{role}": sum(row["right"] for row in good if row["role"] == role) / max(1, n)
        for role, n in roles.items()
    }
    return {"requests": len(rows), "errors": len(rows) - len(good), **roles, **accuracy}


def draw(found: dict[str, Any], path: Path) -> None:
    """Evidence and savings over requests."""
    import math

    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (upper, lower) = pyplot.subplots(2, 1, figsize=(8, 6), sharex=True, layout="constrained")
    points = found["history"]
    most = max((len(point["evidence"]) for point in points), default=0)
    for i in range(most):
        curve = [(p["requests"], p["evidence"][i]) for p in points if len(p["evidence"]) > i and p["epoch"] == 0]
        upper.plot(*zip(*curve, strict=True), label=f"threshold {i + 1}", lw=1.5)
    upper.axhline(-math.log((1 - found["confidence"]) / 2), color="tab:red", ls="--", label="promised above")
    upper.set_ylabel("evidence (nats)")
    upper.legend(fontsize=8)
    lower.plot([p["requests"] for p in points], [100 * p["saved"] for p in points], color="tab:blue")
    lower.set_ylabel("net savings so far (% of tokens)")
    lower.set_xlabel("requests")
    lower.axvline(found["learning"]["requests"] + found["keeping"]["requests"], color="tab:red", ls=":")
    figure.savefig(path, dpi=130)


if __name__ == "__main__":
    main()
