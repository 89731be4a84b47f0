"""Looks of recorded traces: what the gate sees at each, and whether stopping there would have lost anything."""

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
from bitcal_tts.traces.replay import Halt, end_of, ending, steps
from bitcal_tts.traces.schema import Trace

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
    """One row a look; `trace` numbers the traces."""

    vectors: NDArray[np.float64]
    trace: NDArray[np.int64]
    right: NDArray[np.bool_]
    same: NDArray[np.bool_]
    full_right: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.trace)

    def label(self, name: str) -> NDArray[np.bool_]:
        """`gold`: stopping here loses nothing that the full run has right. `final`: the full run ends the same."""
        if name == "gold":
            return self.right | ~self.full_right
        if name == "final":
            return self.same
        raise ValueError(f"label must be gold or final, got {name!r}")


class _Recorder(Settled):
    """Walks a trace as the method does and notes what it would have judged."""

    vector: NDArray[np.float64] | None = None

    def _judge(self, vector: NDArray[np.float64]) -> float:
        self.vector = vector
        return 0.0


def looks_of(
    traces: Sequence[Trace],
    parameters: SettledParameters,
    task: Task,
    *,
    tick: Callable[[], None] | None = None,
) -> Looks:
    """Every look along the traces, with labels."""
    vectors, numbers, right, same, full_right = [], [], [], [], []
    for i, trace in enumerate(traces):
        final = task.answers.value(trace.text_at(end_of(trace, parameters.budget).tokens))
        is_right = task.correct(final, trace.item)
        recorder = _Recorder(parameters)
        for step in steps(trace, parameters.chunk_size, parameters.budget):
            decision = recorder.observe(step)
            if decision.looked and recorder.vector is not None:
                stopped = replace(decision, landing=recorder.landing_for(Action.STOP))
                _, answer = ending(trace, Halt(decision.tokens, "halted", stopped), task)
                vectors.append(recorder.vector)
                numbers.append(i)
                right.append(task.correct(answer, trace.item))
                same.append(answer is not None and final is not None and task.answers.equal(answer, final))
                full_right.append(is_right)
            if decision.halts:
                break
        if tick:
            tick()
    return Looks(
        np.array(vectors).reshape(len(vectors), len(NAMES)),
        np.array(numbers, dtype=np.int64),
        np.array(right, dtype=bool),
        np.array(same, dtype=bool),
        np.array(full_right, dtype=bool),
    )
