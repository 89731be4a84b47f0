"""EAT (xidulu/EAT): exit when the entropy after the end of thinking has stopped moving.

Deviations: boundaries every `every` tokens, where the reference takes blank lines; alpha is 0.5 by default, because the
reference's 0.1 warms up over 40 boundaries, more than these texts have. How long it warms up may be said apart.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bitcal_tts.halting.controller import Probe, Question
from bitcal_tts.halting.gate import GateParameters, Rule


@dataclass(frozen=True, kw_only=True)
class EatParameters(GateParameters):
    """`threshold` is minus delta, the variance below which it exits; `alpha` the weight of the newest value.

    `warm_up` is how many entropies must have come before it may exit: the variance begins at 0. 0 is the reference's
    4 / alpha.
    """

    threshold: float = -1e-3
    alpha: float = 0.5
    warm_up: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.alpha <= 1:
            raise ValueError(f"alpha must be above 0 and at most 1, got {self.alpha!r}")


class Eat(Rule):
    """The score is minus the moving variance of that entropy, in bits, once it has warmed up."""

    question = Question.CLOSING
    strict = True

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters)
        self._count = 0
        self._mean = 0.0
        self._variance = 0.0

    def probed(self, probe: Probe) -> float | None:
        """The entropy after the closing, where it is known."""
        return None if math.isnan(probe.close_entropy) else self.update(probe.close_entropy / math.log(2))

    def update(self, bits: float) -> float | None:
        """Take the next entropy; the score, or None while warming up."""
        a = self.parameters.alpha
        if self._count == 0:
            self._mean = bits
        else:
            self._mean = a * bits + (1 - a) * self._mean
            self._variance = a * (bits - self._mean) ** 2 + (1 - a) * self._variance
        self._count += 1
        return None if self._count <= (self.parameters.warm_up or 4 / a) else -self._variance

    @classmethod
    def thresholds(cls) -> Sequence[float]:
        """Minus delta, the published 1e-3 included."""
        return [-(10.0**e) for e in range(-12, 2)] + [0.0]
