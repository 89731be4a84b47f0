"""DEER (iie-ycx/DEER): probe an answer, exit when its mean token probability is above lambda.

Deviations: the probe is greedy, where the reference samples; its tokens are charged; it is made every `every` tokens
with the task's cue, where the reference waits for the word "Wait" (`at="wait"` does that too, at line starts).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bitcal_tts.halting.answers import MARKER
from bitcal_tts.halting.controller import Probe, Question
from bitcal_tts.halting.gate import GateParameters, Rule

_TRANSITIONS = ("wait", "alternatively")


@dataclass(frozen=True, kw_only=True)
class DeerParameters(GateParameters):
    """`mean` is arithmetic (R1 family) or geometric (Qwen3); no more than `max_probes` are made."""

    threshold: float = 0.95
    mean: str = "arithmetic"
    max_probes: int = 10
    at: str = "boundary"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.mean not in ("arithmetic", "geometric"):
            raise ValueError(f"mean must be arithmetic or geometric, got {self.mean!r}")
        if self.at not in ("boundary", "wait"):
            raise ValueError(f"at must be boundary or wait, got {self.at!r}")


class Deer(Rule):
    """Confidence is the mean probability of the probe's tokens, the one that belongs to the cue left out."""

    question = Question.ANSWER
    strict = True

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters)
        self._probes = 0
        self._waited = self._noticed = False
        self._line = ""

    def token(self, text: str, entropy: float | None, logprob: float | None, margin: float | None) -> float | None:
        """Watch for transitions at line starts."""
        _, newline, after = (self._line + text).rpartition("\n")
        if newline:
            self._noticed = False
        self._line = after[:32]
        if not self._noticed and self._line.strip().lower().startswith(_TRANSITIONS):
            self._waited = self._noticed = True  # once a line
        return None

    def wants_probe(self) -> bool:
        """If probes are left, and at `wait` only past a transition."""
        p = self.parameters
        if self._probes >= p.max_probes or (p.at == "wait" and not self._waited):
            return False
        self._probes += 1
        self._waited = False
        return True

    def probed(self, probe: Probe) -> float | None:
        """The mean probability of what was answered, where it is known of every token."""
        # After `####` a space comes first; other cues end where the answer begins.
        p = self.parameters
        score = confidence(probe.logprobs, p.mean, skip=p.format.cue == MARKER)
        return None if math.isnan(score) else score

    @classmethod
    def thresholds(cls) -> Sequence[float]:
        """The published 0.95 and others."""
        return [0.0, 0.5, 0.7, 0.8, 0.9, 0.95, 0.97, 0.98, 0.99, 0.995, 0.998, 0.999, 0.9995, 0.9999, 0.99999, 0.999999]


def confidence(logprobs: Sequence[float], mean: str, *, skip: bool = True) -> float:
    """Mean probability, without the first token where that belongs to the cue; 0 where nothing was written."""
    kept = list(logprobs[1:] if skip else logprobs) or list(logprobs)
    if not kept:
        return 0.0
    if mean == "geometric":
        return math.exp(sum(kept) / len(kept))
    return sum(map(math.exp, kept)) / len(kept)
