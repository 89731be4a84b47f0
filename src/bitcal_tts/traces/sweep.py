"""Thousands of parameter settings on the same traces at once.

Signals do not depend on thresholds, so they are computed once, by the controller's own code, into arrays of
traces x steps; a setting is then a handful of comparisons. The result is exactly that of `replay`, cut like any other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from bitcal_tts.halting.confidence import confidence
from bitcal_tts.halting.controller import Decision
from bitcal_tts.halting.paper import PaperRule
from bitcal_tts.halting.parameters import Parameters
from bitcal_tts.halting.policy import Reason
from bitcal_tts.halting.session import Session
from bitcal_tts.halting.signals import Signal
from bitcal_tts.halting.stopping import answer_of
from bitcal_tts.tasks.base import Task
from bitcal_tts.traces.chunks import at_chunk_size
from bitcal_tts.traces.cut import Cut
from bitcal_tts.traces.replay import check_format, full_run, replay
from bitcal_tts.traces.trace import Trace

Floats = NDArray[np.float64]
_FED = frozenset({Signal.ENTROPY, Signal.HIDDEN})
_REASONS = np.array([str(r) for r in (Reason.TAIL_SATISFIED, Reason.BUFFER, Reason.HIGH_ENTROPY, Reason.CONFIDENT)])


class Sweep:
    """Signals of all traces at the boundaries of one chunk size and budget, ready to be cut by any setting.

    Args:
        traces: As recorded; another chunk size than theirs needs their hidden vectors, where hidden states are read.
        base: One of the paper's methods; its marker, chunk size and budget are fixed, everything else may be swept:
            where it reads no hidden states (`hidden=False`), those that do not either.
        task: Scores the answer at every boundary.
    """

    def __init__(self, traces: Sequence[Trace], base: PaperRule, task: Task) -> None:
        check_format(base, task)
        p = base.parameters
        if p.hidden:
            traces = at_chunk_size(traces, p.chunk_size)
        self.chunk_size, self.budget, self.marker, self.hidden = p.chunk_size, p.budget, p.marker, p.hidden
        width = max((min(len(t), p.budget - 1) // p.chunk_size for t in traces), default=0)
        shape = (len(traces), width)
        self.entropy: Floats = np.zeros(shape)
        self.trace_stability: Floats = np.ones(shape)
        self.hidden_stability: Floats = np.ones(shape)
        self.marker_at: Floats = np.full(shape, np.nan)
        self.exists = np.zeros(shape, dtype=bool)
        # Column `width` is where the undisturbed trace ends.
        self.end_tokens = np.zeros(len(traces), dtype=np.int64)
        self.correct = np.zeros((len(traces), width + 1), dtype=bool)
        self.answered = np.zeros((len(traces), width + 1), dtype=bool)
        self.same = np.zeros((len(traces), width + 1), dtype=bool)
        for i, trace in enumerate(traces):
            self._observe(i, trace, base, task)
        self.tokens = np.arange(1, width + 1) * p.chunk_size

    def _observe(self, i: int, trace: Trace, base: PaperRule, task: Task) -> None:
        full = full_run(trace, base.parameters)
        self.end_tokens[i] = full.tokens
        self._look(i, -1, full.answer, full.answer, trace, task)

        def note(session: Session, decision: Decision) -> None:
            j = decision.tokens // self.chunk_size - 1
            self.exists[i, j] = True
            self.entropy[i, j] = decision.entropy
            self.trace_stability[i, j] = decision.trace_stability
            self.hidden_stability[i, j] = decision.hidden_stability
            assert isinstance(session.method, PaperRule)
            if session.method.marker_at is not None:
                self.marker_at[i, j] = session.method.marker_at
            answer = answer_of(trace.text_at(decision.tokens), base.parameters)
            self._look(i, j, answer, full.answer, trace, task)

        replay(trace, base, watch=note, heed=False, fed=_FED if self.hidden else _FED - {Signal.HIDDEN})

    def _look(self, i: int, j: int, answer: str | None, final: str | None, trace: Trace, task: Task) -> None:
        self.answered[i, j] = answer is not None
        self.correct[i, j] = task.correct(answer, trace.item)
        self.same[i, j] = task.format.keeps(answer, final)

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

    def run(self, settings: Iterable[Parameters]) -> list[Cut]:
        """One result a setting."""
        return [self._cut(p) for p in settings]

    def _cut(self, p: Parameters) -> Cut:
        if (p.chunk_size, p.budget, p.marker) != (self.chunk_size, self.budget, self.marker):
            raise ValueError(
                f"this sweep holds chunk_size={self.chunk_size}, budget={self.budget}, marker={self.marker!r}; "
                f"got {p.chunk_size}, {p.budget}, {p.marker!r}: make another Sweep"
            )
        if p.hidden and not self.hidden:
            raise ValueError("this sweep holds no hidden states (hidden=False): make another Sweep")
        rows, width = self.entropy.shape
        if not p.halts or width == 0:
            return self._results(np.full(rows, width), np.full(rows, ""))
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
        return self._results(at, np.where(at < width, _REASONS[here.argmax(0)], ""))

    def _results(self, at: NDArray[np.int64], reasons: NDArray[np.str_]) -> Cut:
        rows, width = self.entropy.shape
        each = np.arange(rows)
        halted = at < width
        return Cut(
            tokens=np.where(halted, (at + 1) * self.chunk_size, self.end_tokens),
            probe_tokens=np.zeros(rows, dtype=np.int64),
            correct=self.correct[each, at],
            same=self.same[each, at],
            halted=halted,
            reasons=reasons,
            full_tokens=self.end_tokens,
            full_correct=self.correct[:, width],
        )
