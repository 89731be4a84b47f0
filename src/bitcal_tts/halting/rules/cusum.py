"""CUSUM (arXiv 2606.02020): exit when entropy has stayed below its usual level for long enough.

S_t = max(0, S_{t-1} + (mu0 - kappa - H_t)); exit when S_t > h. Deviation: exits are taken at boundaries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bitcal_tts.halting.controller import Step
from bitcal_tts.halting.gate import GateParameters, Rule
from bitcal_tts.halting.signals import Signal


@dataclass(frozen=True, kw_only=True)
class CusumParameters(GateParameters):
    """`mu0` is the usual entropy in nats, `kappa` the slack, `threshold` is h."""

    mu0: float = 0.1
    kappa: float = 0.0


class Cusum(Rule):
    """The score is the sum itself."""

    strict = True

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters)
        self._sum = 0.0

    @property
    def needs(self) -> frozenset[Signal]:
        """The entropy of every token."""
        return frozenset({Signal.ENTROPY})

    def token(self, text: str, entropy: float | None, logprob: float | None, margin: float | None) -> float | None:
        """Add a token's entropy."""
        assert entropy is not None
        p = self.parameters
        self._sum = max(0.0, self._sum + (p.mu0 - p.kappa - entropy))
        return None

    def boundary(self, step: Step) -> float | None:
        """The sum now."""
        return self._sum

    @classmethod
    def thresholds(cls) -> Sequence[float]:
        """Sums, in nats."""
        return [0.5 * h for h in range(1, 81)]
