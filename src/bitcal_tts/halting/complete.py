"""Method `complete`: stop as soon as the answer after the marker is complete. Nothing is fitted."""

from __future__ import annotations

from dataclasses import dataclass

from bitcal_tts.halting.answers import FORMATS, AnswerFormat
from bitcal_tts.halting.controller import Decision, Step
from bitcal_tts.halting.landing import ThinkingTracker
from bitcal_tts.halting.parameters import number, whole
from bitcal_tts.halting.policy import Action, Reason

_KEPT = 4000  # characters in which an answer must be found


@dataclass(frozen=True, kw_only=True)
class GateParameters:
    """What methods past the paper's share.

    Attributes:
        name: Of the method.
        bits: Served weight precision.
        budget: Hard cap on new tokens.
        chunk_size: Tokens an engine hands over at a time; 1 where it hands over every token.
        answers: How the task's answers are written.
        opening: The marker that begins the thinking; None where the prompt has opened it.
        close: The marker that ends the thinking; None where the model has none.
    """

    name: str
    bits: float
    budget: int
    chunk_size: int = 1
    answers: str = "gsm8k"
    opening: str | None = None
    close: str | None = None

    def __post_init__(self) -> None:
        for name in ("budget", "chunk_size"):
            whole(name, getattr(self, name), least=1)
        number("bits", self.bits, least=1.0)
        if self.answers not in FORMATS:
            raise ValueError(f"answers must be one of {', '.join(FORMATS)}, got {self.answers!r}")

    @property
    def halts(self) -> bool:
        """Whether the method ever halts."""
        return True

    @property
    def reads_hidden(self) -> bool:
        """These methods look at text and token signals only."""
        return False

    @property
    def format(self) -> AnswerFormat:
        """The answer format."""
        return FORMATS[self.answers]


class AnswerTracker:
    """Whether a growing text holds a complete answer outside its thinking; `last` is its last character."""

    __slots__ = ("_buffer", "_format", "_thinking", "given", "last")

    def __init__(self, format: AnswerFormat, opening: str | None, close: str | None) -> None:
        self._format = format
        self._thinking = ThinkingTracker(opening, close)
        self._buffer = ""
        self.given = False
        self.last = ""

    @property
    def inside(self) -> bool:
        """Whether the text is inside its thinking."""
        return self._thinking.inside

    @property
    def closed(self) -> bool:
        """Whether the thinking is over, or there never was any."""
        return self._thinking.over

    def feed(self, piece: str) -> None:
        """Take the next piece of text."""
        self.last = piece[-1:] or self.last
        outside = self._thinking.feed(piece)
        if self.given or not outside:
            return
        self._buffer += outside
        self.given = self._format.given(self._buffer)
        if len(self._buffer) > _KEPT:
            self._buffer = self._buffer[-_KEPT // 2 :]


class Complete:
    """Stops at the first answer that is complete."""

    def __init__(self, parameters: GateParameters) -> None:
        self.parameters = parameters
        self._tokens = 0
        self._answer = AnswerTracker(parameters.format, parameters.opening, parameters.close)

    def fresh(self) -> Complete:
        """The same method for another request."""
        return Complete(self.parameters)

    def observe(self, step: Step) -> Decision:
        """Take the next step and decide."""
        self._tokens += step.n_tokens
        self._answer.feed(step.text)
        done = self._answer.given
        action, reason = (Action.STOP, Reason.COMPLETE) if done else (Action.CONTINUE, Reason.UNDECIDED)
        return Decision(action, reason, self._tokens, float(done), step.entropy, 0.0, 0.0, looked=done)
