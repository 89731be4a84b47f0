"""Method `settled`: stop where an answer has just been stated and a fitted score says that it will stand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitcal_tts.halting.controller import Decision, Step
from bitcal_tts.halting.features import Features
from bitcal_tts.halting.gate import Gate, LandingParameters
from bitcal_tts.halting.loops import LoopGuard
from bitcal_tts.halting.policy import Action, Reason
from bitcal_tts.halting.profile import Profile
from bitcal_tts.halting.statements import StatementDetector


@dataclass(frozen=True, kw_only=True)
class SettledParameters(LandingParameters):
    """A gate with a profile.

    Attributes:
        profile: Scores the looks and brings the threshold for the served bits.
        looks: `statements`, with boundaries as a fallback where none has come by `fallback_after` tokens;
            `boundaries`; or `both`.
        fallback_after: Tokens without a statement from which on boundaries are looked at.
        guard: Whether exact repetition ends the decode, for somebody else to take over.
    """

    profile: Profile
    looks: str = "statements"
    fallback_after: int = 128
    guard: bool = True

    def __post_init__(self) -> None:
        if isinstance(self.profile, dict):
            object.__setattr__(self, "profile", Profile.from_dict(self.profile))
        if not isinstance(self.profile, Profile):
            raise ValueError(f"profile must be a Profile or its JSON object, got {type(self.profile).__name__}")
        super().__post_init__()
        if self.looks not in ("statements", "boundaries", "both"):
            raise ValueError(f"looks must be statements, boundaries or both, got {self.looks!r}")


class Settled(Gate):
    """Looks at answer statements; at boundaries only as long as no answer has been stated, or where told to."""

    reason = Reason.SETTLED

    def __init__(self, parameters: SettledParameters) -> None:
        super().__init__(parameters)
        detector = _detector(parameters.format.stated)
        self._features = Features(detector, bits=parameters.bits, budget=parameters.budget)
        self._guard = LoopGuard() if parameters.guard else None
        self.first_score: float | None = None

    def token(self, text: str, entropy: float, logprob: float, margin: float) -> float | None:
        """Score a statement that this token completes."""
        if self._guard is not None:
            self._guard.feed(text)
        statement = self._features.update(text, entropy, logprob, margin)
        if statement is None or self.parameters.looks == "boundaries":
            return None
        return self._judge(self._features.vector(at_statement=True))

    def boundary(self, step: Step) -> float | None:
        """Score a boundary, where boundaries are looked at."""
        p = self.parameters
        if p.looks == "statements" and (self._features.statements or self.tokens < p.fallback_after):
            return None
        return self._judge(self._features.vector(at_statement=False))

    def observe(self, step: Step) -> Decision:
        """Take the next step and decide; text that repeats itself exactly is given up."""
        if step.logprobs is None or step.margins is None:
            raise ValueError("settled needs the log-probability and margin of every token, which this engine hands not")
        decision = super().observe(step)
        if self._guard is not None and self._guard.looping and not decision.halts and not self._finished():
            return Decision(Action.ESCALATE, Reason.LOOP, self.tokens, decision.confidence, step.entropy, 0.0, 0.0)
        return decision

    def _judge(self, vector: NDArray[np.float64]) -> float:
        score: float = self.parameters.profile.score(vector)
        if self.first_score is None:
            self.first_score = score
        return score


_DETECTORS: dict[str | None, StatementDetector] = {}


def _detector(stated: str | None) -> StatementDetector:
    """A detector's expressions are compiled once."""
    if stated not in _DETECTORS:
        _DETECTORS[stated] = StatementDetector(stated)
    return _DETECTORS[stated]


def build(**kwargs: Any) -> Settled:
    """The method from keyword arguments; the threshold is the profile's unless given."""
    parameters = SettledParameters(**kwargs)
    if "threshold" not in kwargs:
        threshold = parameters.profile.threshold(parameters.bits)
        parameters = SettledParameters(**{**kwargs, "threshold": threshold})
    return Settled(parameters)
