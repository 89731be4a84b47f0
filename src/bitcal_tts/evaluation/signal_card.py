"""What the weight precision does to the signals: the same text scored at several precisions, and their reliability."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from bitcal_tts.engines.base import Score
from bitcal_tts.evaluation.reliability import reliability
from bitcal_tts.evaluation.statistics import bootstrap_ratios
from bitcal_tts.halting.methods import build_method
from bitcal_tts.tasks.base import Task
from bitcal_tts.traces.sweep import Sweep
from bitcal_tts.traces.trace import Trace

SIGNALS = ("entropies", "logprobs", "margins", "hidden_similarities")


def confidence_reliability(
    traces: Sequence[Trace], task: Task, *, bits: float, budget: int, chunk_size: int, min_tokens: int
) -> dict[str, Any]:
    """The paper's confidence as a predictor of "the answer now is right", at chunk boundaries past the floor.

    Told twice: over all boundaries, where text without an answer counts as wrong, and over those with an answer.
    """
    method = build_method(
        "bitcal_tts", bits=bits, budget=budget, chunk_size=chunk_size, min_tokens=min_tokens, answers=task.format.name
    )
    sweep = Sweep(traces, method, task)
    c = sweep.confidence(method.parameters)
    right, answered = sweep.correct[:, :-1], sweep.answered[:, :-1]
    looked_at = sweep.exists & (sweep.tokens >= min_tokens)
    found: dict[str, Any] = {}
    for name, mask in (("all_boundaries", looked_at), ("answered", looked_at & answered)):
        found[name] = reliability(c[mask], right[mask]) if mask.any() else None
    return found


def rescored(trace: Trace, score: Score) -> Trace:
    """A trace as if another precision had written the same text."""
    return dataclasses.replace(
        trace,
        entropies=score.entropies,
        logprobs=score.logprobs,
        margins=score.margins,
        top_logprobs=score.top_logprobs,
        hidden_similarities=score.hidden_similarities,
    )


def shifts(reference: Sequence[Score], scores: Sequence[Score]) -> dict[str, Any]:
    """Level of every signal at a precision and its mean shift from the reference precision, on the same text.

    Intervals are 95 % bootstrap percentiles over traces, whose tokens are not independent.
    """
    told: dict[str, Any] = {}
    for name in SIGNALS:
        pairs = [(getattr(a, name), getattr(b, name)) for a, b in zip(reference, scores, strict=True)]
        values = np.concatenate([b for _, b in pairs])
        sums = np.array([float((b - a).sum()) for a, b in pairs])
        counts = np.array([len(b) for _, b in pairs])
        if values.size == 0:
            continue
        low, high = np.nanpercentile(bootstrap_ratios(sums, counts), [2.5, 97.5])
        told[name] = {
            "mean": float(values.mean()),
            "p05": float(np.percentile(values, 5)),
            "median": float(np.median(values)),
            "p95": float(np.percentile(values, 95)),
            "shift": float(sums.sum() / counts.sum()),
            "shift_low": float(low),
            "shift_high": float(high),
        }
    agrees = np.concatenate([s.agrees for s in scores])
    told["greedy_agreement"] = float(agrees.mean())
    return told
