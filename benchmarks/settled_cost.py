"""What applying a profile costs: microseconds a look and a token, beside the decode it rides on (goal: 50 a look)."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any

from bitcal_tts.calibration.starters import load_starter
from bitcal_tts.engines.checkpoint import load_checkpoint
from bitcal_tts.engines.transformers import TransformersEngine
from bitcal_tts.halting.profile import Profile
from bitcal_tts.halting.session import Session
from bitcal_tts.halting.settled import Settled, SettledParameters
from bitcal_tts.halting.values import Look
from bitcal_tts.tasks import load_task
from bitcal_tts.tiny import models
from bitcal_tts.traces.replay import tokens_of
from bitcal_tts.traces.schema import to_trace
from bitcal_tts.traces.trace import Trace
from common import arguments, median, report, requests


class Unpromising(Settled):
    """What it costs does not depend on whether its promise holds here."""

    promises = False


class Seeing(Unpromising):
    """Keeps what it would have judged."""

    looks: list[Look]

    def _judge(self, look: Look) -> float:
        self.looks.append(look)
        return 0.0


def profiles() -> dict[str, Profile]:
    """The trees of a starter, all of its features; and a logistic score of the same ones."""
    starter = load_starter("numbers")
    assert starter is not None
    trees = starter.scorers[0]
    n = len(trees.features)
    weights = {"mean": [0.0] * n, "scale": [1.0] * n, "weights": [0.01] * n, "intercept": 0.0}
    return {"logistic": Profile("logistic", trees.features, weights, {}), "boosted": trees}


def walk(kind: type[Settled], parameters: SettledParameters, traces: Sequence[Trace]) -> tuple[float, list[Look]]:
    """Seconds that sessions take on traces, and what was looked at."""
    fed = [tokens_of(trace) for trace in traces]
    looks: list[Look] = []
    seconds = 0.0
    for trace, columns in zip(traces, fed, strict=True):
        session = Session(kind(parameters), question=trace.item.question)
        if isinstance(session.method, Seeing):
            session.method.looks = looks
        began = time.perf_counter()
        session.feed(columns)
        seconds += time.perf_counter() - began
    return seconds, looks


def main() -> None:
    """Measure and report."""
    args = arguments(__doc__ or "")
    options = {"enable_thinking": True}
    engine = TransformersEngine(
        load_checkpoint(models.resolve(args.model), bits=args.bits, name=args.model, template_options=options)
    )
    items = load_task().items(32, seed=0)
    began = time.perf_counter()
    done = {int(c.id): c for c in engine.decode(requests(32, 320), batch_size=32)}
    decode = time.perf_counter() - began
    traces = [to_trace(i, item, done[i]) for i, item in enumerate(items)]
    tokens = sum(map(len, traces))
    rows: list[dict[str, Any]] = []
    for kind, profile in profiles().items():
        parameters = SettledParameters(
            name="settled", bits=args.bits, budget=321, profile=profile, threshold=math.inf, reserve=0,
            opening="<think>", close="</think>",
        )  # fmt: skip
        _, looks = walk(Seeing, parameters, traces)
        a_look, in_session = [], []
        for _ in range(args.repeats):
            began = time.perf_counter()
            for look in looks:
                profile.judge(look)
            a_look.append(1e6 * (time.perf_counter() - began) / len(looks))
            in_session.append(1e6 * walk(Unpromising, parameters, traces)[0] / tokens)
        rows.append({
            "kind": kind,
            "tokens": tokens,
            "looks": len(looks),
            "candidates": sum(len(look.rows) for look in looks),
            "microseconds_to_judge_a_look": median(a_look),
            "goal": "<= 50",
            "microseconds_a_token_in_a_session": median(in_session),
            "share_of_decode_time": median(in_session) * tokens / 1e6 / decode,
        })  # fmt: skip
    report("settled_cost", args, rows)


if __name__ == "__main__":
    main()
