"""DeepConf, online (facebookresearch/deepconf): abandon a trace whose group confidence falls below a percentile.

It aborts traces that look bad, so it maps to `escalate`: no answer is written. Deviation: the window is 64 tokens,
where the reference has 2,048, which is longer than these texts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bitcal_tts.halting.checks import whole
from bitcal_tts.halting.controller import Decision, Step, require
from bitcal_tts.halting.gate import GateParameters, Rule
from bitcal_tts.halting.policy import Action
from bitcal_tts.halting.signals import Signal


@dataclass(frozen=True, kw_only=True)
class DeepConfParameters(GateParameters):
    """`threshold` is minus s, the group confidence below which a trace is given up."""

    window: int = 64

    def __post_init__(self) -> None:
        super().__post_init__()
        whole("window", self.window, least=1)


class DeepConf(Rule):
    """The score is minus the mean token confidence of the last window: C_i = -(mean log P of the 20 likeliest)."""

    action = Action.ESCALATE
    at_boundaries = False
    strict = True

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters)
        self._group: deque[float] = deque(maxlen=parameters.window)
        self._sum = 0.0
        self._lowest: float | None = None

    @property
    def needs(self) -> frozenset[Signal]:
        """The likeliest tokens of every place."""
        return frozenset({Signal.TOP_LOGPROB})

    def ahead(self) -> int:
        """Every token is judged."""
        return 0

    def observe(self, step: Step) -> Decision:
        """Take the step's confidences, then decide as any gate."""
        require(self, step)
        assert step.top_logprobs is not None
        self._lowest = None
        for top in step.top_logprobs:
            if len(self._group) == self.parameters.window:
                self._sum -= self._group[0]
            self._group.append(-float(top))
            self._sum += -float(top)
            if len(self._group) == self.parameters.window:
                group = self._sum / self.parameters.window
                self._lowest = group if self._lowest is None else min(group, self._lowest)
        return super().observe(step)

    def token(self, text: str, entropy: float | None, logprob: float | None, margin: float | None) -> float | None:
        """The lowest group confidence that the step ends, once a window is full."""
        return None if self._lowest is None else -self._lowest

    @classmethod
    def thresholds(cls) -> Sequence[float]:
        """Group confidences, in nats; the published choice is a percentile of calibration traces."""
        return [-0.5 * s for s in range(4, 60)]
