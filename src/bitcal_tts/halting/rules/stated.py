"""The simplest rules there are: stop at the first stated answer, or when the same one has been stated k times in a row.

Nothing is fitted and no model is asked; whoever fits something must beat this.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
        self.known_statements: Mapping[int, Statement] | None = None
        """Statements of a text, by how many tokens each comes after, where they were found before: they are not looked
        for, and are all its looks."""

    def fresh(self) -> Stated:
        """The same rule for another request."""
        return super().fresh().told_of(self.known_statements)

    def told_of(self, statements: Mapping[int, Statement] | None) -> Stated:
        """This one, which is not to look for statements itself."""
        self.known_statements = statements
        self.known_looks = None if statements is None else tuple(statements)
        return self

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
        return self.known_statements.get(self.tokens)

    def skip(self, step: Step, first: int, most: int) -> int:
        """All up to the next statement, where that is known."""
        return 0 if self.known_looks is None else self._before_next_known(most)

    def stands_for(self) -> str | None:
        """What was stated last."""
        return self._value

    @classmethod
    def thresholds(cls) -> Sequence[float]:
        """From the first statement on."""
        return [float(k) for k in range(1, 9)]
