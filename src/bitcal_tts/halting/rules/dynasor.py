"""Dynasor-CoT (hao-ai-lab/Dynasor, core/cot.py): exit when the last W probed answers are equal and certain.

Deviations: the task's cue in place of "Oh, I suddenly got the answer ..."; equality by the task's answer format; no
lag of one chunk; `every` is 16 by default where the reference probes every 32 or 64 tokens of much longer texts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bitcal_tts.halting.controller import Probe, Question
from bitcal_tts.halting.gate import GateParameters, Rule

UNCERTAIN = ("wait", "hold", "but", "okay", "no", "hmm")


@dataclass(frozen=True, kw_only=True)
class DynasorParameters(GateParameters):
    """`threshold` is the window W: 8 mild, 5 low, 3 mid, 2 high."""

    threshold: float = 3.0
    certain: bool = True


class Dynasor(Rule):
    """The score is how many probed answers in a row agree with the last one."""

    question = Question.ANSWER

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters)
        self._last: str | None = None
        self._run = 0

    def probed(self, probe: Probe) -> float | None:
        """Count agreement."""
        p = self.parameters
        value = p.format.value(p.format.cue + probe.text)
        certain = not (p.certain and any(word in probe.text.lower() for word in UNCERTAIN))
        if value is None or not certain:
            self._last, self._run = None, 0
        elif self._last is not None and p.format.equal(value, self._last):
            self._run += 1
        else:
            self._last, self._run = value, 1
        return float(self._run)

    @classmethod
    def thresholds(cls) -> Sequence[float]:
        """Windows, the published ones included."""
        return [float(w) for w in range(1, 17)]
