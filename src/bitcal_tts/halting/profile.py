"""A fitted calibrator with its thresholds and the evidence they rest on; evaluated with numpy alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bitcal_tts.halting.features import NAMES
from bitcal_tts.halting.identity import UNKNOWN, Identity
from bitcal_tts.halting.scorers import Boosted, Logistic
from bitcal_tts.halting.signals import Signal
from bitcal_tts.halting.trail import signal_of
from bitcal_tts.halting.values import COLUMNS, Look

VERSION = 2
_BLOCK = 1 << 16
"""Rows of which the features are picked out at a time: of a whole log they would take several times its table."""
_TOLD = 5  # differences that are told one by one: where there are more, it is for something else altogether
_OBJECTS = ("model", "thresholds", "identity", "settings", "evidence", "reference", "fitted")
_FIELDS = ("version", "kind", "features", *_OBJECTS)


class ProfileError(ValueError):
    """A profile that is damaged, from elsewhere, or for something else; the message says which.

    Attributes:
        differs: Keys of the identity in which it is for something else, all of them.
    """

    def __init__(self, message: str, differs: Iterable[str] = ()) -> None:
        super().__init__(message)
        self.differs = tuple(differs)


@dataclass(frozen=True)
class Profile:
    """How to score a look, and from which score on to stop at each precision.

    Attributes:
        kind: `logistic` or `boosted`.
        features: Names of the numbers it looks at, in order.
        model: Coefficients, as JSON types.
        thresholds: By bits; infinite where nothing could be certified, so that it never stops early.
        identity: What its promise is tied to, besides the bits.
        settings: Of the method, with which it was certified.
        evidence: By bits: the scheme, how many items, how many losses, the p-value, what is saved.
        reference: By bits: scores at the first look of calibration items, for the drift test.
        fitted: How the scorer was fitted: label, splits, bits, marks of the questions, and of those that certify.
    """

    kind: str
    features: tuple[str, ...]
    model: Mapping[str, Any]
    thresholds: Mapping[float, float]
    identity: Identity = field(default_factory=Identity)
    settings: Mapping[str, Any] = field(default_factory=dict)
    evidence: Mapping[str, Any] = field(default_factory=dict)
    reference: Mapping[float, tuple[float, ...]] = field(default_factory=dict)
    fitted: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def _columns(self) -> NDArray[np.int64] | None:
        """Where its features stand among `NAMES`; None where they are these."""
        if self.features == NAMES:
            return None
        return np.array([NAMES.index(name) for name in self.features], dtype=np.int64)

    @cached_property
    def _scorer(self) -> Callable[[NDArray[np.float32]], NDArray[np.float64]]:
        return Logistic(self.model) if self.kind == "logistic" else Boosted(self.model)

    def scores(self, vectors: ArrayLike) -> NDArray[np.float64]:
        """Probability that stopping loses nothing, for one vector of `NAMES` a row, as 32-bit floats."""
        rows = np.atleast_2d(np.asarray(vectors, dtype=np.float32))
        if len(rows) <= _BLOCK:
            return _probability(self.margins(self._own(rows)))
        blocks = (self._own(rows[i : i + _BLOCK]) for i in range(0, len(rows), _BLOCK))
        return _probability(np.concatenate([self.margins(block) for block in blocks]))

    def _own(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        return rows if self._columns is None else rows.take(self._columns, axis=1)

    @property
    def met(self) -> dict[str, frozenset[str]]:
        """Names of the questions that it has met, by what was done on them: there it proves nothing."""
        kinds = {"fitted": "questions", "certified": "certifying"}
        return {done: frozenset(self.fitted.get(key, ())) for done, key in kinds.items()}

    def margins(self, rows: NDArray[np.float32]) -> NDArray[np.float64]:
        """Log-odds of the same, for rows that hold its own features only, in their order."""
        return self._scorer(rows)

    def plus(self, other: Profile) -> Profile:
        """The sum of two boosted scorers of the same features."""
        if not self.kind == other.kind == "boosted" or self.features != other.features:
            raise ValueError("only boosted scorers of the same features can be added")
        one, two = self.model, other.model
        model = {"trees": [*one["trees"], *two["trees"]], "start": one["start"] + two["start"]}
        return replace(self, model=model)

    def score(self, vector: NDArray[np.float64]) -> float:
        """The same for one vector."""
        return float(self.scores(vector)[0])

    def judge(self, look: Look) -> tuple[float, Any]:
        """The score of a look, and the value that it stands for: of its candidates' scores the highest counts."""
        return self.judge_all([look])[0]

    def judge_all(self, looks: Sequence[Look]) -> list[tuple[float, Any]]:
        """The same for many at once, which costs less than one by one."""
        scores = self.scores(looks[0].rows if len(looks) == 1 else np.concatenate([look.rows for look in looks]))
        judged, first = [], 0
        for look in looks:
            own = scores[first : first + len(look.rows)]
            best = int(own.argmax())
            judged.append((float(own[best]), look.values[best] if look.values else None))
            first += len(look.rows)
        return judged

    @cached_property
    def reads_question(self) -> bool:
        """Whether it looks at what the question asks for."""
        return not set(COLUMNS).isdisjoint(self.features)

    def threshold(self, bits: float) -> float:
        """From which score on to stop at a precision."""
        if bits not in self.thresholds:
            known = ", ".join(f"{b:g}" for b in sorted(self.thresholds))
            raise ProfileError(
                f"this profile has no threshold for {bits:g} bits, only for {known}: another precision shifts the "
                "signals; add one with bitcal fit --profile FILE TRACES recorded at those bits"
            )
        return self.thresholds[bits]

    @cached_property
    def needs(self) -> frozenset[Signal]:
        """Signals that its features are made of."""
        return frozenset(signal for signal in map(signal_of, self.features) if signal is not None)

    def check(self, served: Identity) -> None:
        """Refuse what differs from what it was fitted on, and what is unknown."""
        bits = served["bits"]
        if bits is UNKNOWN:
            raise ProfileError(
                "the profile's promise does not hold here: the bits that are served are unknown "
                "(--declare bits=VALUE, if you know them)"
            )
        self._refuse(self._tied(bits).differences(served))

    def check_known(self, served: Identity) -> None:
        """Refuse what is known to differ from what it was fitted on, before anything else is known."""
        self._refuse(self._tied(served["bits"]).contradictions(served))

    def _tied(self, bits: float) -> Identity:
        """What it was fitted on at these bits."""
        self.threshold(bits)
        scheme = self.evidence[f"{bits:g}"].get("scheme", UNKNOWN)
        return self.identity.with_known(bits=bits, **({} if scheme is UNKNOWN else {"scheme": scheme}))

    def _refuse(self, differences: dict[str, str]) -> None:
        if differences:
            told = "; ".join(islice(differences.values(), _TOLD))
            more = len(differences) - _TOLD
            rest = f"; and {more} more, different or unknown" if more > 0 else ""
            raise ProfileError(
                f"the profile's promise does not hold here: {told}{rest}; it takes a profile that was fitted for this",
                differences,
            )

    def to_dict(self) -> dict[str, Any]:
        """JSON types; infinity, which JSON has not, is null."""
        return {
            "version": VERSION,
            "kind": self.kind,
            "features": list(self.features),
            "model": dict(self.model),
            "thresholds": {f"{b:g}": None if math.isinf(t) else t for b, t in self.thresholds.items()},
            "identity": self.identity.to_dict(),
            "settings": dict(self.settings),
            "evidence": dict(self.evidence),
            "reference": {f"{b:g}": list(scores) for b, scores in self.reference.items()},
            "fitted": dict(self.fitted),
        }

    @classmethod
    def from_dict(cls, data: Any) -> Profile:
        """Read what `to_dict` wrote, distrusting it."""
        if not isinstance(data, dict):
            raise ProfileError("a profile is a JSON object")
        if "version" in data and (data["version"] != VERSION or isinstance(data["version"], bool)):
            raise ProfileError(
                f"the profile has version {data['version']!r}, this program reads {VERSION}: fit it again"
            )
        missing = [name for name in _FIELDS if name not in data]
        if missing:
            raise ProfileError(f"the profile lacks {', '.join(missing)}: it is not one that bitcal fit wrote")
        for name in _OBJECTS:
            if not isinstance(data[name], dict):
                raise ProfileError(f"the profile is damaged: its {name} must be an object")
        features = data["features"]
        if not isinstance(features, list) or len(set(map(str, features))) < len(features):
            raise ProfileError("the profile is damaged: its features must be a list of names, each once")
        unknown = [name for name in features if name not in NAMES]
        if unknown:
            raise ProfileError(f"the profile needs features that are not known here: {', '.join(map(str, unknown))}")
        if data["kind"] not in ("logistic", "boosted"):
            raise ProfileError(f"the profile's kind must be logistic or boosted, got {data['kind']!r}")
        try:
            profile = cls(
                kind=data["kind"],
                features=tuple(features),
                model=data["model"],
                thresholds={float(b): math.inf if t is None else float(t) for b, t in data["thresholds"].items()},
                identity=_identity(data["identity"]),
                settings=data["settings"],
                evidence=data["evidence"],
                reference={float(b): tuple(map(float, scores)) for b, scores in data["reference"].items()},
                fitted=data["fitted"],
            )
            score = profile.score(np.zeros(len(NAMES)))  # fails where a part is missing or of another length
        except (AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError) as error:
            raise ProfileError(f"the profile is damaged: {type(error).__name__}: {error}") from None
        profile._check_numbers(data, score)
        return profile

    def _check_numbers(self, data: Mapping[str, Any], score: float) -> None:
        """Refuse what a damaged or forged file may hold and no fit writes."""
        leaves = [value for tree in self.model.get("trees", ()) for value in tree["value"]]
        if not all(map(math.isfinite, (score, *leaves))):
            raise ProfileError("the profile is damaged: its scores are not numbers")
        thinking = self.identity["thinking"]
        if thinking not in (UNKNOWN, None) and not (isinstance(thinking, list | tuple) and len(thinking) == 2):
            raise ProfileError("the profile is damaged: its think markers must be two")
        if len(self.thresholds) < len(data["thresholds"]):
            raise ProfileError("the profile is damaged: it has two thresholds for one precision")
        for bits, threshold in self.thresholds.items():
            if not (0 <= threshold <= 1 or threshold == math.inf):
                raise ProfileError(f"the profile is damaged: its threshold at {bits:g} bits is {threshold}, not 0 to 1")
            if not isinstance(self.evidence.get(f"{bits:g}"), dict):
                raise ProfileError(f"the profile is damaged: it has no evidence for {bits:g} bits")
        if not all(math.isfinite(score) for scores in self.reference.values() for score in scores):
            raise ProfileError("the profile is damaged: its reference scores are not numbers")
        for key, what in (("questions", "fitted"), ("certifying", "certifying")):
            marks = self.fitted.get(key, [])
            if not isinstance(marks, list) or not all(isinstance(mark, str) for mark in marks):
                raise ProfileError(f"the profile is damaged: its {what} questions must be a list of names")


def mean_of(profiles: Sequence[Profile]) -> Profile:
    """The mean of boosted scorers, as one."""
    trees = []
    for profile in profiles:
        for tree in profile.model["trees"]:
            trees.append({**tree, "value": [value / len(profiles) for value in tree["value"]]})
    start = sum(profile.model["start"] for profile in profiles) / len(profiles)
    return replace(profiles[0], model={"trees": trees, "start": start})


def _identity(data: Mapping[str, Any]) -> Identity:
    declared = data.get("declared", [])
    if not isinstance(declared, list) or not all(isinstance(key, str) for key in declared):
        raise ValueError("what was declared must be a list of names")
    return Identity({key: value for key, value in data.items() if key != "declared"}, frozenset(declared))


def _probability(margins: NDArray[np.float64]) -> NDArray[np.float64]:
    probability: NDArray[np.float64] = 1.0 / (1.0 + np.exp(-np.minimum(np.maximum(margins, -700), 700)))
    return probability
