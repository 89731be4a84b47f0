"""A fitted calibrator with its thresholds and the evidence they rest on; evaluated with numpy alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bitcal_tts.halting.features import NAMES

VERSION = 1
_FIELDS = ("version", "kind", "features", "model", "thresholds", "identity", "evidence", "reference")
IDENTITY = ("engine", "compute_dtype", "model", "model_sha256", "task", "style", "answers", "thinking")


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
        identity: What it was fitted on: engine, dtype, model and its hash, task, style, temperature, label.
        evidence: By bits: how many items, how many losses, the p-value, what is saved.
        reference: By bits: scores at the first strong statement of calibration items, for the drift test.
    """

    kind: str
    features: tuple[str, ...]
    model: Mapping[str, Any]
    thresholds: Mapping[float, float]
    identity: Mapping[str, Any]
    evidence: Mapping[str, Any]
    reference: Mapping[float, tuple[float, ...]]

    @cached_property
    def _columns(self) -> NDArray[np.int64]:
        return np.array([NAMES.index(name) for name in self.features], dtype=np.int64)

    @cached_property
    def _scorer(self) -> Callable[[NDArray[np.float64]], NDArray[np.float64]]:
        return _Logistic(self.model) if self.kind == "logistic" else _Boosted(self.model)

    def scores(self, vectors: ArrayLike) -> NDArray[np.float64]:
        """Probability that stopping loses nothing, for one vector of `NAMES` a row."""
        rows = np.atleast_2d(np.asarray(vectors, dtype=np.float64))
        z = self._scorer(rows[:, self._columns])
        probability: NDArray[np.float64] = 1.0 / (1.0 + np.exp(-np.clip(z, -700, 700)))
        return probability

    def score(self, vector: NDArray[np.float64]) -> float:
        """The same for one vector."""
        return float(self.scores(vector)[0])

    def threshold(self, bits: float) -> float:
        """From which score on to stop at a precision."""
        if bits not in self.thresholds:
            known = ", ".join(f"{b:g}" for b in sorted(self.thresholds))
            raise ProfileError(
                f"this profile has no threshold for {bits:g} bits, only for {known}: another precision shifts the "
                "signals; add one with bitcal fit --profile FILE TRACES recorded at those bits"
            )
        return self.thresholds[bits]

    def check(self, identity: Mapping[str, Any], budget: int | None = None) -> None:
        """Refuse another engine, dtype, model, task, temperature, precision or budget than it was fitted on."""
        served = {key: identity[key] for key in IDENTITY if key in identity}
        served |= {"temperature": identity["decoding"]["temperature"]} if "decoding" in identity else {}
        served |= {} if budget is None else {"budget": budget}
        differing = [key for key, value in served.items() if value != self.identity.get(key)]
        if differing:
            told = [f"fitted for {key} {self.identity.get(key)!r}, this is {served[key]!r}" for key in differing]
            raise ProfileError(f"the profile's promise does not hold here: {'; '.join(told)}; fit one for this")
        if "bits" in identity:
            self.threshold(identity["bits"])

    def to_dict(self) -> dict[str, Any]:
        """JSON types; infinity, which JSON has not, is null."""
        return {
            "version": VERSION,
            "kind": self.kind,
            "features": list(self.features),
            "model": dict(self.model),
            "thresholds": {f"{b:g}": None if math.isinf(t) else t for b, t in self.thresholds.items()},
            "identity": dict(self.identity),
            "evidence": dict(self.evidence),
            "reference": {f"{b:g}": list(scores) for b, scores in self.reference.items()},
        }

    @classmethod
    def from_dict(cls, data: Any) -> Profile:
        """Read what `to_dict` wrote, distrusting it."""
        if not isinstance(data, dict):
            raise ProfileError("a profile is a JSON object")
        missing = [name for name in _FIELDS if name not in data]
        if missing:
            raise ProfileError(f"the profile lacks {', '.join(missing)}: it is not one that bitcal fit wrote")
        if data["version"] != VERSION or isinstance(data["version"], bool):
            raise ProfileError(
                f"the profile has version {data['version']!r}, this program reads {VERSION}: fit it again"
            )
        for name in ("model", "thresholds", "identity", "evidence", "reference"):
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
                identity=data["identity"],
                evidence=data["evidence"],
                reference={float(b): tuple(map(float, scores)) for b, scores in data["reference"].items()},
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
        marks = self.identity.get("fitted_questions", [])
        if not isinstance(marks, list) or not all(isinstance(mark, str) for mark in marks):
            raise ProfileError("the profile is damaged: its fitted_questions must be a list of names")


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


class _Boosted:
    """Trees side by side: all of them take a step down at once."""

    def __init__(self, model: Mapping[str, Any]) -> None:
        trees = model["trees"]
        width = max(len(tree["feature"]) for tree in trees)
        self._feature = np.zeros((len(trees), width), dtype=np.int64)
        self._threshold = np.full((len(trees), width), np.inf)
        self._children = np.zeros((len(trees), width, 2), dtype=np.int64)
        self._value = np.zeros((len(trees), width))
        for i, tree in enumerate(trees):
            n = len(tree["feature"])
            self._feature[i, :n] = tree["feature"]
            self._threshold[i, :n] = tree["threshold"]
            self._children[i, :n, 0] = tree["left"]
            self._children[i, :n, 1] = tree["right"]
            self._value[i, :n] = tree["value"]
        self._depth = int(model["depth"])
        if not 0 < self._depth <= width:
            raise ValueError(f"depth must be 1 to {width}")
        self._start = float(model["start"])
        self._all = np.arange(len(trees))

    def __call__(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        node = np.zeros((len(rows), len(self._all)), dtype=np.int64)
        at = np.arange(len(rows))[:, None]
        for _ in range(self._depth):
            right = rows[at, self._feature[self._all, node]] > self._threshold[self._all, node]
            node = self._children[self._all, node, right.astype(np.int64)]
        z: NDArray[np.float64] = self._value[self._all, node].sum(-1) + self._start
        return z
