"""Method `settled`: stop where an answer has just been stated and a fitted score says that it will stand."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from bitcal_tts.halting.controller import Decision, Step
from bitcal_tts.halting.drift import MIN_REFERENCE, DriftMonitor, DriftWarning
from bitcal_tts.halting.features import Features
from bitcal_tts.halting.gate import Gate, LandingParameters
from bitcal_tts.halting.loops import LoopGuard
from bitcal_tts.halting.policy import Action, Reason
from bitcal_tts.halting.profile import Profile, ProfileError
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
        guard: Whether exact repetition ends the reasoning, at the next boundary.
        force: Use the profile on what it was not fitted on, where no promise holds.
    """

    profile: Profile
    looks: str = "statements"
    fallback_after: int = 128
    guard: bool = True
    force: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.profile, dict):
            object.__setattr__(self, "profile", Profile.from_dict(self.profile))
        if not isinstance(self.profile, Profile):
            raise ValueError(f"profile must be a Profile or its JSON object, got {type(self.profile).__name__}")
        super().__post_init__()
        if self.looks not in ("statements", "boundaries", "both"):
            raise ValueError(f"looks must be statements, boundaries or both, got {self.looks!r}")

    def check(self, served: Mapping[str, Any]) -> None:
        """Refuse to serve what the profile was not fitted on; where that is forced, warn."""
        try:
            self.profile.check({**served, "answers": self.answers}, self.budget)
        except ProfileError as error:
            if not self.force:
                raise ProfileError(f"{error}, or force it") from None
            warnings.warn(f"{error}. It was forced: no promise holds", ProfileWarning, stacklevel=3)


class ProfileWarning(UserWarning):
    """A profile is used on what it was not fitted on."""


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
        """Take the next step and decide."""
        if step.logprobs is None or step.margins is None:
            raise ValueError("settled needs the log-probability and margin of every token, which this engine hands not")
        return super().observe(step)

    def _verdict(self, score: float | None, at_boundary: bool) -> tuple[Action, Reason]:
        """As any gate; and what repeats itself exactly has said all that it will say."""
        action, reason = super()._verdict(score, at_boundary)
        if action is Action.CONTINUE and at_boundary and self._guard is not None and self._guard.looping:
            return Action.STOP, Reason.LOOP
        return action, reason

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
    """The method from keyword arguments; what the profile was certified with holds unless it is given.

    Where the profile could certify nothing it decodes to the end: neither the reserve nor a loop cuts it short.
    """
    parameters = SettledParameters(**kwargs)
    profile = parameters.profile
    opening, close = profile.identity.get("thinking") or (None, None)
    usual = {
        "looks": profile.identity.get("looks", parameters.looks),
        "every": profile.identity.get("every", parameters.every),
        "answers": profile.identity.get("answers", parameters.answers),
        "opening": opening,
        "close": close,
        "threshold": profile.threshold(parameters.bits),
    }
    kwargs = {**usual, **kwargs}
    if math.isinf(kwargs["threshold"]):
        kwargs = {**kwargs, "guard": False, "reserve": 0}
    parameters = SettledParameters(**kwargs)
    reference = profile.reference.get(parameters.bits, ())
    return Settled(parameters, DriftMonitor(reference) if len(reference) >= MIN_REFERENCE else None)
