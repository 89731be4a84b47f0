"""What the autopilot is to promise, for which requests, and what it knows."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from bitcal_tts.calibration.anytime import Alarm, Mean
from bitcal_tts.calibration.recording import BLANK
from bitcal_tts.calibration.risk import check_levels
from bitcal_tts.halting.identity import Identity
from bitcal_tts.halting.profile import Profile
from bitcal_tts.halting.settled import SettledParameters
from bitcal_tts.serving.rounds import Round

_SCORERS = ("round", "standing")
LEAST = 30
"""Below this a scorer learns nothing."""


@dataclass(frozen=True)
class Terms:
    """What is to be promised, and what may be spent on it.

    Attributes:
        risk: Most of P(another answer than the whole request's).
        confidence: How surely that holds.
        shadow: Share of the requests that run to their end for ever.
        learn: Share that is tried while the promise is earned.
        first: Requests that the first scorer is fitted on; each after one that earned no promise has three times more.
    """

    risk: float
    confidence: float = 0.9
    shadow: float = 0.05
    learn: float = 0.5
    first: int = 150

    def __post_init__(self) -> None:
        check_levels(self.risk, self.confidence)
        for name, value in (("shadow", self.shadow), ("learn", self.learn)):
            if not 0 < value < 1 and not (name == "learn" and value == 1):
                raise ValueError(f"{name} must be above 0 and below 1, got {value!r}")
        if self.first < LEAST:
            raise ValueError(f"a scorer takes at least {LEAST} requests, got {self.first}")


@dataclass(frozen=True)
class Setting:
    """What requests have in common that one promise covers.

    Attributes:
        identity: Model, precision, sampling, budget: what a profile is tied to.
        bits: Of the weights.
        budget: Most tokens.
        answers: How answers are written.
        markers: Of the thinking, opening and closing.
    """

    identity: Identity
    bits: float
    budget: int
    answers: str
    markers: tuple[str | None, str | None]

    def name(self, terms: Terms) -> str:
        """A short name; another one for other terms."""
        told = [self.identity.to_dict(), self.bits, self.budget, self.answers, self.markers, asdict(terms)]
        return hashlib.sha256(json.dumps(told, sort_keys=True, default=str).encode()).hexdigest()[:12]

    def parameters(self) -> SettledParameters:
        """How requests are looked at."""
        opening, close = self.markers
        return SettledParameters(
            name="settled", bits=self.bits, budget=self.budget, answers=self.answers, opening=opening, close=close,
            profile=BLANK,
        )  # fmt: skip


@dataclass
class Counts:
    """What was spent, in requests and tokens."""

    plain: int = 0
    watched: int = 0
    stopped: int = 0
    unfinished: int = 0
    tokens: int = 0
    stopped_tokens: int = 0
    trial_tokens: int = 0

    @property
    def requests(self) -> int:
        """That have ended."""
        return self.plain + self.watched + self.stopped

    def net(self, saved: Mean) -> float:
        """Share of all tokens that was saved, side requests and the share that is not stopped counted in.

        Args:
            saved: By a stop, of requests of which both are known.
        """
        spent = self.tokens + self.trial_tokens
        if not self.stopped or saved.n == 0 or saved.mean >= 1:
            return -self.trial_tokens / max(1, spent)
        without = self.tokens - self.stopped_tokens + self.stopped_tokens / (1 - saved.mean)
        return 1 - spent / without


@dataclass
class State:
    """All that a pilot knows; numbers only.

    Attributes:
        epoch: How often it has begun to learn.
        round: The scorer and its evidence.
        rounds: Scorers that were fitted in this epoch.
        learned: Requests that scorers were or will be fitted on.
        due: How many there must be for the next one.
        numbers: Requests that were sampled.
        since: When the phase began.
        why: What began it.
        standing: The scorer whose promise is kept while `round` is fitted or tried; None where that is `round` itself.
        served: Which threshold of it is.
        alarm: Bets on the promise being broken.
        saved: Share of the tokens that stopping saves, of requests of which both are known.
        history: Points for the page.
    """

    epoch: int = 0
    round: Round | None = None
    rounds: int = 0
    learned: int = 0
    due: int = 0
    numbers: int = 0
    since: float = field(default_factory=time.time)
    why: str = "it has just begun"
    standing: Round | None = None
    served: int | None = None
    alarm: Alarm | None = None
    saved: Mean = field(default_factory=Mean)
    counts: Counts = field(default_factory=Counts)
    history: list[dict[str, Any]] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)

    @property
    def serving(self) -> Round | None:
        """The scorer whose promise is kept, where there is one."""
        return None if self.served is None else self.standing or self.round

    def to_dict(self) -> dict[str, Any]:
        """As JSON types."""
        told = {**vars(self), "saved": dict(vars(self.saved)), "counts": dict(vars(self.counts))}
        for name in _SCORERS:
            told[name] = None if getattr(self, name) is None else getattr(self, name).to_dict()
        told["alarm"] = None if self.alarm is None else dict(vars(self.alarm))
        return told

    @classmethod
    def from_dict(cls, told: dict[str, Any], scorers: Mapping[str, Profile | None]) -> State:
        """What `to_dict` wrote, with the scorers of `round` and of `standing`."""
        told = {**told, "saved": Mean(**told["saved"]), "counts": Counts(**told["counts"])}
        for name in _SCORERS:
            of, scorer = told.get(name), scorers[name]
            told[name] = None if of is None or scorer is None else Round.from_dict(of, scorer)
        told["alarm"] = None if told["alarm"] is None else Alarm(**told["alarm"])
        return cls(**told)
