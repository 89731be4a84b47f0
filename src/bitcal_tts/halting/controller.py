"""The controller: a step in, a decision out, the state of one request in between."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from numpy.typing import ArrayLike

from bitcal_tts.halting.landing import Landing
from bitcal_tts.halting.parameters import Parameters
from bitcal_tts.halting.policy import Action, Reason, decide
from bitcal_tts.halting.signals import HiddenStability, TraceStability


@dataclass(frozen=True)
class Probe:
    """What a model answers when it is made to: decoded aside after the text so far and a landing (see `landing`).

    Attributes:
        text: What it wrote after the landing, up to the end of the answer.
        n_tokens: Tokens it took, those of the landing included.
        logprobs: Log-probability of every token it wrote.
        close_entropy: Next-token entropy in nats where only the thinking is closed and nothing is cued.
        close_tokens: Tokens of that closing.
    """

    text: str
    n_tokens: int
    logprobs: tuple[float, ...]
    close_entropy: float
    close_tokens: int


@dataclass(frozen=True)
class Step:
    """What an engine hands over after up to `chunk_size` tokens.

    Entropy and hidden state are those from which the step's last token was chosen.

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
        probe: Makes the model answer at the end of this step, given the landing to append.
    """

    text: str
    n_tokens: int
    entropy: float
    hidden: ArrayLike | None = None
    hidden_similarity: float | None = None
    token_texts: Sequence[str] | None = None
    entropies: Sequence[float] | None = None
    logprobs: Sequence[float] | None = None
    margins: Sequence[float] | None = None
    top_logprobs: Sequence[float] | None = None
    probe: Callable[[Landing], Probe] | None = None

    def __post_init__(self) -> None:
        if self.n_tokens < 0:
            raise ValueError(f"n_tokens must be at least 0, got {self.n_tokens!r}")
        if not (math.isfinite(self.entropy) and self.entropy >= -1e-6):
            raise ValueError(f"entropy must be a finite number of at least 0, got {self.entropy!r}")
        if self.hidden_similarity is not None and not math.isfinite(self.hidden_similarity):
            raise ValueError(f"hidden_similarity must be a finite number, got {self.hidden_similarity!r}")


@dataclass(frozen=True)
class Decision:
    """What to do after a step, why, and the signals it rests on.

    `landing` is what the engine appends before it lets the model write its answer. `probe_tokens` is what probing has
    cost so far. `looked` is whether the method judged anything at this step.
    """

    action: Action
    reason: Reason
    tokens: int
    confidence: float
    entropy: float
    trace_stability: float
    hidden_stability: float
    landing: Landing | None = None
    probe_tokens: int = 0
    looked: bool = True

    @property
    def halts(self) -> bool:
        """Whether decoding ends here: `escalate` ends it too, for somebody else to take over."""
        return self.action is not Action.CONTINUE


class Method(Protocol):
    """What engines and replay need of a method: the paper's `Controller`, ours, and the peers' rules."""

    @property
    def parameters(self) -> Any:
        """A frozen dataclass with at least name, bits, budget, chunk_size, halts and reads_hidden."""
        ...

    def fresh(self) -> Method:
        """The same method for another request."""
        ...

    def observe(self, step: Step) -> Decision:
        """Take the next step and decide."""
        ...


class Controller:
    """Decides for one request, live and in replay alike; a step costs the same however long the trace."""

    __slots__ = ("_hidden", "_marker_at", "_tail", "_tokens", "_trace", "parameters")

    def __init__(self, parameters: Parameters) -> None:
        self.parameters = parameters
        self._trace = TraceStability()
        self._hidden = HiddenStability()
        self._tokens = 0
        self._tail = ""
        self._marker_at: int | None = None

    def fresh(self) -> Controller:
        """The same method for another request."""
        return Controller(self.parameters)

    @property
    def tokens(self) -> int:
        """Tokens seen so far."""
        return self._tokens

    @property
    def marker_at(self) -> int | None:
        """T*: tokens at the step where the marker first showed."""
        return self._marker_at

    def observe(self, step: Step) -> Decision:
        """Take the next step and decide."""
        p = self.parameters
        self._tokens += step.n_tokens
        self._look_for_marker(step.text)
        trace = self._trace.update(step.text)
        if step.hidden_similarity is not None:
            hidden = self._hidden.update_similarity(step.hidden_similarity)
        elif step.hidden is not None:
            hidden = self._hidden.update(step.hidden)
        else:
            hidden = self._hidden.value
        c = p.confidence(step.entropy, trace, hidden)
        action, reason = decide(p, tokens=self._tokens, marker_at=self._marker_at, entropy=step.entropy, confidence=c)
        return Decision(action, reason, self._tokens, c, step.entropy, trace, hidden)

    def _look_for_marker(self, text: str) -> None:
        """Set T* at the step that completes the marker, which may straddle steps."""
        if self._marker_at is not None:
            return
        marker = self.parameters.marker
        window = self._tail + text
        if marker in window:
            self._marker_at = self._tokens
            self._tail = ""
        else:
            keep = len(marker) - 1
            self._tail = window[-keep:] if keep else ""
