"""Thousands of parameter settings on the same traces at once.

Signals do not depend on thresholds, so they are computed once, by the controller's own code, into arrays of
traces x steps; a setting is then a handful of comparisons. The result is exactly that of `replay`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bitcal_tts.halting.confidence import confidence
from bitcal_tts.halting.controller import Controller
from bitcal_tts.halting.parameters import Parameters
from bitcal_tts.halting.policy import Reason
from bitcal_tts.tasks.base import Task
from bitcal_tts.traces.replay import at_chunk_size, end_of, steps
from bitcal_tts.traces.schema import Trace

Floats = NDArray[np.float64]
_REASONS = (Reason.TAIL_SATISFIED, Reason.BUFFER, Reason.HIGH_ENTROPY, Reason.CONFIDENT)


@dataclass(frozen=True)
class SweepResult:
    """What one setting does on every trace."""

    tokens: NDArray[np.int64]
    correct: NDArray[np.bool_]
    halted: NDArray[np.bool_]
    reason: NDArray[np.int8]
    """Index into `Sweep.REASONS`; -1 where the trace ended by itself."""


class Sweep:
    """Signals of all traces at the boundaries of one chunk size and budget, ready to be cut by any setting.

    Args:
        traces: As recorded; another chunk size than theirs needs their hidden vectors.
        base: A controller; its marker, chunk size and budget are fixed, everything else may be swept.
        task: Extracts and scores the answer at every boundary.
        recorded_chunk_size: The chunk size of the recording.
    """

    REASONS = _REASONS

    def __init__(self, traces: Sequence[Trace], base: Controller, task: Task, *, recorded_chunk_size: int = 16) -> None:
        p = base.parameters
        traces = at_chunk_size(traces, p.chunk_size, recorded_chunk_size)
        self.chunk_size, self.budget, self.marker = p.chunk_size, p.budget, p.marker
        width = max((min(len(t), p.budget - 1) // p.chunk_size for t in traces), default=0)
        shape = (len(traces), width)
        self.entropy: Floats = np.zeros(shape)
        self.trace_stability: Floats = np.ones(shape)
        self.hidden_stability: Floats = np.ones(shape)
        self.marker_at: Floats = np.full(shape, np.nan)
        self.exists = np.zeros(shape, dtype=bool)
        # Column `width` is where the undisturbed trace ends.
        self.end_tokens = np.array([end_of(t, p.budget).tokens for t in traces], dtype=np.int64)
        self.correct = np.zeros((len(traces), width + 1), dtype=bool)
        self.answered = np.zeros((len(traces), width + 1), dtype=bool)
        for i, trace in enumerate(traces):
            self._observe(i, trace, base.fresh(), task)
        self.tokens = np.arange(1, width + 1) * p.chunk_size

    def _observe(self, i: int, trace: Trace, controller: Controller, task: Task) -> None:
        for j, step in enumerate(steps(trace, self.chunk_size, self.budget)):
            decision = controller.observe(step)
            self.exists[i, j] = True
            self.entropy[i, j] = decision.entropy
            self.trace_stability[i, j] = decision.trace_stability
            self.hidden_stability[i, j] = decision.hidden_stability
            if controller.marker_at is not None:
                self.marker_at[i, j] = controller.marker_at
            self._look(i, j, trace, decision.tokens, task)
        self._look(i, -1, trace, int(self.end_tokens[i]), task)

    def _look(self, i: int, j: int, trace: Trace, tokens: int, task: Task) -> None:
        answer = task.answers.value(trace.text_at(tokens))
        self.answered[i, j] = answer is not None
        self.correct[i, j] = task.correct(answer, trace.item)

    def confidence(self, p: Parameters) -> Floats:
        """c_t of every trace at every boundary under a setting."""
        c: Floats = confidence(
            self.entropy,
            self.trace_stability,
            self.hidden_stability,
            weights=p.mixture,
            scale=p.bit_scale,
            entropy_max=p.entropy_max,
            gamma=p.gamma,
        )
        return c

    def run(self, settings: Iterable[Parameters]) -> list[SweepResult]:
        """One result a setting."""
        return [self._cut(p) for p in settings]

    def _cut(self, p: Parameters) -> SweepResult:
        if (p.chunk_size, p.budget, p.marker) != (self.chunk_size, self.budget, self.marker):
            raise ValueError(
                f"this sweep holds chunk_size={self.chunk_size}, budget={self.budget}, marker={self.marker!r}; "
                f"got {p.chunk_size}, {p.budget}, {p.marker!r}: make another Sweep"
            )
        rows, width = self.entropy.shape
        if not p.halts or width == 0:
            return self._results(np.full(rows, width), np.full(rows, -1, dtype=np.int8))
        c = self.confidence(p)
        marked = ~np.isnan(self.marker_at)
        with np.errstate(invalid="ignore"):
            tail_over = marked & (self.tokens - self.marker_at >= p.tail_tokens)
        buffer = ~marked & (self.budget - self.tokens < p.min_remaining)
        lost = ~marked & (self.entropy >= p.escalate_entropy)
        sure = ~marked & (self.entropy <= p.stop_entropy) & (c >= p.stop_confidence)
        allowed = self.exists & (self.tokens >= p.min_tokens)
        halts = allowed & (tail_over | buffer | lost | sure)
        at = np.where(halts.any(1), halts.argmax(1), width)
        # In the order of the case table: the first that holds at the halting step names the reason.
        cases = np.stack([np.pad(case, ((0, 0), (0, 1))) for case in (tail_over, buffer, lost, sure)])
        here = cases[:, np.arange(rows), at]
        reason = np.where(at < width, here.argmax(0), -1).astype(np.int8)
        return self._results(at, reason)

    def _results(self, at: NDArray[np.int64], reason: NDArray[np.int8]) -> SweepResult:
        rows, width = self.entropy.shape
        halted = at < width
        tokens = np.where(halted, (at + 1) * self.chunk_size, self.end_tokens)
        return SweepResult(tokens, self.correct[np.arange(rows), at], halted, reason)
