"""What a session is fed, and what it says: tokens in; go on, end, force, ask or weigh out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bitcal_tts.halting.controller import Decision, Question
from bitcal_tts.halting.landing import Landing
from bitcal_tts.halting.profile import Profile
from bitcal_tts.halting.reading import Stage
from bitcal_tts.halting.signals import from_top
from bitcal_tts.halting.values import Look


@dataclass(frozen=True)
class Token:
    """A piece of a stream, with what is known of it; None is not known.

    Attributes:
        text: Its text, or bytes that may cut a character.
        entropy: Of the distribution it was chosen from, in nats.
        logprob: Its log-probability.
        margin: Log-probability of the likeliest token less that of the second.
        top_logprob: Mean log-probability of the 20 likeliest tokens.
        missing: Mass of the distribution that is not known, where only its likeliest tokens are.
        count: How many tokens it is: several where an engine sends them together, 0 where the rest of it is to come.
    """

    text: str | bytes
    entropy: float | None = None
    logprob: float | None = None
    margin: float | None = None
    top_logprob: float | None = None
    missing: float | None = None
    count: int = 1

    @classmethod
    def from_top(
        cls, text: str | bytes, logprob: float, likeliest: Sequence[float], *, vocabulary: int, count: int = 1
    ) -> Token:
        """A token of which the log-probabilities of the likeliest choices are known, and its own."""
        known = from_top(likeliest, vocabulary)
        return cls(text, known.entropy, logprob, known.margin, known.top_logprob, known.missing, count)


@dataclass(frozen=True)
class Tokens:
    """Tokens in the order they were chosen, as columns of equal length; None where an engine has no such column.

    `hidden_similarities` has a cosine for every multiple of `Signals.hidden_every` tokens that these complete, None for
    the first, which has none before it. `missing` is the mass of each distribution that is not known, where only its
    likeliest tokens are; NaN where a recording has not kept it. `stages` is where the text stands after each of them,
    where that is known; whoever says so must say it of all tokens of a response.
    """

    texts: Sequence[str]
    entropies: Sequence[float] | None = None
    logprobs: Sequence[float] | None = None
    margins: Sequence[float] | None = None
    top_logprobs: Sequence[float] | None = None
    hidden_similarities: Sequence[float | None] = ()
    missing: Sequence[float] | None = None
    stages: Sequence[Stage] | None = None


@dataclass(frozen=True)
class Go:
    """Decode on."""


@dataclass(frozen=True)
class End:
    """The request is over. `at`: tokens that stand. `finish`: `eos`, `budget`, or `halted` by `decision`."""

    at: int
    finish: str
    decision: Decision | None = None


@dataclass(frozen=True)
class Force:
    """Land: cut back to `at` tokens, append the landing and let the model answer greedily, in `room` tokens in all."""

    at: int
    landing: Landing
    room: int
    decision: Decision


@dataclass(frozen=True)
class Ask:
    """Find out, aside, what the model says after `at` tokens and the landing; then call `tell`."""

    at: int
    landing: Landing
    question: Question


@dataclass(frozen=True)
class Weigh:
    """Have looks judged, with many others if you like; then call `weighed` with what comes of them, in order."""

    looks: Sequence[Look]
    profile: Profile


@dataclass(frozen=True)
class WouldBe:
    """A stop that nobody makes: after `at` tokens, with a landing in `room` tokens where no answer stands yet."""

    at: int
    landing: Landing | None
    room: int


Directive = Go | End | Force | Ask | Weigh
GO = Go()


@dataclass(frozen=True)
class SessionOutcome:
    """How a request went.

    Attributes:
        text: All that stands, landing included.
        tokens: Of it.
        decoded: Tokens that were decoded for it, those past its end included.
        landing_tokens: Of the tokens, how many a landing appended or had the model write.
        probe_tokens: What probing cost; not among the tokens.
        finish: `eos`, `budget` or `halted`.
        decision: What halted it, or None.
        answer: What it answers, or None.
        missing: The largest mass of a distribution that was not known; None where nothing is known of them.
    """

    text: str
    tokens: int
    decoded: int
    landing_tokens: int
    probe_tokens: int
    finish: str
    decision: Decision | None
    answer: str | None
    missing: float | None = None

    @property
    def reason(self) -> str:
        """Why it ended."""
        return self.finish if self.decision is None else str(self.decision.reason)
