"""truncate-k: end the reasoning at k tokens and have the answer written; swept over k, the fixed-budget frontier."""

from __future__ import annotations

from collections.abc import Sequence

from bitcal_tts.halting.controller import Step
from bitcal_tts.halting.gate import Rule


class Truncate(Rule):
    """The score is the number of tokens; exits are taken at boundaries."""

    def boundary(self, step: Step) -> float | None:
        """Tokens so far."""
        return float(self.tokens)

    @classmethod
    def thresholds(cls) -> Sequence[float]:
        """Multiples of 16."""
        return [float(k) for k in range(16, 512, 16)]
