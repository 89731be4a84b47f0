"""Looks of recorded traces: what the gate sees at each, and what stopping there would have come to.

Traces are walked once, by the method itself; after that any scorer at any threshold is arithmetic on arrays. The result
is exactly that of `replay`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from bitcal_tts.halting.features import NAMES
from bitcal_tts.halting.policy import Action
from bitcal_tts.halting.profile import Profile
from bitcal_tts.halting.settled import Settled, SettledParameters
from bitcal_tts.tasks.base import Task
from bitcal_tts.traces.gates import Cut
from bitcal_tts.traces.replay import Halt, end_of, ending, steps
from bitcal_tts.traces.schema import Trace

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]

BLANK = Profile(
    kind="logistic",
    features=(),
    model={"mean": [], "scale": [], "weights": [], "intercept": 0.0},
    thresholds={},
    identity={},
    evidence={},
    reference={},
)
"""Scores nothing: for walking along traces before anything is fitted."""


@dataclass(frozen=True)
class Looks:
    """Looks, one row each, in the order of the traces; and how each trace ends where no look stops it.

    Attributes:
        vectors: What the gate sees, in the order of `NAMES`.
        trace: Which trace a look is of.
        tokens: What stopping there costs, the landing included.
        right: Whether the answer written there is right.
        same: Whether it is the one that the full trace ends with.
        end_tokens: Of each trace, where nothing stops it but its budget.
        end_right: Whether that end is right.
        end_same: Whether it gives the full trace's answer.
        end_halted: Whether it was halted: a soft landing at the budget, or a loop.
        full_tokens: Of the undisturbed trace.
        full_right: Whether the undisturbed trace is right.
    """

    vectors: NDArray[np.float64]
    trace: Ints
    tokens: Ints
    right: Bools
    same: Bools
    end_tokens: Ints
    end_right: Bools
    end_same: Bools
    end_halted: Bools
    full_tokens: Ints
    full_right: Bools

    def __len__(self) -> int:
        return len(self.trace)

    @property
    def n(self) -> int:
        """How many traces."""
        return len(self.full_right)

    def of(self, traces: Sequence[int] | Ints) -> Looks:
        """The looks of some of the traces, which are numbered anew in their order."""
        chosen = np.asarray(traces, dtype=np.int64)
        number = np.full(self.n, -1, dtype=np.int64)
        number[chosen] = np.arange(len(chosen))
        rows = np.nonzero(number[self.trace] >= 0)[0]
        rows = rows[np.argsort(number[self.trace[rows]], kind="stable")]
        return Looks(
            self.vectors[rows],
            number[self.trace[rows]],
            self.tokens[rows],
            self.right[rows],
            self.same[rows],
            self.end_tokens[chosen],
            self.end_right[chosen],
            self.end_same[chosen],
            self.end_halted[chosen],
            self.full_tokens[chosen],
            self.full_right[chosen],
        )

    def label(self, name: str) -> Bools:
        """`gold`: the answer here is right. `final`: it is the one that the full run ends with.

        "Right, or the full run is wrong anyway" would be the loss itself, and is worse: a scorer learns from it to give
        up early on items that look hopeless.
        """
        if name not in ("gold", "final"):
            raise ValueError(f"label must be gold or final, got {name!r}")
        return self.right if name == "gold" else self.same

    def at(self, scores: NDArray[np.float64], threshold: float) -> Cut:
        """What a gate with these scores does at a threshold: it stops at the first look that reaches it."""
        look = self._stops(scores, threshold)
        early = look >= 0
        tokens = np.where(early, self.tokens[look] if len(self) else 0, self.end_tokens)
        right = np.where(early, self.right[look] if len(self) else False, self.end_right)
        return Cut(tokens, np.zeros_like(tokens), right, early | self.end_halted)

    def full(self) -> Cut:
        """What the undisturbed traces come to."""
        nowhere = np.zeros(self.n, dtype=np.bool_)
        return Cut(self.full_tokens, np.zeros_like(self.full_tokens), self.full_right, nowhere)

    def losses(self, scores: NDArray[np.float64], threshold: float, label: str = "gold") -> Bools:
        """Whether each trace is lost at a threshold: halted and wrong where the full trace is right.

        By the label `final`, which knows no gold: halted with another answer than the full trace's. Every lost trace is
        such a one, so that a bound on these holds for the lost as well.
        """
        look = self._stops(scores, threshold)
        early = look >= 0
        if label == "gold":
            right = np.where(early, self.right[look] if len(self) else False, self.end_right)
            lost: Bools = (early | self.end_halted) & ~right & self.full_right
            return lost
        same = np.where(early, self.same[look] if len(self) else False, self.end_same)
        changed: Bools = (early | self.end_halted) & ~same
        return changed

    def _stops(self, scores: NDArray[np.float64], threshold: float) -> Ints:
        """The look at which each trace is stopped, or -1."""
        hits = np.nonzero(scores >= threshold)[0]
        stopped, first = np.unique(self.trace[hits], return_index=True)
        look = np.full(self.n, -1, dtype=np.int64)
        look[stopped] = hits[first]
        return look

    def first_scores(self, scores: NDArray[np.float64], threshold: float) -> NDArray[np.float64]:
        """The score at the first strong statement of each trace that gets there: what drift is watched by."""
        strong = np.nonzero(self.vectors[:, NAMES.index("strong")] > 0)[0]
        traces, first = np.unique(self.trace[strong], return_index=True)
        at = strong[first]
        stop = self._stops(scores, threshold)[traces]
        return scores[at[(stop < 0) | (stop >= at)]]


class _Recorder(Settled):
    """Walks a trace as the method does and notes what it would have judged."""

    vector: NDArray[np.float64] | None = None

    def _judge(self, vector: NDArray[np.float64]) -> float:
        self.vector = vector
        return 0.0


def looks_of(
    traces: Sequence[Trace], parameters: SettledParameters, task: Task, *, tick: Callable[[], None] | None = None
) -> Looks:
    """Every look along the traces; the threshold of the parameters must be out of reach."""
    vectors: list[NDArray[np.float64]] = []
    looks: list[tuple[int, int, bool, bool]] = []
    ends: list[tuple[int, bool, bool, bool]] = []
    fulls: list[tuple[int, bool]] = []
    for i, trace in enumerate(traces):
        full = end_of(trace, parameters.budget)
        _, final = ending(trace, full, task)
        fulls.append((full.tokens, task.correct(final, trace.item)))
        last = (*fulls[-1], True, False)
        recorder = _Recorder(parameters)
        for step in steps(trace, parameters.chunk_size, parameters.budget):
            recorder.vector = None
            decision = recorder.observe(step)
            if decision.looked and recorder.vector is not None:
                stopped = replace(decision, landing=recorder.landing_for(Action.STOP))
                cost, answer = ending(trace, Halt(decision.tokens, "halted", stopped), task)
                agrees = _agree(answer, final, task)
                vectors.append(recorder.vector)
                looks.append((i, cost, task.correct(answer, trace.item), agrees))
            if decision.halts:
                cost, answer = ending(trace, Halt(decision.tokens, "halted", decision), task)
                last = (cost, task.correct(answer, trace.item), _agree(answer, final, task), True)
                break
        ends.append(last)
        if tick:
            tick()
    seen = np.array(looks, dtype=np.int64).reshape(-1, 4)
    end = np.array(ends, dtype=np.int64).reshape(-1, 4)
    whole = np.array(fulls, dtype=np.int64).reshape(-1, 2)
    return Looks(
        np.array(vectors).reshape(len(vectors), len(NAMES)),
        seen[:, 0],
        seen[:, 1],
        seen[:, 2].astype(np.bool_),
        seen[:, 3].astype(np.bool_),
        end[:, 0],
        end[:, 1].astype(np.bool_),
        end[:, 2].astype(np.bool_),
        end[:, 3].astype(np.bool_),
        whole[:, 0],
        whole[:, 1].astype(np.bool_),
    )


def _agree(answer: str | None, final: str | None, task: Task) -> bool:
    """Whether stopping kept the full run's answer; where that has none, there is nothing to keep."""
    if final is None:
        return True
    return answer is not None and task.answers.equal(answer, final)
