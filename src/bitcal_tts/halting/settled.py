"""Method `settled`: stop where an answer has just been stated and a fitted score says that it will stand."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from bitcal_tts.halting.controller import Decision, Step
from bitcal_tts.halting.drift import MIN_REFERENCE, DriftMonitor, DriftWarning
from bitcal_tts.halting.features import Features
from bitcal_tts.halting.gate import Gate, LandingParameters
from bitcal_tts.halting.loops import LoopGuard
from bitcal_tts.halting.policy import Action, Reason
from bitcal_tts.halting.profile import Profile
from bitcal_tts.halting.statements import detector_for

S = TypeVar("S", bound="Settled")


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
    """Looks at answer statements; at boundaries only as long as no answer has been stated, or where told to.

    Args:
        parameters: With the profile.
        monitor: Told the score at the first strong statement of every request made from this one; warns on drift.
    """

    reason = Reason.SETTLED

    def __init__(self, parameters: SettledParameters, monitor: DriftMonitor | None = None) -> None:
        super().__init__(parameters)
        self.monitor = monitor
        detector = detector_for(parameters.format.stated)
        self._features = Features(detector, bits=parameters.bits, budget=parameters.budget)
        self._stated_at = 0
        self._guard = LoopGuard() if parameters.guard else None
        self._watched = False

    def fresh(self: S) -> S:
        """The same method for another request, watched by the same monitor."""
        return type(self)(self.parameters, self.monitor)

    def token(self, text: str, entropy: float, logprob: float, margin: float) -> float | None:
        """Score a statement that this token completes."""
        if self._guard is not None:
            self._guard.feed(text)
        statement = self._features.update(text, entropy, logprob, margin)
        if statement is None or self.parameters.looks == "boundaries":
            return None
        score = self._judge(self._features.vector(at_statement=True))
        self._stated_at = self.tokens
        if statement.strong and not self._finished():
            self._watch(score)
        return score

    def boundary(self, step: Step) -> float | None:
        """Score a boundary, where boundaries are looked at."""
        p = self.parameters
        if self._stated_at == self.tokens:
            return None  # judged already
        if p.looks == "statements" and (self._features.statements or self.tokens < p.fallback_after):
            return None
        return self._judge(self._features.vector(at_statement=False))

    def observe(self, step: Step) -> Decision:
        """Take the next step and decide; text that repeats itself exactly is given up."""
        if step.logprobs is None or step.margins is None:
            raise ValueError("settled needs the log-probability and margin of every token, which this engine hands not")
        decision = super().observe(step)
        if self._guard is not None and self._guard.looping and not decision.halts and not self._finished():
            return replace(decision, action=Action.ESCALATE, reason=Reason.LOOP)
        return decision

    def _judge(self, vector: NDArray[np.float64]) -> float:
        score: float = self.parameters.profile.score(vector)
        return score

    def _watch(self, score: float) -> None:
        """Tell the monitor of the first strong statement of this request."""
        if self._watched or self.monitor is None:
            return
        self._watched = True
        before = self.monitor.drifted
        if self.monitor.update(score) and not before:
            warnings.warn(
                f"after {self.monitor.requests} requests, scores have drifted from those the profile was fitted on: "
                "its promise may no longer hold; record and fit again",
                DriftWarning,
                stacklevel=2,
            )


def build(**kwargs: Any) -> Settled:
    """The method from keyword arguments; threshold and looks are the profile's unless given."""
    parameters = SettledParameters(**kwargs)
    kwargs.setdefault("looks", parameters.profile.identity.get("looks", parameters.looks))
    kwargs.setdefault("threshold", parameters.profile.threshold(parameters.bits))
    parameters = SettledParameters(**kwargs)
    reference = parameters.profile.reference.get(parameters.bits, ())
    return Settled(parameters, DriftMonitor(reference) if len(reference) >= MIN_REFERENCE else None)
