"""What every engine takes and gives: requests in, completions with signals out, halting per request."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from bitcal_tts.halting.answers import AnswerFormat
from bitcal_tts.halting.controller import Controller, Decision, Probe
from bitcal_tts.halting.exchange import Ask, Force, SessionOutcome, WouldBe
from bitcal_tts.halting.identity import Identity
from bitcal_tts.halting.landing import AnswerWriting, Landing
from bitcal_tts.halting.session import Session
from bitcal_tts.halting.signals import Signals


class EngineError(Exception):
    """The engine cannot do what was asked; the message says what and what would be right."""


class EngineWarning(UserWarning):
    """An engine does what was asked for, but otherwise than one would expect."""


@dataclass(frozen=True)
class Decoding:
    """How tokens are chosen. Nothing else is taken from a checkpoint: no penalties.

    Attributes:
        temperature: 0 decodes greedily, and then the rest has no part in it.
        seed: With each request's own seed.
        top_p: The likeliest tokens that have this mass together; 1 keeps all.
        top_k: So many of the likeliest tokens; 0 keeps all.
        min_p: Tokens at least this likely relative to the likeliest; 0 keeps all.
    """

    temperature: float = 0.0
    seed: int = 0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0

    def __post_init__(self) -> None:
        if not 0.0 <= self.temperature < float("inf"):
            raise ValueError(f"temperature must be a finite number of at least 0, got {self.temperature!r}")
        if isinstance(self.seed, bool) or not isinstance(self.seed, int) or self.seed < 0:
            raise ValueError(f"seed must be a whole number of at least 0, got {self.seed!r}")
        if not 0.0 < self.top_p <= 1.0:
            raise ValueError(f"top_p must be above 0 and at most 1, got {self.top_p!r}")
        if isinstance(self.top_k, bool) or not isinstance(self.top_k, int) or self.top_k < 0:
            raise ValueError(f"top_k must be a whole number of at least 0, got {self.top_k!r}")
        if not 0.0 <= self.min_p < 1.0:
            raise ValueError(f"min_p must be at least 0 and below 1, got {self.min_p!r}")

    def describe(self) -> dict[str, Any]:
        """As it acts: greedy decoding knows no other setting."""
        return asdict(self if self.temperature > 0 else Decoding(0.0, self.seed))


@dataclass(frozen=True)
class Request:
    """One prompt.

    Attributes:
        id: The item's name.
        prompt: What the user says; the engine applies the model's chat template.
        method: Halts this request, and owns its budget and answer format (`to_the_end(budget)` never halts).
        seed: Sampling is seeded by (decoding seed, this), so it does not depend on the batch.
        prefix: What the response already begins with, as text or token ids; it is neither decoded nor returned.
        question: What is asked, without the instructions of the prompt; methods that read it must be told.
    """

    id: str
    prompt: str
    method: Controller
    seed: int = 0
    prefix: str | Sequence[int] = ()
    question: str | None = None

    @property
    def budget(self) -> int:
        """Hard cap on new tokens."""
        return int(self.method.parameters.budget)


@dataclass
class Completion:
    """One decoded request: its tokens and their signals, and how it ended.

    `finish` is `eos` (the model ended), `budget` (the cap), or `halted` (the method; see `decision`).
    Of its tokens, the last `landing_tokens` were appended or written by a soft landing: nobody chose them, so they have
    no signals. `decoded` counts what was decoded for it, past its end too. The end-of-sequence token is neither counted
    nor kept. `hidden_similarities[i]` is the cosine between the hidden states at chunk boundaries i and i + 1; `hidden`
    holds the vectors where they were asked for. `seconds` is how long it took from its prompt on, without waiting for
    its turn; 0 where that is not known.
    """

    id: str
    prompt_tokens: int
    token_ids: list[int] = field(default_factory=list)
    token_texts: list[str] = field(default_factory=list)
    entropies: list[float] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    margins: list[float] = field(default_factory=list)
    top_logprobs: list[float] = field(default_factory=list)
    hidden_similarities: list[float] = field(default_factory=list)
    hidden: list[NDArray[np.float32]] = field(default_factory=list)
    finish: str = ""
    decision: Decision | None = None
    answer: str | None = None
    seconds: float = 0.0
    probe_tokens: int = 0
    landing_tokens: int = 0
    decoded: int = 0

    @property
    def text(self) -> str:
        """The generated text."""
        return "".join(self.token_texts)

    def cut(self, at: int, chunk_size: int = 1) -> None:
        """Cut off what came past so many tokens; hidden states were kept every `chunk_size` of them."""
        for column in (
            self.token_ids, self.token_texts, self.entropies, self.logprobs, self.margins, self.top_logprobs,
        ):  # fmt: skip
            del column[at:]
        del self.hidden[at // chunk_size :]
        del self.hidden_similarities[max(0, at // chunk_size - 1) :]

    def close(self, outcome: SessionOutcome) -> Completion:
        """Take how its session went."""
        self.finish, self.decision, self.answer = outcome.finish, outcome.decision, outcome.answer
        self.probe_tokens, self.landing_tokens = outcome.probe_tokens, outcome.landing_tokens
        self.decoded = outcome.decoded
        return self


class Place(NamedTuple):
    """Where to make a model answer.

    Attributes:
        tokens: How many tokens of the response come before.
        landing: What to append there.
        format: How the answer is written.
        entropy: Next-token entropy there, undisturbed, as far as it is known.
        limit: Most tokens that it may take, the appended ones included; by default what the answer format reserves.
    """

    tokens: int
    landing: Landing
    format: AnswerFormat
    entropy: float = 0.0
    limit: int | None = None

    @classmethod
    def of(cls, directive: Ask | Force | WouldBe, format: AnswerFormat) -> Place:
        """Where a session asks, or is to be landed, or would be."""
        assert directive.landing is not None
        limit = None if isinstance(directive, Ask) else directive.room
        return cls(directive.at, directive.landing, format, limit=limit)

    def begin(self, closing: Sequence[int], cue: Sequence[int]) -> tuple[Written, AnswerWriting]:
        """What is appended, as tokens, and what the model may write behind it: nothing where there is no room."""
        limit = (self.format.reserve if self.limit is None else self.limit) - len(closing) - len(cue)
        written = Written([*closing, *cue], len(closing), self.entropy)
        return written, AnswerWriting(self.format, self.landing.cue, limit)


class Fork(NamedTuple):
    """A response and the places along it; its tokens as texts too, for engines that know no others."""

    prompt: str
    tokens: Sequence[int]
    places: Sequence[Place]
    texts: Sequence[str] = ()


@dataclass
class Written:
    """What was appended at a place, and what the model wrote after it; nothing where there was no room."""

    forced: list[int]
    closed: int
    entropy: float
    ids: list[int] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)

    def probe(self) -> Probe:
        """As a probe."""
        return Probe(
            text="".join(self.texts),
            n_tokens=len(self.forced) + len(self.ids),
            logprobs=tuple(self.logprobs),
            close_entropy=self.entropy,
            close_tokens=self.closed,
        )


@dataclass(frozen=True)
class Score:
    """Signals of a given text, token by token, as `Completion` has them of a decoded one.

    `agrees` says of each token whether it is the one this model would have chosen greedily.
    """

    entropies: NDArray[np.float32]
    logprobs: NDArray[np.float32]
    margins: NDArray[np.float32]
    top_logprobs: NDArray[np.float32]
    agrees: NDArray[np.bool_]
    hidden_similarities: NDArray[np.float32]


def conversation(system: str | None, prompt: str) -> list[dict[str, str]]:
    """What a chat template is given."""
    before = [] if system is None else [{"role": "system", "content": system}]
    return [*before, {"role": "user", "content": prompt}]


def open_sessions(
    requests: Sequence[Request],
    *,
    signals: Signals,
    identity: Identity,
    count_tokens: Callable[[str], int],
    prefix: Callable[[Request], str],
    weigh_later: bool = False,
) -> list[Session]:
    """A session for every request, in their order.

    They are made in a random order: drift is watched in the order in which they are made, which must have no part in
    the texts, and callers may have sorted theirs.

    Args:
        requests: What is decoded.
        signals: What will be fed.
        identity: What is being served.
        count_tokens: Tokens of a text that would be forced.
        prefix: What a response already begins with, as text.
        weigh_later: Whether looks of many requests are judged together, by whoever drives them.
    """
    sessions: dict[int, Session] = {}
    first: dict[int, Session] = {}
    """By method: most requests have the same."""
    for i in np.random.default_rng(0).permutation(len(requests)).tolist():
        request = requests[i]
        known = first.get(id(request.method))
        if known is None:
            sessions[i] = first[id(request.method)] = Session(
                request.method,
                signals=signals,
                identity=identity,
                prefix=prefix(request),
                question=request.question,
                count_tokens=count_tokens,
                weigh_later=weigh_later,
            )
        else:
            sessions[i] = known.another(prefix=prefix(request), question=request.question)
    return [sessions[i] for i in range(len(requests))]


class Engine(Protocol):
    """An adapter around one inference engine."""

    max_positions: int | None
    """Of a prompt and what is written after it; None where there is no limit."""

    @property
    def bits(self) -> float:
        """Weight precision."""
        ...

    def describe(self) -> dict[str, Any]:
        """What is being run, for the manifest: model hash, bits, dtypes, template; all that determines the tokens."""
        ...

    def close(self) -> None:
        """Give back what it holds."""
        ...

    def signals(self, chunk_size: int) -> Signals:
        """What is told with every token; hidden states, where there are any, every `chunk_size` of them."""
        ...

    def identity(self, decoding: Decoding) -> Identity:
        """What a promise is tied to, as far as the engine can read it; the task is not the engine's to know."""
        ...

    def too_long(self, prompts: Sequence[str], max_tokens: int) -> dict[int, int]:
        """Prompts that do not fit with their budget: which, and how many positions they would take."""
        ...

    def decode(
        self,
        requests: Sequence[Request],
        decoding: Decoding,
        *,
        batch_size: int,
        chunk_size: int = 16,
        keep_hidden: bool = False,
    ) -> Iterator[Completion]:
        """Decode all requests, in any order of completion."""
        ...

    def probe(self, forks: Sequence[Fork], *, batch_size: int) -> Iterator[list[Written]]:
        """Make the model answer, greedily, at the places of each fork."""
        ...

    def score(
        self, texts: Sequence[tuple[str, Sequence[int]]], *, chunk_size: int = 16, batch_size: int = 32
    ) -> Iterator[Score]:
        """Signals of given responses, (prompt, token ids) each, in order: teacher forcing."""
        ...
