"""A fitted calibrator with its thresholds and the evidence they rest on; evaluated with numpy alone."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bitcal_tts.halting.features import NAMES, signal_of
from bitcal_tts.halting.identity import UNKNOWN, Identity
from bitcal_tts.halting.signals import Signal
from bitcal_tts.halting.values import COLUMNS, Look

VERSION = 2
_OBJECTS = ("model", "thresholds", "identity", "settings", "evidence", "reference", "fitted")
_FIELDS = ("version", "kind", "features", *_OBJECTS)


class ProfileError(ValueError):
    """A profile that is damaged, from elsewhere, or for something else; the message says which."""


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
    def _columns(self) -> NDArray[np.int64]:
        return np.array([NAMES.index(name) for name in self.features], dtype=np.int64)

    @cached_property
    def _scorer(self) -> Callable[[NDArray[np.float64]], NDArray[np.float64]]:
        return _Logistic(self.model) if self.kind == "logistic" else _Boosted(self.model)

    def scores(self, vectors: ArrayLike) -> NDArray[np.float64]:
        """Probability that stopping loses nothing, for one vector of `NAMES` a row."""
        rows = np.atleast_2d(np.asarray(vectors))
        blocks = (rows[i : i + _BLOCK, self._columns] for i in range(0, max(1, len(rows)), _BLOCK))
        z = np.concatenate([self._scorer(block.astype(np.float64)) for block in blocks])
        probability: NDArray[np.float64] = 1.0 / (1.0 + np.exp(-np.clip(z, -700, 700)))
        return probability

    def margins(self, columns: ArrayLike) -> NDArray[np.float64]:
        """Log-odds of the same, for rows that hold its own features only, in their order."""
        return self._scorer(np.asarray(columns, dtype=np.float64))

    def plus(self, other: Profile) -> Profile:
        """The sum of two boosted scorers of the same features."""
        if not self.kind == other.kind == "boosted" or self.features != other.features:
            raise ValueError("only boosted scorers of the same features can be added")
        one, two = self.model, other.model
        model = {
            "trees": [*one["trees"], *two["trees"]],
            "depth": max(one["depth"], two["depth"]),
            "start": one["start"] + two["start"],
        }
        return replace(self, model=model)

    def score(self, vector: NDArray[np.float64]) -> float:
        """The same for one vector."""
        return float(self.scores(vector)[0])

    def judge(self, look: Look) -> tuple[float, Any]:
        """The score of a look, and the value that it stands for: of its candidates' scores the highest counts."""
        scores = self.scores(look.rows)
        best = int(scores.argmax())
        return float(scores[best]), look.values[best] if look.values else None

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
        self.threshold(bits)
        scheme = self.evidence[f"{bits:g}"].get("scheme", UNKNOWN)
        tied = self.identity.with_known(bits=bits, **({} if scheme is UNKNOWN else {"scheme": scheme}))
        differences = tied.differences(served)
        if differences:
            raise ProfileError(f"the profile's promise does not hold here: {'; '.join(differences)}; fit one for this")

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
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            raise ProfileError(f"the profile is damaged: {type(error).__name__}: {error}") from None
        profile._check_numbers(data, score)
        return profile

    def _check_numbers(self, data: Mapping[str, Any], score: float) -> None:
        """Refuse what a damaged or forged file may hold and no fit writes."""
        if not math.isfinite(score):
            raise ProfileError("the profile is damaged: its scores are not numbers")
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
    depth = max(profile.model["depth"] for profile in profiles)
    start = sum(profile.model["start"] for profile in profiles) / len(profiles)
    return replace(profiles[0], model={"trees": trees, "depth": depth, "start": start})


def _identity(data: Mapping[str, Any]) -> Identity:
    declared = data.get("declared", [])
    if not isinstance(declared, list) or not all(isinstance(key, str) for key in declared):
        raise ValueError("what was declared must be a list of names")
    return Identity({key: value for key, value in data.items() if key != "declared"}, frozenset(declared))


class _Logistic:
    def __init__(self, model: Mapping[str, Any]) -> None:
        mean, scale, weights = (np.asarray(model[key], dtype=np.float64) for key in ("mean", "scale", "weights"))
        if not mean.shape == scale.shape == weights.shape or mean.ndim != 1 or (scale <= 0).any():
            raise ValueError("mean, scale and weights must be equally long, scales above 0")
        self._weights = weights / scale
        self._intercept = float(model["intercept"]) - float(mean @ self._weights)

    def __call__(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        z: NDArray[np.float64] = rows @ self._weights + self._intercept
        return z


_BLOCK = 1 << 16
"""Rows that are made ready for judging at a time: of a whole log they would take several times its table."""
_MANY = 256
"""Rows that are judged together: so many stay in a processor's cache."""
_FEW = 8  # rows of a look, whose beginnings are kept
_THREADS = 4  # more than these wait for one another


class _Boosted:
    """Trees side by side: all of them take a step down at once, in flat arrays that fit into a processor's cache."""

    def __init__(self, model: Mapping[str, Any]) -> None:
        trees = model["trees"]
        self._depth, self._start = int(model["depth"]), float(model["start"])
        sizes = [len(tree["feature"]) for tree in trees]
        if not 0 < self._depth <= max(sizes):
            raise ValueError(f"depth must be 1 to {max(sizes)}")
        first = np.concatenate(([0], np.cumsum(sizes)[:-1]))
        self._root = first.astype(np.int64)
        self._begun: dict[tuple[int, int], tuple[NDArray[np.int64], NDArray[np.int64]]] = {}
        """By how many rows of how many numbers: the roots of all trees, and where the numbers of each row begin."""

        def flat(name: str, kind: Any) -> NDArray[Any]:
            columns = [np.asarray(tree[name], dtype=kind) for tree in trees]
            if [len(column) for column in columns] != sizes:
                raise ValueError(f"a tree's {name} must have as many entries as it has nodes")
            return np.concatenate(columns)

        self._feature, self._threshold, self._value = (
            flat("feature", np.int64),
            flat("threshold", float),
            flat("value", float),
        )
        if (self._feature < 0).any():
            raise ValueError("a tree's features must be at least 0")
        self._widest = int(self._feature.max(initial=0))
        children = np.stack([flat("left", np.int64), flat("right", np.int64)], axis=1)
        if (children < 0).any() or (children >= np.repeat(sizes, sizes)[:, None]).any():
            raise ValueError("a tree's children must be nodes of it")
        self._children = (children + np.repeat(first, sizes)[:, None]).ravel()

    def __call__(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        z: NDArray[np.float64] = np.empty(len(rows))

        def fill(i: int) -> None:
            z[i : i + _MANY] = self._some(np.ascontiguousarray(rows[i : i + _MANY]))

        starts = range(0, len(rows), _MANY)
        if len(starts) < 2 * _THREADS:
            for i in starts:
                fill(i)
        else:
            with ThreadPoolExecutor(min(_THREADS, os.cpu_count() or 1)) as pool:
                for _ in pool.map(fill, starts):  # rows are judged one by one: the same whatever the threads
                    pass
        return z

    def _some(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        n, width = rows.shape
        if self._widest >= width:
            raise IndexError(f"a tree looks at feature {self._widest} of {width}")
        flat = rows.ravel()
        node, offset = self._begin(n, width)
        # All places are within bounds by now: `clip` is how numpy is told not to look again.
        for _ in range(self._depth):
            at = offset + self._feature.take(node, mode="clip")
            above = flat.take(at, mode="clip") > self._threshold.take(node, mode="clip")
            node = self._children.take(2 * node + above, mode="clip")
        z: NDArray[np.float64] = self._value.take(node, mode="clip").reshape(n, -1).sum(-1) + self._start
        return z

    def _begin(self, n: int, width: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        begun = self._begun.get((n, width))
        if begun is None:
            begun = np.tile(self._root, n), np.repeat(np.arange(n) * width, len(self._root))
            if n <= _FEW:
                self._begun[n, width] = begun
        return begun
