"""HALT-CoT: exit when the distribution over answers has little entropy left.

Known from its abstract only. Deviation: of that distribution the probe tells how likely the greedy answer is, and
nothing of the others, so that the entropy is that of "this answer or another": the smallest that is possible.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from bitcal_tts.halting.controller import Probe, Question
from bitcal_tts.halting.gate import GateParameters, Rule


@dataclass(frozen=True, kw_only=True)
class HaltCotParameters(GateParameters):
    """`threshold` is minus theta, the entropy in nats below which it exits."""

    threshold: float = -0.3


class HaltCot(Rule):
    """The score is minus the entropy."""

    question = Question.ANSWER
    strict = True

    def probed(self, probe: Probe) -> float | None:
        """How undecided the answer is; a probe that wrote nothing, or something unknown, says nothing."""
        total = sum(probe.logprobs)
        if not probe.logprobs or math.isnan(total):
            return None
        p = math.exp(min(0.0, total))
        # Where another answer is likelier than not, the smaller p the more there may be: no exit.
        entropy = math.log(2) if p <= 0.5 else -p * math.log(p) - (1 - p) * math.log1p(-p) if p < 1 else 0.0
        return -entropy

    @classmethod
    def thresholds(cls) -> Sequence[float]:
        """Entropies from certain to undecided."""
        return [-(10.0**e) for e in (-6, -5, -4, -3, -2, -1.5, -1, -0.75, -0.5, -0.3)]
