"""What methods that judge at looks share: the stream of tokens, the threshold, the reserve, the soft landing."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, TypeVar

from bitcal_tts.halting.complete import AnswerTracker, GateParameters
from bitcal_tts.halting.controller import Decision, Probe, Step
from bitcal_tts.halting.landing import Landing, landing
from bitcal_tts.halting.parameters import whole
from bitcal_tts.halting.policy import Action, Reason

G = TypeVar("G", bound="Gate")


@dataclass(frozen=True, kw_only=True)
class LandingParameters(GateParameters):
    """Gate parameters with a threshold and a soft landing.

    Attributes:
        threshold: A look whose score reaches it ends the reasoning. Infinite: never.
        every: Tokens between boundaries, where probing rules look.
        reserve: Tokens of the budget kept for closing the thinking and writing the answer, by default what the
            answer format asks for; 0 never lands at the cap.
    """

    threshold: float = math.inf
    every: int = 16
    reserve: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.reserve is None:
            object.__setattr__(self, "reserve", self.format.reserve)
        for field in fields(self):
            _check(field.name, getattr(self, field.name), str(field.type))
        whole("every", self.every, least=1)


def _check(name: str, value: Any, kind: str) -> None:
    """Refuse what a field cannot hold."""
    if kind == "float" and (isinstance(value, bool) or not isinstance(value, (int, float)) or math.isnan(value)):
        raise ValueError(f"{name} must be a number, got {value!r}")
    if kind.startswith("int"):
        whole(name, value, least=0)
    if kind == "bool" and not isinstance(value, bool):
        raise ValueError(f"{name} must be true or false, got {value!r}")


class Gate:
    """A method that scores looks along the reasoning and ends it at the first score that reaches the threshold.

    Raising the threshold can only move the end back: one pass that never halts holds the outcome of every threshold.
    """

    reason: ClassVar[Reason] = Reason.EXIT
    action: ClassVar[Action] = Action.STOP
    strict: ClassVar[bool] = False
    """Whether a score must lie above the threshold, not at it."""
    probes: ClassVar[bool] = False
    """Whether it makes the model answer along the way."""

    def __init__(self, parameters: Any) -> None:
        self.parameters = parameters
        self.tokens = 0
        self.probe_tokens = 0
        self._answer = AnswerTracker(parameters.format, parameters.opening, parameters.close)

    def fresh(self: G) -> G:
        """The same method for another request."""
        return type(self)(self.parameters)

    def token(self, text: str, entropy: float, logprob: float, margin: float) -> float | None:
        """Take a token; the score of a look that it ends, or None."""
        return None

    def boundary(self, step: Step) -> float | None:
        """At a multiple of `every` tokens: a score, or None."""
        return None

    def observe(self, step: Step) -> Decision:
        """Take the next step and decide."""
        p = self.parameters
        score: float | None = None
        boundary = False
        reasoning = not self._finished()
        for text, entropy, logprob, margin in tokens_of(step):
            self.tokens += 1
            boundary |= self.tokens % p.every == 0
            self._answer.feed(text)
            found = self.token(text, entropy, logprob, margin)
            score = _higher(score, found)
        if reasoning and not self._finished():
            if boundary:
                score = _higher(score, self.boundary(step))
        else:
            score = None  # the model has ended its thinking, or given its answer: nothing is left to cut short
        action, reason = self._verdict(score, boundary and reasoning and not self._finished())
        return Decision(
            action,
            reason,
            self.tokens,
            0.0 if score is None else score,
            step.entropy,
            0.0,
            0.0,
            landing=self.landing_for(action),
            probe_tokens=self.probe_tokens,
            looked=score is not None,
        )

    def _verdict(self, score: float | None, at_boundary: bool) -> tuple[Action, Reason]:
        p = self.parameters
        if score is not None and (score > p.threshold or (score == p.threshold and not self.strict)):
            return self.action, self.reason
        if p.reserve and at_boundary and self.tokens + max(p.every, p.chunk_size) > p.budget - p.reserve:
            return Action.STOP, Reason.RESERVE
        return Action.CONTINUE, Reason.UNDECIDED

    def _finished(self) -> bool:
        """Whether the reasoning is over: thinking that was closed, or an answer outside of any thinking."""
        thinks = self.parameters.close is not None
        return self._answer.given or (thinks and self._answer.closed)

    def landing_for(self, action: Action) -> Landing | None:
        """What to append if the decode ended here: nothing where an answer stands, or somebody else takes over."""
        return None if self._answer.given or action is not Action.STOP else self._landing_here()

    def _landing_here(self) -> Landing:
        p = self.parameters
        return landing(self._answer.last, p.close if self._answer.inside else None, p.format.cue)

    def ask(self, step: Step, *, closing_only: bool = False) -> Probe:
        """Make the model answer now; all that this takes is charged, or the closing where nothing else is looked at."""
        if step.probe is None:
            raise ValueError(
                f"{self.parameters.name} probes the model, and this recording has no probes: record with --probes"
            )
        probe = step.probe(self._landing_here())
        self.probe_tokens += probe.close_tokens if closing_only else probe.n_tokens
        return probe


class Rule(Gate, ABC):
    """A peer's rule."""

    @classmethod
    @abstractmethod
    def thresholds(cls) -> Sequence[float]:
        """The rule's own settings, as thresholds, the published ones included."""


def tokens_of(step: Step) -> Sequence[tuple[str, float, float, float]]:
    """The step token by token, as far as the engine tells."""
    if step.token_texts is None:
        rest = max(0, step.n_tokens - 1)
        return [("", step.entropy, 0.0, 0.0)] * rest + [(step.text, step.entropy, 0.0, 0.0)]
    n = len(step.token_texts)
    entropies = step.entropies if step.entropies is not None else [step.entropy] * n
    logprobs = step.logprobs if step.logprobs is not None else [0.0] * n
    margins = step.margins if step.margins is not None else [0.0] * n
    return list(zip(step.token_texts, map(float, entropies), map(float, logprobs), map(float, margins), strict=True))


def _higher(one: float | None, other: float | None) -> float | None:
    if one is None or other is None:
        return other if one is None else one
    return max(one, other)
