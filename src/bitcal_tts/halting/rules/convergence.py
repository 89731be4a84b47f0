"""Answer convergence: exit when the forced answer has been the same at k places in a row.

Deviation: places are boundaries of `every` tokens, where the paper takes sentences.
"""

from __future__ import annotations

from dataclasses import dataclass

from bitcal_tts.halting.rules.dynasor import Dynasor, DynasorParameters


@dataclass(frozen=True, kw_only=True)
class ConvergenceParameters(DynasorParameters):
    """As Dynasor's, without the test for words of doubt."""

    threshold: float = 4.0
    certain: bool = False


class Convergence(Dynasor):
    """Dynasor's count without its test for words of doubt."""
