"""The paper's rule: three signals, a confidence, the case table."""

from __future__ import annotations

from functools import cached_property

from bitcal_tts.halting.controller import Controller, Decision, Step
from bitcal_tts.halting.parameters import Parameters
from bitcal_tts.halting.policy import Action, Reason, decide
from bitcal_tts.halting.signals import HiddenStability, Signal, TraceStability


class PaperRule(Controller):
    """`fixed`, `adaptive` and `bitcal_tts`, by their parameters; a step costs the same however long the trace."""

    def __init__(self, parameters: Parameters) -> None:
        self.parameters = parameters
        self._trace = TraceStability()
        self._hidden = HiddenStability()
        self._tokens = 0
        self._tail = ""
        self._marker_at: int | None = None

    def fresh(self) -> PaperRule:
        """The same method for another request."""
        return type(self)(self.parameters)

    @property
    def halts(self) -> bool:
        """Whether it ever halts: `fixed` does not."""
        halts: bool = self.parameters.halts
        return halts

    @cached_property
    def needs(self) -> frozenset[Signal]:
        """Entropy always, the hidden state where it has a weight; nothing where it never halts."""
        if not self.parameters.halts:
            return frozenset()
        return frozenset({Signal.ENTROPY, *([Signal.HIDDEN] if self.parameters.reads_hidden else [])})

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
        if step.entropy is None and not p.halts:
            self._tokens += step.n_tokens
            return Decision(Action.CONTINUE, Reason.FIXED, self._tokens)
        if step.entropy is None:
            raise ValueError(f"{p.name} needs the entropy of every step, which this one does not carry")
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
