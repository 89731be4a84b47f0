"""The simplest rules there are: stop at the first stated answer, or when the same one has been stated k times in a row.

Nothing is fitted and no model is asked; whoever fits something must beat this.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bitcal_tts.halting.controller import Step
from bitcal_tts.halting.gate import GateParameters, Rule
from bitcal_tts.halting.statements import Statement, detector_for


@dataclass(frozen=True, kw_only=True)
class StatedParameters(GateParameters):
    """`threshold` is how many statements in a row must agree.

    Attributes:
        after: Tokens before which nothing is looked at.
        weak: Whether conclusions from arithmetic count as statements too.
    """

    threshold: float = 1.0
    after: int = 0
    weak: bool = False


class Stated(Rule):
    """The score is how many statements in a row have said the same."""

    reads_answers = True
    at_boundaries = False

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters)
        self._detector = detector_for(parameters.format.stated).fresh()
        self._value: str | None = None
        self._run = 0
        self.known_statements: Sequence[tuple[int, Statement]] | None = None
        """Statements of a text, after how many tokens each, where they were found before: they are not looked for."""

    def fresh(self) -> Stated:
        """The same rule for another request."""
        copy = super().fresh()
        copy.known_statements = self.known_statements
        return copy

    def token(self, text: str, entropy: float | None, logprob: float | None, margin: float | None) -> float | None:
        """Count agreement."""
        p, statement = self.parameters, self._statement(text)
        if statement is None or not (statement.strong or p.weak):
            return None
        agrees = self._value is not None and p.format.equal(statement.value, self._value)
        self._run = self._run + 1 if agrees else 1
        self._value = statement.value
        return float(self._run) if self.tokens > p.after else None

    def _statement(self, text: str) -> Statement | None:
        if self.known_statements is None:
            return self._detector.feed(text)
        following = self._following(self.tokens)
        return following[1] if following is not None and following[0] == self.tokens else None

    def _following(self, tokens: int) -> tuple[int, Statement] | None:
        """The first known statement that does not come before so many tokens."""
        assert self.known_statements is not None
        at = bisect_left(self.known_statements, tokens, key=lambda known: known[0])
        return self.known_statements[at] if at < len(self.known_statements) else None

    def skip(self, step: Step, first: int, most: int) -> int:
        """All up to the next statement, where that is known."""
        if self.known_statements is None:
            return 0
        following = self._following(self.tokens + 1)
        return most if following is None else min(most, following[0] - 1 - self.tokens)

    def stands_for(self) -> str | None:
        """What was stated last."""
        return self._value

    @classmethod
    def thresholds(cls) -> Sequence[float]:
        """From the first statement on."""
        return [float(k) for k in range(1, 9)]
