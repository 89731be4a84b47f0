"""What every engine takes and gives: requests in, completions with signals out, halting per request."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from bitcal_tts.halting.controller import Decision, Method


class EngineError(Exception):
    """The engine cannot do what was asked; the message says what and what would be right."""


@dataclass(frozen=True)
class Decoding:
    """How tokens are chosen. Nothing else is taken from a checkpoint: no penalties, no top-k."""

    temperature: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0.0 <= self.temperature < float("inf"):
            raise ValueError(f"temperature must be a finite number of at least 0, got {self.temperature!r}")


@dataclass(frozen=True)
class Request:
    """One prompt.

    Attributes:
        id: The item's name.
        prompt: What the user says; the engine applies the model's chat template.
        max_tokens: The budget B.
        seed: Sampling is seeded by (decoding seed, this), so it does not depend on the batch.
        controller: Halts this request; None records it to the end.
        prefix: Token ids that the response already begins with; they are neither decoded nor returned.
    """

    id: str
    prompt: str
    max_tokens: int
    seed: int = 0
    controller: Method | None = None
    prefix: Sequence[int] = ()


@dataclass
class Completion:
    """One decoded request: its tokens and their signals, and how it ended.

    `finish` is `eos` (the model ended), `budget` (the cap), or `halted` (the controller; see `decision`).
    Of its tokens, `landing_tokens` were appended or written by a soft landing after the halt. The end-of-sequence
    token is neither counted nor kept. `hidden_similarities[i]` is the cosine between the hidden states at chunk
    boundaries i and i + 1; `hidden` holds the vectors where they were asked for.
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
    probe_tokens: int = 0
    landing_tokens: int = 0

    @property
    def text(self) -> str:
        """The generated text."""
        return "".join(self.token_texts)


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


class Engine(Protocol):
    """An adapter around one inference engine."""

    bits: float
    max_positions: int | None
    """Of a prompt and what is written after it; None where there is no limit."""

    def describe(self) -> dict[str, Any]:
        """What is being run, for the manifest: model hash, bits, dtypes, versions."""
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
