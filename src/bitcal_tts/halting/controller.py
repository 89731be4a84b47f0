"""The contract of a method: a step in, a decision out, the state of one request in between."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

from numpy.typing import ArrayLike

from bitcal_tts.halting.identity import Identity
from bitcal_tts.halting.policy import Action, Reason
from bitcal_tts.halting.reading import Stage
from bitcal_tts.halting.signals import COLUMNS, Signal
from bitcal_tts.halting.words import Word


@dataclass(frozen=True)
class Probe:
    """What a model answers when it is made to: decoded aside after the text so far and a landing (see `landing`).

    Attributes:
        text: What it wrote after the landing, up to the end of the answer.
        n_tokens: Tokens it took, those of the landing included.
        logprobs: Log-probability of every token it wrote; NaN where it is not known.
        close_entropy: Next-token entropy in nats where only the thinking is closed and nothing is cued; NaN where it is
            not known.
        close_tokens: Tokens of that closing.
    """

    text: str
    n_tokens: int
    logprobs: tuple[float, ...]
    close_entropy: float
    close_tokens: int

    @property
    def forced_tokens(self) -> int:
        """Tokens of the landing."""
        return self.n_tokens - len(self.logprobs)


class Question(Word):
    """What a method wants to know of the model before it decides."""

    ANSWER = "answer"
    """The answer it would give now, with its log-probabilities."""
    CLOSING = "closing"
    """The entropy after its thinking is closed: one forward pass, nothing is written."""
    SCORE = "score"
    """What looks are worth, which nobody need ask the model: `unweighed` are to be judged, with others if need be."""


@dataclass(slots=True)
class Step:
    """What a method is handed after up to `chunk_size` tokens. What is not known is None, never 0.

    Entropy and hidden state are those from which the step's last token was chosen. It is not frozen, nor is a decision:
    there is one of each a token, and freezing them took a tenth of a walk along a text.

    Attributes:
        text: The step's text.
        n_tokens: How many tokens it holds.
        entropy: Next-token entropy in nats.
        hidden: Last-layer hidden state, any 1-D float array, or None.
        hidden_similarity: Its cosine to the previous step's, where the engine computed that itself.
        token_texts: The text token by token.
        entropies: Entropy at every token.
        logprobs: Log-probability of every chosen token.
        margins: Log-probability of the first choice less that of the second, at every token.
        top_logprobs: Mean log-probability of the 20 likeliest tokens, at every token.
        stage: Where the text stands at the end of the step.
    """

    text: str
    n_tokens: int
    entropy: float | None = None
    hidden: ArrayLike | None = None
    hidden_similarity: float | None = None
    token_texts: Sequence[str] | None = None
    entropies: Sequence[float] | None = None
    logprobs: Sequence[float] | None = None
    margins: Sequence[float] | None = None
    top_logprobs: Sequence[float] | None = None
    stage: Stage = Stage.REASONING

    def __post_init__(self) -> None:
        n = self.n_tokens
        if n < 0:
            raise ValueError(f"n_tokens must be at least 0, got {n!r}")
        if self.entropy is not None and not -1e-6 <= self.entropy < math.inf:
            raise ValueError(f"entropy must be a finite number of at least 0, or None, got {self.entropy!r}")
        if self.hidden_similarity is not None and not math.isfinite(self.hidden_similarity):
            raise ValueError(f"hidden_similarity must be a finite number, got {self.hidden_similarity!r}")
        for column in (self.token_texts, self.entropies, self.logprobs, self.margins, self.top_logprobs):
            if column is not None and len(column) != n:
                raise ValueError(f"the step has {n} tokens, but {len(column)} {self._name_of(column)}")
        if self.entropies is not None and not all(-1e-6 <= one < math.inf for one in self.entropies):
            raise ValueError(f"entropies must be finite numbers of at least 0, got {list(self.entropies)!r}")

    def _name_of(self, column: Any) -> str:
        return next(field.name for field in fields(self) if getattr(self, field.name) is column)

    def tokens(self) -> Iterator[tuple[str, float | None, float | None, float | None]]:
        """Text, entropy, log-probability and margin token by token, as far as they are known.

        Where the text is not known token by token, the last token has all of it.
        """
        return map(self.token, range(self.n_tokens))

    def token(self, i: int) -> tuple[str, float | None, float | None, float | None]:
        """One of `tokens`."""
        texts, entropies, logprobs, margins = self.token_texts, self.entropies, self.logprobs, self.margins
        return (
            (self.text if i == self.n_tokens - 1 else "") if texts is None else texts[i],
            None if entropies is None else entropies[i],
            None if logprobs is None else logprobs[i],
            None if margins is None else margins[i],
        )


@dataclass(slots=True)
class Decision:
    """What to do after a step, why, and what that rests on; None is what the method does not look at.

    Attributes:
        action: What to do.
        reason: Why.
        tokens: Tokens so far.
        confidence: The paper's c_t.
        entropy: H_t in nats.
        trace_stability: The paper's literal-repetition signal.
        hidden_stability: The paper's hidden-state signal.
        score: What a gate compares with its threshold; None where it judged nothing at this step.
        answer: What the text stands for, where the method reads that off it.
        asks: What the method wants to know before it decides: the driver finds out and calls `tell`.
    """

    action: Action
    reason: Reason
    tokens: int
    confidence: float | None = None
    entropy: float | None = None
    trace_stability: float | None = None
    hidden_stability: float | None = None
    score: float | None = None
    answer: str | None = None
    asks: Question | None = None

    @property
    def halts(self) -> bool:
        """Whether decoding ends here: `escalate` ends it too, for somebody else to take over."""
        return self.action is not Action.CONTINUE

    @property
    def looked(self) -> bool:
        """Whether the method judged anything at this step."""
        return self.confidence is not None or self.score is not None


class Controller(ABC):
    """What decides on one request: the paper's rule, ours, and the peers'. Sessions drive it.

    `observe` takes a step; all that is not a step of text (budget, landing, probing) is the session's.
    """

    parameters: Any
    """A frozen `RequestParameters`."""
    lands: bool = False
    """Whether a stop inside the reasoning is followed by a landing."""
    promises: bool = False
    """Whether it promises something that is tied to what is served."""
    weighs_later: bool = False
    """Whether looks are judged by whoever drives it, who may have many: a decision asks for their scores."""
    reads_answers: bool = False
    """Whether its decisions say what the text stands for, so that a text can be replayed that no model is there for."""

    @property
    def reads_question(self) -> bool:
        """Whether it must know the question."""
        return False

    @property
    def needs(self) -> frozenset[Signal]:
        """Signals without which it cannot decide."""
        return frozenset()

    @property
    def halts(self) -> bool:
        """Whether it ever halts."""
        return True

    def looks_at(self, stage: Stage) -> bool:
        """Whether there is anything left to cut short at a stage of the text."""
        return stage in (Stage.REASONING, Stage.THINKING)

    @abstractmethod
    def fresh(self) -> Controller:
        """The same method for another request."""

    @abstractmethod
    def observe(self, step: Step) -> Decision:
        """Take the next step and decide, or ask."""

    def ahead(self) -> int:
        """How many of the next tokens it may be handed at once, to skim; 0 where it decides at each of them."""
        return 0

    def skim(self, step: Step) -> tuple[int, Decision]:
        """Take tokens one by one up to the first at which it judges something: how many, and what it decides there."""
        return step.n_tokens, self.observe(step)

    def tell(self, probe: Probe) -> Decision:
        """Take what was asked for and decide."""
        raise ValueError(f"{self.parameters.name} asked for no probe")

    @property
    def unweighed(self) -> Sequence[Any]:
        """The looks whose scores it asks for."""
        return ()

    def weighed(self, judged: Sequence[tuple[float, Any]]) -> Iterator[Decision]:
        """Take the scores that were asked for, each with the value that the text stands for, and decide at each place.

        What it decides after the first place at which it is heeded, nobody will want to know.
        """
        raise ValueError(f"{self.parameters.name} asked for no score")

    def begin(self, prefix: str, question: str | None) -> None:  # noqa: B027  (most methods have nothing to do)
        """Take the text that stands before the first token, on which nothing is decided, and the question."""

    def finish(self) -> None:  # noqa: B027
        """The request has ended."""

    @property
    def reported(self) -> float | None:
        """What whoever watches all requests was told of this one."""
        return None

    def report(self, score: float | None) -> None:  # noqa: B027
        """Tell whoever watches what another process's copy of this method has reported."""

    def check(self, identity: Identity) -> None:  # noqa: B027
        """Refuse to serve what a promise of this method is not tied to."""


def require(method: Controller, step: Step) -> None:
    """Refuse, by name, a step without what a method needs."""
    for signal in method.needs:
        column = COLUMNS.get(signal)
        if column is not None and getattr(step, column) is None:
            raise ValueError(
                f"{method.parameters.name} needs {signal.words} of every token, which this step does not carry"
            )
