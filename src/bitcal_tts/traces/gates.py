"""A gate at every threshold from one pass over the traces.

A gate ends a trace at the first look whose score reaches the threshold. So only looks that score higher than all before
them can ever be that look; each trace keeps those, and a threshold is a search among them. The result is exactly that
of `replay`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitcal_tts.halting.gate import Gate
from bitcal_tts.tasks.base import Task
from bitcal_tts.traces.replay import Halt, end_of, ending, informed, steps
from bitcal_tts.traces.schema import Trace


@dataclass(frozen=True)
class Cut:
    """What a gate does on every trace at one threshold."""

    tokens: NDArray[np.int64]
    probe_tokens: NDArray[np.int64]
    correct: NDArray[np.bool_]
    halted: NDArray[np.bool_]

    @property
    def cost(self) -> NDArray[np.int64]:
        """Tokens, those of probes included."""
        return self.tokens + self.probe_tokens


class GateSweep:
    """The looks of a gate along every trace, ready to be cut at any threshold.

    Args:
        traces: Recorded with probes where the gate probes or lands.
        gate: Its threshold does not matter.
        task: Extracts and scores answers.
        tick: Told of each trace.
    """

    def __init__(
        self, traces: Sequence[Trace], gate: Gate, task: Task, *, tick: Callable[[], None] | None = None
    ) -> None:
        p = gate.parameters
        never = type(gate)(dataclasses.replace(p, threshold=math.inf))
        self.strict = gate.strict
        self.full_tokens = np.zeros(len(traces), dtype=np.int64)
        self.full_correct = np.zeros(len(traces), dtype=bool)
        scores: list[list[float]] = []
        ends: list[list[_End]] = []
        for i, trace in enumerate(traces):
            full = end_of(trace, p.budget)
            self.full_tokens[i] = full.tokens
            self.full_correct[i] = task.correct(ending(trace, full, task)[1], trace.item)
            risen, stops = _walk(trace, informed(never.fresh(), trace, task, p.budget), task, p)
            scores.append(risen)
            ends.append(stops)
            if tick:
                tick()
        # A row a trace: its rising scores, then what is out of reach. All ends in one table, a trace's from `first` on.
        self._scores = np.full((len(traces), max(map(len, scores), default=0)), np.inf)
        for i, risen in enumerate(scores):
            self._scores[i, : len(risen)] = risen
        self._counts = np.array([len(risen) for risen in scores], dtype=np.int64)
        self._first = np.cumsum([0, *map(len, ends)])[:-1]
        self._ends = np.array([end for stops in ends for end in stops], dtype=np.int64).reshape(-1, 4)

    def at(self, threshold: float) -> Cut:
        """What the gate does at a threshold."""
        passed = self._scores <= threshold if self.strict else self._scores < threshold
        chosen = self._ends[self._first + np.minimum(passed.sum(axis=1), self._counts)]
        return Cut(chosen[:, 0], chosen[:, 1], chosen[:, 2].astype(np.bool_), chosen[:, 3].astype(np.bool_))

    def all_scores(self) -> NDArray[np.float64]:
        """Every score that a threshold could be put at, in rising order."""
        return np.unique(self._scores[np.isfinite(self._scores)])


_End = tuple[int, int, bool, bool]  # tokens, those of probes, right, halted


def _walk(trace: Trace, gate: Any, task: Task, p: Any) -> tuple[list[float], list[_End]]:
    """The scores that exceed all before them, where each would end the trace, and last the end where none does."""
    highest = -math.inf
    scores: list[float] = []
    ends: list[_End] = []
    halt = end_of(trace, p.budget)
    spent = 0
    for step in steps(trace, p.chunk_size, p.budget):
        decision = gate.observe(step)
        spent = decision.probe_tokens
        if decision.looked and decision.confidence > highest:
            highest = decision.confidence
            # Where it would end if the threshold were this score: as the gate itself would.
            action = type(gate).action
            there = dataclasses.replace(decision, action=action, landing=gate.landing_for(action))
            scores.append(highest)
            ends.append(_end(trace, Halt(decision.tokens, "halted", there, spent), task))
        if decision.halts:
            halt = Halt(decision.tokens, "halted", decision, spent)
            break
    ends.append(_end(trace, dataclasses.replace(halt, probe_tokens=spent), task))
    return scores, ends


def _end(trace: Trace, halt: Halt, task: Task) -> _End:
    tokens, answer = ending(trace, halt, task)
    return tokens, halt.probe_tokens, task.correct(answer, trace.item), halt.decision is not None
