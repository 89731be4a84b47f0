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

    def observe(self, step: Step) -> Decision:
        """Take the step's confidences and decide on the lowest that a group comes to."""
        require(self, step)
        assert step.top_logprobs is not None
        groups = [group for group in map(self._group_after, step.top_logprobs) if group is not None]
        self._lowest = min(groups, default=None)
        return super().observe(step)

    def token(self, text: str, entropy: float | None, logprob: float | None, margin: float | None) -> float | None:
        """The lowest group confidence that the step ends, once a window is full."""
        return None if self._lowest is None else -self._lowest

    def skim(self, step: Step) -> tuple[int, Decision]:
        """Take tokens up to one whose group is the least confident so far: no other can be the first to be too low."""
        require(self, step)
        assert step.top_logprobs is not None
        self.stage = step.stage
        if not self.looks_at(step.stage):
            return step.n_tokens, self._pass(step)
        for n, group in enumerate(map(self._group_after, step.top_logprobs), 1):
            if group is not None and (self._lowest is None or group < self._lowest):
                self._lowest = group
                self.tokens += n
                return n, self._decide(-group, step.token(n - 1)[1], at_boundary=False)
        self.tokens += step.n_tokens
        return step.n_tokens, self._decide(None, step.entropy, at_boundary=False)

    def _group_after(self, top: float) -> float | None:
        """The confidence of the group that a token ends, once a window is full."""
        group, window = self._group, self.parameters.window
        if len(group) == window:
            self._sum -= group[0]
        group.append(-top)
        self._sum -= top
        return self._sum / window if len(group) == window else None

    @classmethod
    def thresholds(cls) -> Sequence[float]:
        """Group confidences, in nats; the published choice is a percentile of calibration traces."""
        return [-0.5 * s for s in range(4, 60)]
