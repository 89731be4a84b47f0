"""Traces to calibrate on, with what is known of them, walked once."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bitcal_tts.halting.features import NAMES
from bitcal_tts.halting.handing import name_of
from bitcal_tts.halting.identity import Identity
from bitcal_tts.halting.methods import build_method
from bitcal_tts.halting.profile import Profile, ProfileError
from bitcal_tts.halting.settled import Settled, SettledParameters
from bitcal_tts.halting.signals import Signal
from bitcal_tts.halting.values import Look
from bitcal_tts.tasks.base import Task
from bitcal_tts.traces.looks import LookTable
from bitcal_tts.traces.parallel import Tick, in_shares
from bitcal_tts.traces.trace import Trace
from bitcal_tts.traces.walk import walk

BLANK = Profile(
    kind="logistic",
    features=NAMES,
    model={"mean": [0.0] * len(NAMES), "scale": [1.0] * len(NAMES), "weights": [0.0] * len(NAMES), "intercept": 0.0},
    thresholds={},
)
"""Scores nothing: for walking along traces before anything is fitted."""


@dataclass
class Recording:
    """Traces at one precision.

    Attributes:
        description: What the manifest says of them, flat.
        traces: Recorded with probes.
        task: Scores them.
        identity: What a promise fitted on them is tied to.
    """

    description: Mapping[str, Any]
    traces: Sequence[Trace]
    task: Task
    identity: Identity
    _walked: dict[tuple[int, str, int | None], LookTable] = field(default_factory=dict, init=False, repr=False)

    @property
    def bits(self) -> float:
        """Served weight precision."""
        return float(self.description["bits"])

    @property
    def name(self) -> str:
        """The model, and its precision."""
        return name_of(self.description)

    @property
    def landed(self) -> Any:
        """What the model does alone: it decodes to the end, and its answer is written where the budget runs out."""
        opening, close = self.description.get("thinking") or (None, None)
        return build_method(
            "landed", bits=self.bits, budget=self.description["budget"], answers=self.task.format.name,
            opening=opening, close=close,
        )  # fmt: skip

    def settings(self, looks: str, budget: int, every: int | None = None) -> SettledParameters:
        """How `settled` walks along these traces: it may stop where they were probed, and never does.

        Args:
            looks: Where it looks.
            budget: Hard cap on new tokens.
            every: Tokens between boundaries; by default as many as the traces were probed at, else a multiple of that.
        """
        probed = boundaries_of(self.description)
        if every is not None and every % probed:
            raise ProfileError(f"the profile looks every {every} tokens, these traces were probed every {probed}")
        opening, close = self.description.get("thinking") or (None, None)
        return SettledParameters(
            name="settled",
            bits=self.description["bits"],
            budget=budget,
            answers=self.task.format.name,
            opening=opening,
            close=close,
            every=probed if every is None else every,
            looks=looks,
            threshold=math.inf,
            profile=BLANK,
        )

    def certified(self, looks: str, budget: int, every: int | None = None) -> dict[str, Any]:
        """The settings that a certificate from these traces rests on."""
        return self.settings(looks, budget, every).certified

    def table(
        self, budget: int, looks: str, tick: Callable[[], None] | None = None, every: int | None = None
    ) -> LookTable:
        """The looks of all traces."""
        key = (budget, looks, every)
        if key not in self._walked:
            method = Walker(self.settings(looks, budget, every))

            def walked(traces: Sequence[Trace], tick: Tick) -> LookTable:
                return walk(traces, method, self.task, look_of=lambda gate: gate.seen, tick=tick)

            self._walked[key] = LookTable.joined(in_shares(self.traces, walked, tick=tick))
        return self._walked[key]


class Walker(Settled):
    """Walks a trace as the method does and notes what it would have judged."""

    promises = False
    seen: Look

    @property
    def needs(self) -> frozenset[Signal]:
        """Whatever there is."""
        return frozenset()

    def _judge(self, look: Look) -> float:
        self.seen = look
        return 0.0


def boundaries_of(description: Mapping[str, Any]) -> int:
    """Tokens between boundaries: as many as a recording was probed at, 16 where it was not."""
    return int(description.get("probes") or 16)


def mark_of(trace: Trace) -> str:
    """A short name for a trace's question."""
    return mark_of_question(trace.item.question)


def mark_of_question(question: str) -> str:
    """A short name for a question."""
    return hashlib.sha256(question.encode()).hexdigest()[:10]
