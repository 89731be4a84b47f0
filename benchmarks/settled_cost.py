"""What applying a profile costs: microseconds a decision and a token, beside the decode it rides on (goal: 50 us)."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path

import numpy as np

from bitcal_tts.engines.checkpoint import load_checkpoint
from bitcal_tts.engines.transformers import TransformersEngine
from bitcal_tts.halting.controller import Step
from bitcal_tts.halting.features import NAMES, Features
from bitcal_tts.halting.profile import Profile
from bitcal_tts.halting.session import Session
from bitcal_tts.halting.settled import Settled, SettledParameters
from bitcal_tts.halting.statements import StatementDetector
from bitcal_tts.tasks import load_task
from bitcal_tts.tiny import models
from bitcal_tts.traces.replay import tokens_of
from bitcal_tts.traces.schema import Trace, to_trace
from common import arguments, median, report, requests

PROFILES = Path(__file__).parents[1] / "results" / "settled"


class Unpromising(Settled):
    """What it costs does not depend on whether its promise holds here."""

    promises = False


def steps_of(trace: Trace) -> list[Step]:
    """A trace token by token, as a method is handed it."""
    fed = tokens_of(trace)
    columns = [list(column or ()) for column in (fed.texts, fed.entropies, fed.logprobs, fed.margins, fed.top_logprobs)]
    return [
        Step(text, 1, entropy, None, None, [text], [entropy], [logprob], [margin], [top])
        for text, entropy, logprob, margin, top in zip(*columns, strict=True)
    ]


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
    rows = []
    for kind in ("logistic", "boosted"):
        fitted = json.loads((PROFILES / f"profile-{kind}-0.01.json").read_text())
        profile = Profile(kind, tuple(fitted["features"]), fitted["model"], {})
        vectors = np.random.default_rng(0).random((2000, len(NAMES)))
        features = Features(StatementDetector(), bits=args.bits, budget=320)
        features.update("So the answer is 5.\n", 0.1, -0.1, 3.0)
        parameters = SettledParameters(
            name="settled", bits=args.bits, budget=320, profile=profile, threshold=math.inf, reserve=0,
            opening="<think>", close="</think>",
        )  # fmt: skip
        a_decision, a_token, in_session = [], [], []
        for _ in range(args.repeats):
            began = time.perf_counter()
            for vector in vectors:
                features.vector(at_statement=True)
                profile.score(vector)
            a_decision.append(1e6 * (time.perf_counter() - began) / len(vectors))
            walks = [steps_of(trace) for trace in traces]
            began = time.perf_counter()
            for walk in walks:
                gate = Unpromising(parameters)
                for step in walk:
                    gate.observe(step)
            a_token.append(1e6 * (time.perf_counter() - began) / tokens)
            fed = [tokens_of(trace) for trace in traces]
            began = time.perf_counter()
            for columns in fed:
                Session(Unpromising(parameters)).feed(columns)
            in_session.append(1e6 * (time.perf_counter() - began) / tokens)
        rows.append({
            "kind": kind,
            "microseconds_a_decision": median(a_decision),
            "goal": "<= 50",
            "microseconds_a_token": median(a_token),
            "microseconds_a_token_in_a_session": median(in_session),
            "share_of_decode_time": median(in_session) * tokens / 1e6 / decode,
        })  # fmt: skip
    report("settled_cost", args, rows)


if __name__ == "__main__":
    main()
