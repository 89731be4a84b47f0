"""Exit at a random boundary: what a rule must beat to have looked at anything.

The time of the exit is exponential with the threshold as its mean, so that sweeping it matches any rule's tokens.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from typing import Any

from bitcal_tts.halting.controller import Step
from bitcal_tts.halting.gate import Rule


class RandomMatched(Rule):
    """Drawn from the first words of the response: the same for the same text, unrelated to what follows."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters)
        self._draw: float | None = None
        self._words = ""

    def token(self, text: str, entropy: float | None, logprob: float | None, margin: float | None) -> float | None:
        """Gather the first words."""
        if self._draw is None:
            self._words += text
        return None

    def boundary(self, step: Step) -> float | None:
        """Tokens so far over this response's draw."""
        if self._draw is None:
            uniform = (zlib.crc32(self._words.encode()) + 0.5) / 2**32
            self._draw = -math.log(uniform)
        return self.tokens / self._draw

    @classmethod
    def thresholds(cls) -> Sequence[float]:
        """Mean exit times."""
        return [16.0 * 1.2**i for i in range(24)]
