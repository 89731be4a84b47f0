"""Upper bounds that know the answer: the earliest boundary whose forced answer is right, or never changes again.

They cannot be served: replay tells them what no engine knows. The probes they look at are not charged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from bitcal_tts.halting.controller import Step
from bitcal_tts.halting.gate import GateParameters, Rule


@dataclass(frozen=True, kw_only=True)
class OracleParameters(GateParameters):
    """`threshold` is 1: what it is told is all or nothing."""

    threshold: float = 1.0


class Oracle(Rule):
    """Exits as soon as it is told that the answer here is good."""

    wants = "right"
    """What it asks to be told: `right`, or `final` where the answer never changes from here on."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters)
        self._good: Callable[[int], bool] | None = None

    def fresh(self) -> Oracle:
        """The same oracle, told the same."""
        copy = super().fresh()
        copy._good = self._good
        return copy

    def inform(self, good: Callable[[int], bool]) -> None:
        """Take the judge of this item: is the forced answer after so many tokens good?"""
        self._good = good

    def begin(self, prefix: str, question: str | None) -> None:
        """Refuse where nobody has told it anything."""
        if self._good is None:
            raise ValueError(f"{self.parameters.name} needs to be told the answers: it exists in replay only")
        super().begin(prefix, question)

    def boundary(self, step: Step) -> float | None:
        """1 where the forced answer is good."""
        assert self._good is not None
        return float(self._good(self.tokens))

    @classmethod
    def thresholds(cls) -> Sequence[float]:
        """One."""
        return [1.0]


class FinalOracle(Oracle):
    """Exits where the forced answer equals the full run's and stays so."""

    wants = "final"
