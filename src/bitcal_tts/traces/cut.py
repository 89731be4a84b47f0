"""What a method does on every trace at one setting: as arrays, so that thousands of settings can be tried."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitcal_tts.traces.outcome import Outcome, outcome_of
from bitcal_tts.traces.trace import Trace

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Cut:
    """What a method does on every trace at one setting.

    Attributes:
        tokens: Used.
        probe_tokens: Spent on probes.
        correct: Whether the answer is right.
        same: Whether it is the one that the full trace ends with.
        halted: Whether the method ended it.
        reasons: Why it was halted; empty where it was not.
        full_tokens: Of the undisturbed trace.
        full_correct: Whether the undisturbed trace is right.
    """

    tokens: Ints
    probe_tokens: Ints
    correct: Bools
    same: Bools
    halted: Bools
    reasons: NDArray[np.str_]
    full_tokens: Ints
    full_correct: Bools

    @classmethod
    def joined(cls, cuts: Sequence[Cut]) -> Cut:
        """Several shares of the traces as one."""
        names = [field.name for field in dataclasses.fields(cls)]
        return cls(**{name: np.concatenate([getattr(cut, name) for cut in cuts]) for name in names})

    @property
    def cost(self) -> Ints:
        """Tokens, those of probes included."""
        return self.tokens + self.probe_tokens

    @property
    def share(self) -> float:
        """Of the tokens of the undisturbed traces, how many it costs."""
        return float(self.cost.sum() / max(1, self.full_tokens.sum()))

    @property
    def lost(self) -> Bools:
        """Halted and wrong where the full trace is right."""
        lost: Bools = self.halted & ~self.correct & self.full_correct
        return lost

    @property
    def changed(self) -> Bools:
        """Halted with another answer than the full trace's. Every lost trace is such a one."""
        changed: Bools = self.halted & ~self.same
        return changed

    def losses(self, label: str) -> Bools:
        """By the label `gold` what is lost, by `final`, which knows no gold, what is changed."""
        return self.lost if label == "gold" else self.changed

    def outcomes(self, traces: Sequence[Trace], p: Any) -> list[Outcome]:
        """As outcomes of a method with parameters `p`; what was answered is not told."""
        return [
            outcome_of(
                trace.item.id,
                p,
                tokens=int(self.tokens[i]),
                probe_tokens=int(self.probe_tokens[i]),
                halted=bool(self.halted[i]),
                reason=str(self.reasons[i]) or None,
                answer=None,
                correct=bool(self.correct[i]),
                full_tokens=int(self.full_tokens[i]),
                full_correct=bool(self.full_correct[i]),
            )
            for i, trace in enumerate(traces)
        ]
