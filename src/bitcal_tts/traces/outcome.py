"""What a method did on a trace at a budget, built in one place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Outcome:
    """What a method did on a trace at a budget.

    `tokens` excludes probes, which are counted apart. `full_correct` is whether the undisturbed trace, at
    the same budget, is right.
    """

    item: str
    method: str
    bits: float
    budget: int
    tokens: int
    probe_tokens: int
    finish: str
    reason: str
    answer: str | None
    correct: bool
    full_correct: bool
    full_tokens: int

    @property
    def cost(self) -> int:
        """Tokens, those of probes included."""
        return self.tokens + self.probe_tokens

    @property
    def premature(self) -> bool:
        """The paper's premature stop: halted before the budget, and wrong."""
        return self.finish == "halted" and not self.correct

    @property
    def lost(self) -> bool:
        """Halted and wrong where the full trace is right."""
        return self.premature and self.full_correct

    @property
    def rescued(self) -> bool:
        """Halted and right where the full trace is wrong."""
        return self.finish == "halted" and self.correct and not self.full_correct


def outcome_of(
    item: str,
    p: Any,
    *,
    tokens: int,
    probe_tokens: int,
    halted: bool,
    reason: str | None,
    answer: str | None,
    correct: bool,
    full_tokens: int,
    full_correct: bool,
) -> Outcome:
    """The outcome of a method with parameters `p`; one that did not halt ended as the full trace did."""
    finish = "halted" if halted else ("budget" if full_tokens >= p.budget else "eos")
    return Outcome(
        item=item,
        method=p.name,
        bits=p.bits,
        budget=p.budget,
        tokens=tokens,
        probe_tokens=probe_tokens,
        finish=finish,
        reason=reason or finish,
        answer=answer,
        correct=correct,
        full_correct=full_correct,
        full_tokens=full_tokens,
    )
