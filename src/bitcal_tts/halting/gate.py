"""What methods that judge at looks share: the stream of tokens, the threshold, the question to the model."""

from __future__ import annotations

import math
from abc import abstractmethod
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, TypeVar

from bitcal_tts.halting.checks import flag, whole
from bitcal_tts.halting.controller import Controller, Decision, Probe, Question, Step, require
from bitcal_tts.halting.features import Features
from bitcal_tts.halting.policy import Action, Reason
from bitcal_tts.halting.reading import Stage
from bitcal_tts.halting.request import RequestParameters
from bitcal_tts.halting.signals import Signal
from bitcal_tts.halting.statements import detector_for

G = TypeVar("G", bound="Gate")
_NOTHING: frozenset[Signal] = frozenset()
_PROBES = frozenset({Signal.PROBE})


@dataclass(frozen=True, kw_only=True)
class GateParameters(RequestParameters):
    """Parameters of a gate: a threshold, where it may look, and what its landing may take.

    Attributes:
        threshold: A look whose score reaches it ends the reasoning. Infinite: never.
        looks: Where it may stop: at `boundaries`; or where `settled` may: at `statements`, where an answer has just
            been stated, or at `sentences`, their ends once a value has come out, statements included.
        every: Tokens between boundaries.
        reserve: Tokens of the budget kept for closing the thinking and writing the answer, by default what the
            answer format asks for; 0 never lands at the cap.
    """

    LOOKS: ClassVar[tuple[str, ...]] = ("boundaries", "statements", "sentences")

    threshold: float = math.inf
    looks: str = "boundaries"
    every: int = 16
    reserve: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.reserve is None:
            object.__setattr__(self, "reserve", self.format.reserve)
        for field in fields(self):
            _check(field.name, getattr(self, field.name), str(field.type))
        whole("every", self.every, least=1)
        if self.looks not in self.LOOKS:
            raise ValueError(f"looks must be one of {', '.join(self.LOOKS)}, got {self.looks!r}")


def _check(name: str, value: Any, kind: str) -> None:
    """Refuse what a field cannot hold."""
    if kind == "float" and (isinstance(value, bool) or not isinstance(value, (int, float)) or math.isnan(value)):
        raise ValueError(f"{name} must be a number, got {value!r}")
    if kind.startswith("int"):
        whole(name, value, least=0)
    if kind == "bool":
        flag(name, value)


class Gate(Controller):
    """A method that scores looks along the reasoning and ends it at the first score that reaches the threshold.

    Raising the threshold can only move the end back: one pass that never halts holds the outcome of every threshold.
    """

    reason: ClassVar[Reason] = Reason.EXIT
    action: ClassVar[Action] = Action.STOP
    strict: ClassVar[bool] = False
    """Whether a score must lie above the threshold, not at it."""
    question: ClassVar[Question | None] = None
    """What it asks the model along the way."""
    at_boundaries: ClassVar[bool] = True
    """Whether it decides at boundaries, and so may decide at other looks; otherwise every token is judged."""
    lands = True
    _finds_looks: ClassVar[bool] = True
    """Whether this class finds the looks that are no boundaries; otherwise `token` does, by itself."""

    def __init__(self, parameters: Any) -> None:
        self.parameters = parameters
        self.tokens = 0
        self.stage = Stage.REASONING
        self._reads = self._finds_looks and parameters.looks != "boundaries"
        if self._reads and parameters.chunk_size != 1:
            raise ValueError(f"{parameters.looks} end anywhere: chunk_size must be 1, got {parameters.chunk_size}")
        self.known_looks: Sequence[int] | None = None
        """Tokens after which a text has its looks, where that was found out before; they are then not looked for."""
        self._found: Features | None = None
        self._asked: tuple[float | None, float | None] | None = None

    def fresh(self: G) -> G:
        """The same method for another request."""
        copy = type(self)(self.parameters)
        copy.known_looks = self.known_looks
        return copy

    @property
    def finds_looks(self) -> bool:
        """Whether it looks where a text says something, rather than every so many tokens."""
        return self._reads

    @property
    def needs(self) -> frozenset[Signal]:
        """The model's answers where it asks for them."""
        return _NOTHING if self.question is None else _PROBES

    @property
    def reads_question(self) -> bool:
        """Where it looks at sentences: a value comes out of what is asked."""
        return self._reads and self.parameters.looks == "sentences"

    def looks_at(self, stage: Stage) -> bool:
        """Where `settled` may stop, looks go on in the write-up."""
        return stage is not Stage.OVER if self._reads else super().looks_at(stage)

    def begin(self, prefix: str, question: str | None) -> None:
        """Be ready to find looks."""
        if self._reads and self.known_looks is None:
            self._found = self._read(question)

    def _read(self, question: str | None) -> Features:
        p = self.parameters
        known = question if self.reads_question else None
        detector = detector_for(p.format.stated)
        return Features(detector, bits=p.bits, budget=p.budget, question=known, values=p.format.values)

    def _finds(self, text: str) -> bool:
        """Whether a token ends a look that is no boundary."""
        if self.known_looks is not None:
            return self._next_known(self.tokens) == self.tokens
        if self._found is None:
            return False
        stated = self._found.update(text, None, None, None, writing=self.stage is Stage.WRITING) is not None
        return stated or (self.parameters.looks == "sentences" and self._found.at_sentence_end)

    def stands_for(self) -> str | None:
        """What the text stands for at the last look, where the gate reads that off it."""
        return None

    def token(self, text: str, entropy: float | None, logprob: float | None, margin: float | None) -> float | None:
        """Take a token; the score of a look that it ends, or None."""
        return None

    def boundary(self, step: Step) -> float | None:
        """At a look: a score, or None."""
        return None

    def wants_probe(self) -> bool:
        """At a look: whether to ask."""
        return self.question is not None

    def probed(self, probe: Probe) -> float | None:
        """Take what was asked for: a score, or None."""
        return None

    def observe(self, step: Step) -> Decision:
        """Take the next step and decide, or ask."""
        require(self, step)
        every = self.parameters.every
        self.stage = step.stage
        if not self.looks_at(step.stage):
            return self._pass(step)
        score: float | None = None
        before, found = self.tokens, False
        for text, entropy, logprob, margin in step.tokens():
            self.tokens += 1
            score = _higher(score, self.token(text, entropy, logprob, margin))
            found = self._finds(text) or found
        at_look = found if self._reads else self.tokens // every > before // every
        return self._look(score, step, step.entropy, at_look=at_look)

    def _look(self, score: float | None, step: Step, entropy: float | None, *, at_look: bool) -> Decision:
        """Decide on what tokens came to, and at a look on what stands there."""
        if at_look and self.wants_probe():
            self._asked = (score, entropy)
            asks = self.question
            return Decision(Action.CONTINUE, Reason.PROBING, self.tokens, entropy=entropy, score=score, asks=asks)
        if at_look:
            score = _higher(score, self.boundary(step))
        return self._decide(score, entropy, at_boundary=at_look)

    def ahead(self) -> int:
        """Up to the next boundary; where the looks are known, up to the next of them, as long as no reserve is due."""
        p = self.parameters
        boundary: int = p.every - self.tokens % p.every
        if self.known_looks is None:
            return boundary
        spare: int = p.budget - p.reserve - p.every - self.tokens
        following = self._next_known(self.tokens + 1)
        return max(boundary, spare if following is None else min(spare, following - self.tokens))

    def skim(self, step: Step) -> tuple[int, Decision]:
        """Take tokens, many at once where they say nothing, up to one that ends a look."""
        require(self, step)
        self.stage = step.stage
        if not self.looks_at(step.stage):
            return step.n_tokens, self._pass(step)
        return self._skim(step, 0)

    def _skim(self, step: Step, first: int) -> tuple[int, Decision]:
        """Take tokens from `first` on up to one that ends a look: where that is, and the decision there."""
        n, every = first, self.parameters.every
        by_count = self.at_boundaries and not self._reads
        while n < step.n_tokens:
            score, found = None, False
            left = step.n_tokens - n
            taken = self.skip(step, n, min(left, every - self.tokens % every) if by_count else left)
            self.tokens += taken or 1
            if taken == 0:
                taken, (text, entropy, logprob, margin) = 1, step.token(n)
                score, found = self.token(text, entropy, logprob, margin), self._finds(text)
            n += taken
            at_look = found if self._reads else by_count and self.tokens % every == 0
            if score is not None or at_look:
                return n, self._look(score, step, step.token(n - 1)[1], at_look=at_look)
        return n, self._decide(None, step.entropy, at_boundary=False)

    def skip(self, step: Step, first: int, most: int) -> int:
        """Take tokens from `first` on, all at once, that end no look for sure; how many, `most` of them at the most.

        The last of `most` may lie at a boundary. Where a token means nothing by itself, these are all up to a look.
        """
        if type(self).token is not Gate.token:
            return 0
        if self._found is not None:
            texts = step.token_texts
            return 0 if texts is None else self._found.skip(texts, None, None, None, first, most)
        return most if self.known_looks is None else self._before_next_known(most)

    def _before_next_known(self, most: int) -> int:
        """How many of the next tokens come before the next of the known looks."""
        following = self._next_known(self.tokens + 1)
        return most if following is None else min(most, following - 1 - self.tokens)

    def _next_known(self, tokens: int) -> int | None:
        """The first of the known looks that does not lie before so many tokens."""
        assert self.known_looks is not None
        at = bisect_left(self.known_looks, tokens)
        return self.known_looks[at] if at < len(self.known_looks) else None

    def _pass(self, step: Step) -> Decision:
        """Nothing is left to cut short, and never will be: a text does not go back to its reasoning."""
        self.tokens += step.n_tokens
        return self._decide(None, step.entropy, at_boundary=False)

    def tell(self, probe: Probe) -> Decision:
        """Take what was asked for and decide."""
        if self._asked is None:
            return super().tell(probe)
        (score, entropy), self._asked = self._asked, None
        return self._decide(_higher(score, self.probed(probe)), entropy, at_boundary=True)

    def _decide(self, score: float | None, entropy: float | None, *, at_boundary: bool) -> Decision:
        action, reason = self._verdict(score, at_boundary)
        return Decision(action, reason, self.tokens, entropy=entropy, score=score, answer=self.stands_for())

    def _verdict(self, score: float | None, at_boundary: bool) -> tuple[Action, Reason]:
        threshold = self.parameters.threshold
        if score is not None and (score > threshold or (score == threshold and not self.strict)):
            return self.action, self.reason
        return Action.CONTINUE, Reason.UNDECIDED


class Rule(Gate):
    """A peer's rule."""

    @classmethod
    @abstractmethod
    def thresholds(cls) -> Sequence[float]:
        """The rule's own settings, as thresholds, the published ones included."""


def _higher(one: float | None, other: float | None) -> float | None:
    if one is None or other is None:
        return other if one is None else one
    return max(one, other)
