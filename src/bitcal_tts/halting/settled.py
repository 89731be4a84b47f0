"""Method `settled`: stop where the text stands for a value and a fitted score says that it will stand by it."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import Any, ClassVar, NamedTuple, TypeVar

from bitcal_tts.halting.controller import Decision, Question, Step
from bitcal_tts.halting.drift import MIN_REFERENCE, NO_LOOK, DriftMonitor, Turn
from bitcal_tts.halting.features import Features
from bitcal_tts.halting.gate import Gate, GateParameters
from bitcal_tts.halting.identity import UNKNOWN, Identity, IdentityError
from bitcal_tts.halting.loops import LoopGuard
from bitcal_tts.halting.policy import Action, Reason
from bitcal_tts.halting.profile import Profile, ProfileError
from bitcal_tts.halting.reading import Stage
from bitcal_tts.halting.signals import Signal
from bitcal_tts.halting.values import Look

S = TypeVar("S", bound="Settled")

OR_FORCE = ", or force it (--force, force=True)"
"""What a refusal ends with, for those who can."""
CERTIFIED = ("looks", "every", "fallback_after", "guard", "reserve", "chunk_size", "answers")
"""Settings that a certificate rests on, besides the threshold and the think markers."""


@dataclass(frozen=True, kw_only=True)
class SettledParameters(GateParameters):
    """A gate with a profile.

    Attributes:
        profile: Scores the looks and brings the threshold for the served bits.
        looks: `sentences`, the ends of all sentences once a value has come out; `statements`, where an answer has just
            been stated; either with boundaries as a fallback where none has come by `fallback_after` tokens;
            `boundaries`; or `both` statements and boundaries.
        fallback_after: Tokens without a look from which on boundaries are looked at.
        guard: Whether exact repetition ends the reasoning, at the next boundary.
        force: Use the profile on what it was not fitted on, where no promise holds.
        declare: What is served, as far as it cannot be read: `{"task": "gsm8k"}`.
    """

    LOOKS: ClassVar[tuple[str, ...]] = ("sentences", "statements", "boundaries", "both")

    profile: Profile
    looks: str = "sentences"
    fallback_after: int = 128
    guard: bool = True
    force: bool = False
    declare: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.profile, Profile):
            raise ValueError(f"profile must be a Profile or its JSON object, got {type(self.profile).__name__}")
        if not isinstance(self.declare, Mapping):
            raise ValueError(f"declare must be a mapping of keys to values, got {self.declare!r}")

    @property
    def certified(self) -> dict[str, Any]:
        """The settings that a certificate rests on."""
        return {name: getattr(self, name) for name in CERTIFIED}

    def check(self, served: Identity) -> None:
        """Refuse to serve what the profile was not fitted on; where that is forced, warn."""
        try:
            served = served.declare(self.declare)
            if served["bits"] is not UNKNOWN and served["bits"] != self.bits:
                raise ProfileError(f"the method was set up for {self.bits:g} bits, this is {served['bits']:g}")
            self.profile.check(served)
        except (ProfileError, IdentityError) as error:
            if not self.force:
                raise ProfileError(f"{error}{OR_FORCE}", getattr(error, "differs", ())) from None
            warn_forced(str(error))


class ProfileWarning(UserWarning):
    """A profile is used on what it was not fitted on."""


def refuse(refusal: str, advice: str, *, force: bool) -> None:
    """Refuse what a promise does not hold for, with what would be right; where that is forced, warn."""
    if not force:
        raise ProfileError(f"{refusal}: {advice}")
    warn_forced(refusal)


def warn_forced(refusal: str) -> None:
    """Say that a refusal was overruled."""
    warnings.warn(f"{refusal}. It was forced: no promise holds", ProfileWarning, stacklevel=2)


class Settled(Gate):
    """Looks at sentence ends or statements; at boundaries only as long as there was neither, or where told to.

    Args:
        parameters: With the profile.
        monitor: Told the score at the first look of every request; warns on drift.
    """

    reason = Reason.SETTLED
    promises = True
    _finds_looks = False
    reads_answers = True

    def __init__(self, parameters: SettledParameters, monitor: DriftMonitor | None = None) -> None:
        super().__init__(parameters)
        self.monitor = monitor
        self._question: str | None = None
        self.looked_at = 0
        """Tokens at the last look that was no boundary."""
        self._stands_for: Any = None
        self._unweighed: list[_Undecided] = []
        self._seen: list[Look] = []
        """Looks of the decision that comes next, where they are weighed later."""
        self._guard = LoopGuard() if parameters.guard else None
        self._turn: Turn | None = None

    @cached_property
    def _features(self) -> Features:
        """What it looks at; made when there is a text, by whoever reads that."""
        return self._read(self._question)

    def fresh(self: S) -> S:
        """The same method for another request, watched by the same monitor."""
        return type(self)(self.parameters, self.monitor)

    @property
    def needs(self) -> frozenset[Signal]:
        """What the profile's features are made of."""
        needs: frozenset[Signal] = self.parameters.profile.needs
        return needs

    @property
    def reads_question(self) -> bool:
        """Where the profile does."""
        reads: bool = self.parameters.profile.reads_question
        return reads

    def looks_at(self, stage: Stage) -> bool:
        """Looks go on in the write-up: some models compute their answer only there."""
        return stage is not Stage.OVER

    def check(self, identity: Identity) -> None:
        """Refuse to serve what the profile was not fitted on."""
        self.parameters.check(identity)

    def begin(self, prefix: str, question: str | None) -> None:
        """Take a turn among the requests that are watched; responses were fitted on from their beginning."""
        self._question = question
        if prefix and self.promises:
            refusal = "the profile's promise does not hold for a response that begins with a prefix"
            refuse(refusal, "decode it from its beginning, or force it", force=self.parameters.force)
        self._turn = None if self.monitor is None else self.monitor.turn()

    def finish(self) -> None:
        """A request that ended without a look is watched too."""
        if self._turn is not None:
            self._turn.take(NO_LOOK)

    @property
    def reported(self) -> float | None:
        """The score at the first look."""
        return None if self._turn is None else self._turn.score

    def report(self, score: float | None) -> None:
        """Take the turn that this request has among those that are watched."""
        if self._turn is not None:
            self._turn.take(score)

    def token(self, text: str, entropy: float | None, logprob: float | None, margin: float | None) -> float | None:
        """Score a statement that this token completes."""
        if self._guard is not None:
            self._guard.feed(text)
        features, looks = self._features, self.parameters.looks
        stated = features.update(text, entropy, logprob, margin, writing=self.stage is Stage.WRITING) is not None
        if looks == "boundaries" or not (stated or (looks == "sentences" and features.at_sentence_end)):
            return None
        self.looked_at = self.tokens
        return self._judge(features.look(at_statement=stated))

    def skip(self, step: Step, first: int, most: int) -> int:
        """Tokens within a sentence that states nothing."""
        texts = step.token_texts
        if texts is None:
            return 0
        n = self._features.skip(texts, step.entropies, step.logprobs, step.margins, first, most)
        if self._guard is not None:
            self._guard.feed(*texts[first : first + n])
        return n

    def boundary(self, step: Step) -> float | None:
        """Score a boundary, where boundaries are looked at."""
        p = self.parameters
        if self.looked_at == self.tokens:
            return None  # judged already
        if p.looks in ("sentences", "statements") and (self.looked_at or self.tokens < p.fallback_after):
            return None
        return self._judge(self._features.look(at_statement=False))

    def stands_for(self) -> str | None:
        """The value of the best candidate at the last look."""
        return None if self._stands_for is None else self._features.text_of(self._stands_for)

    def _verdict(self, score: float | None, at_boundary: bool) -> tuple[Action, Reason]:
        """As any gate; and what repeats itself exactly has said all that it will say."""
        if score is not None and self._turn is not None:
            self._turn.take(score)
        action, reason = super()._verdict(score, at_boundary)
        if action is Action.CONTINUE and at_boundary and self._guard is not None and self._guard.looping:
            return Action.STOP, Reason.LOOP
        return action, reason

    def skim(self, step: Step) -> tuple[int, Decision]:
        """Where looks are weighed later, all of the step is read: few looks end a text."""
        n, decision = super().skim(step)
        while decision.asks is Question.SCORE and n < step.n_tokens:
            n, decision = self._skim(step, n)
        return n, decision

    def _judge(self, look: Look) -> float:
        if self.weighs_later:
            self._seen.append(look)
            return math.nan
        score: float
        score, self._stands_for = self.parameters.profile.judge(look)
        return score

    @property
    def unweighed(self) -> list[Look]:
        """The looks whose scores it asks for."""
        return [look for undecided in self._unweighed for look in undecided.looks]

    def _decide(self, score: float | None, entropy: float | None, *, at_boundary: bool) -> Decision:
        if not self._seen and not self._unweighed:
            return super()._decide(score, entropy, at_boundary=at_boundary)
        self._unweighed.append(_Undecided(self.tokens, self._seen, entropy, at_boundary))
        self._seen = []
        return Decision(Action.CONTINUE, Reason.UNDECIDED, self.tokens, entropy=entropy, asks=Question.SCORE)

    def weighed(self, judged: Sequence[tuple[float, Any]]) -> Iterator[Decision]:
        """Take the scores that were asked for, and decide at each of the places, in order."""
        undecided, self._unweighed = self._unweighed, []
        rest = iter(judged)
        for tokens, looks, entropy, at_boundary in undecided:
            scores = list(islice(rest, len(looks)))
            score = max((score for score, _ in scores), default=None)
            if scores:
                self._stands_for = scores[-1][1]
            verdict = self._verdict(score, at_boundary)
            yield Decision(*verdict, tokens, entropy=entropy, score=score, answer=self.stands_for())


class _Undecided(NamedTuple):
    """A place at which nothing can be decided before its looks are weighed, or those before it."""

    tokens: int
    looks: list[Look]
    entropy: float | None
    at_boundary: bool


def build(**kwargs: Any) -> Settled:
    """The method from keyword arguments, with the settings that the profile was certified with.

    Another setting is refused, or warned about where it is forced. Where the profile could certify nothing the method
    decodes to the end: neither the reserve nor a loop cuts it short.
    """
    profile, force = _profile(kwargs["profile"]), kwargs.get("force", False)
    threshold = _threshold(profile, kwargs["bits"], force=force)
    strange = sorted(profile.settings.keys() - set(CERTIFIED))
    if strange:
        raise ProfileError(
            f"the profile is damaged: it was certified with {', '.join(strange)}, which is not known here"
        )
    thinking = profile.identity["thinking"]
    opening, close = (None, None) if thinking in (UNKNOWN, None) else thinking
    certified = {**profile.settings, "threshold": threshold, "opening": opening, "close": close}
    if math.isinf(threshold):
        certified |= {"guard": False, "reserve": 0}
    parameters = SettledParameters(**{**certified, **kwargs, "profile": profile})
    changed = [
        f"{name} {certified[name]!r}, not {kwargs[name]!r}"
        for name in (*CERTIFIED, "threshold", "opening", "close")
        if name in kwargs and name in certified and kwargs[name] != certified[name]
    ]
    if changed:
        refusal = f"the profile was certified with its own {', '.join(changed)}"
        refuse(refusal, "its promise does not hold with another; force it to do it all the same", force=force)
    reference = profile.reference.get(parameters.bits, ())
    return Settled(parameters, DriftMonitor(reference) if len(reference) >= MIN_REFERENCE else None)


def _profile(given: Any) -> Profile:
    return Profile.from_dict(given) if isinstance(given, dict) else given


def _threshold(profile: Any, bits: float, *, force: bool) -> float:
    """The threshold for the served bits; where a profile without one is forced, that of the nearest bits."""
    if not isinstance(profile, Profile):
        raise ValueError(f"profile must be a Profile or its JSON object, got {type(profile).__name__}")
    try:
        return profile.threshold(bits)
    except ProfileError as error:
        if not force or not profile.thresholds:
            raise
        nearest = min(profile.thresholds, key=lambda known: abs(known - bits))
        warn_forced(f"{error}. The threshold of {nearest:g} bits is used")
        return profile.thresholds[nearest]
