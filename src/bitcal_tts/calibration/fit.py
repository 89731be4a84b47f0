"""Trace folders -> a profile with its guarantee."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitcal_tts.calibration.looks import BLANK, Looks, looks_of
from bitcal_tts.calibration.risk import certify, check_levels, grid
from bitcal_tts.halting.features import NAMES
from bitcal_tts.halting.profile import IDENTITY, Profile, ProfileError
from bitcal_tts.halting.settled import SettledParameters
from bitcal_tts.tasks.base import Task
from bitcal_tts.traces.replay import answer_options
from bitcal_tts.traces.schema import Trace

KINDS = ("logistic", "boosted")
LABELS = ("gold", "final")
MIN_ITEMS = 40
_REFERENCES = 500


@dataclass
class Recording:
    """Traces at one precision, with what the manifest says of them; they are walked once."""

    identity: Mapping[str, Any]
    traces: Sequence[Trace]
    task: Task
    _walked: dict[tuple[int, str], Looks] = field(default_factory=dict, init=False, repr=False)

    @property
    def bits(self) -> float:
        """Served weight precision."""
        return float(self.identity["bits"])

    def looks(self, budget: int, where: str, tick: Callable[[], None] | None = None) -> Looks:
        """The looks of all traces."""
        key = (budget, where)
        if key not in self._walked:
            settings = settled_parameters(self.identity, BLANK, budget, looks=where, threshold=math.inf)
            self._walked[key] = looks_of(self.traces, settings, self.task, tick=tick)
        return self._walked[key]


def settled_parameters(identity: Mapping[str, Any], profile: Profile, budget: int, **options: Any) -> SettledParameters:
    """How `settled` is set up for a recording: it may stop where the recording was probed."""
    return SettledParameters(
        name="settled",
        bits=identity["bits"],
        budget=budget,
        profile=profile,
        every=_every(identity),
        **answer_options(identity),
        **options,
    )


def _every(identity: Mapping[str, Any]) -> int:
    return identity.get("probes") or 16


def fit(
    recordings: Sequence[Recording],
    *,
    risk: float,
    confidence: float,
    kind: str = "logistic",
    label: str = "gold",
    features: Sequence[str] = NAMES,
    looks: str = "statements",
    share: float = 0.5,
    p_value: str = "binomial",
    budget: int | None = None,
    seed: int = 0,
    known: Profile | None = None,
    tick: Callable[[], None] | None = None,
) -> Profile:
    """Fit a scorer on a share of the items and certify a threshold per precision on the rest.

    Args:
        recordings: One or more precisions of one model on one task.
        risk: Most of P(full run right and stopped run wrong).
        confidence: How surely that holds, over the calibration items.
        kind: `logistic` or `boosted`.
        label: `gold`, or `final` where no gold answers are needed: a loss is then any other answer than the full run's.
        features: Names of the features to use.
        looks: Where the gate looks: `statements`, `boundaries` or `both`.
        share: Of the items, for fitting the scorer; the rest certify.
        p_value: `binomial` or `hoeffding_bentkus`.
        budget: Hard cap on new tokens; the recorded one by default, or that of the known profile.
        seed: Chooses which items fit and which certify.
        known: A profile whose scorer is kept: only thresholds are added, from items it was not fitted on.
        tick: Told of each trace.
    """
    check_levels(risk, confidence)
    if not recordings:
        raise ValueError("there is nothing to fit on")
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}, got {kind!r}")
    if not 0 < share < 1:
        raise ValueError(f"share must be above 0 and below 1, got {share!r}")
    if seed < 0:
        raise ValueError(f"seed must be at least 0, got {seed}")
    _same_model(recordings)
    if known is not None:
        budget = known.identity["budget"] if budget is None else budget
        for recording in recordings:
            known.check({k: v for k, v in recording.identity.items() if k != "bits"}, budget)
        looks = str(known.identity.get("looks", looks))
        label = str(known.identity.get("label", label))
    if budget is None:
        budget = min(recording.identity["budget"] for recording in recordings)
    halves = _split_all(recordings, share, seed, known)
    walked = [recording.looks(budget, looks, tick) for recording in recordings]
    if label == "gold" and not any(found.full_right.any() for found in walked):
        raise ValueError("no full run is right, so that nothing could be lost: check the answers, or use label 'final'")
    seen = [found.of(chosen) for found, (chosen, _) in zip(walked, halves, strict=True)]
    profile = known or _fit_scorer(recordings, halves, seen, kind, label, features, looks, budget)
    thresholds, evidence, reference = dict(profile.thresholds), dict(profile.evidence), dict(profile.reference)
    for recording, found, (chosen, held), other in zip(recordings, walked, halves, seen, strict=True):
        rest = found.of(held)
        scores = profile.scores(rest.vectors) if len(rest) else np.zeros(0)
        certificate = certify(
            lambda t, r=rest, s=scores: int(r.losses(s, t, label).sum()),  # type: ignore[misc]
            rest.n,
            grid(profile.scores(other.vectors) if len(other) else []),
            risk=risk,
            confidence=confidence,
            p_value=p_value,
            cost_at=lambda t, r=rest, s=scores: float(r.at(s, t).cost.mean()),  # type: ignore[misc]
        )
        thresholds[recording.bits] = certificate.threshold
        certified = math.isfinite(certificate.threshold)
        cut = rest.at(scores, certificate.threshold) if certified else rest.full()
        more = certificate.more and math.ceil(certificate.more * len(recording.traces) / len(held))
        evidence[f"{recording.bits:g}"] = {
            "risk": risk,
            "loss": "lost" if label == "gold" else "another answer than the full run's",
            "confidence": confidence,
            "p_value_kind": p_value,
            "certified": certified,
            "other_items": len(chosen),
            "certified_items": len(held),
            "losses": certificate.losses,
            "p_value": certificate.p_value,
            "more_items_needed": more,
            "tokens": float(cut.cost.mean()),
            "full_tokens": float(rest.full_tokens.mean()),
            "accuracy": float(cut.correct.mean()),
            "full_accuracy": float(rest.full_right.mean()),
        }
        reference[recording.bits] = tuple(rest.first_scores(scores, certificate.threshold)[:_REFERENCES].tolist())
    return replace(profile, thresholds=thresholds, evidence=evidence, reference=reference)


def _fit_scorer(
    recordings: Sequence[Recording],
    halves: Sequence[tuple[list[int], list[int]]],
    found: Sequence[Looks],
    kind: str,
    label: str,
    features: Sequence[str],
    looks: str,
    budget: int,
) -> Profile:
    """A scorer from the looks of the fitting share of all recordings, pooled; bits are a feature like any other."""
    vectors, right = _labelled(found, label)
    kept = [name for name in NAMES if name in set(features)]
    columns = vectors[:, [NAMES.index(name) for name in kept]]
    # A feature that never changes says nothing, and would be divided by its spread.
    kept = [name for name, spread in zip(kept, np.ptp(columns, axis=0), strict=True) if spread > 0]
    if not kept:
        raise ValueError(f"the features {', '.join(features)} never change in these traces: there is nothing to fit on")
    columns = vectors[:, [NAMES.index(name) for name in kept]]
    model = _logistic(columns, right) if kind == "logistic" else _boosted(columns, right)
    shared = {key: recordings[0].identity.get(key) for key in IDENTITY}
    identity = {
        **shared,
        "temperature": recordings[0].identity["decoding"]["temperature"],
        "splits": sorted({str(r.identity.get("split")) for r in recordings}),
        "budget": budget,
        "every": _every(recordings[0].identity),
        "label": label,
        "looks": looks,
        "fitted_looks": len(right),
        "fitted_bits": sorted(r.bits for r in recordings),
        "fitted_questions": sorted(
            {
                mark_of(recording.traces[i])
                for recording, (chosen, _) in zip(recordings, halves, strict=True)
                for i in chosen
            }
        ),
    }
    return Profile(kind, tuple(kept), model, {}, identity, {}, {})


def _labelled(found: Sequence[Looks], label: str) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    vectors = np.concatenate([looks.vectors for looks in found])
    right = np.concatenate([looks.label(label) for looks in found])
    if len(right) == 0:
        raise ValueError("no answer is ever stated in these traces: there is nothing to fit on")
    if right.all() or not right.any():
        what = "loses nothing" if right.all() else "loses"
        raise ValueError(
            f"stopping {what} at every one of the {len(right)} looks: with one class only there is nothing to fit; "
            "record more items, or harder ones"
        )
    return vectors, right


def _logistic(columns: NDArray[np.float64], right: NDArray[np.bool_]) -> dict[str, Any]:
    from sklearn.linear_model import LogisticRegression

    mean, scale = columns.mean(axis=0), columns.std(axis=0)
    fitted = LogisticRegression(max_iter=2000).fit((columns - mean) / scale, right)
    return {
        "mean": mean.tolist(),
        "scale": scale.tolist(),
        "weights": fitted.coef_[0].tolist(),
        "intercept": float(fitted.intercept_[0]),
    }


def _boosted(columns: NDArray[np.float64], right: NDArray[np.bool_]) -> dict[str, Any]:
    from sklearn.ensemble import GradientBoostingClassifier

    fitted = GradientBoostingClassifier(
        n_estimators=80, max_depth=3, learning_rate=0.15, subsample=0.5, max_features=8, random_state=0
    ).fit(columns, right)
    prior = float(right.mean())
    trees = []
    for (stump,) in fitted.estimators_:
        tree = stump.tree_
        leaf = tree.children_left < 0
        own = np.arange(tree.node_count)
        trees.append({
            "feature": np.where(leaf, 0, tree.feature).tolist(),
            # A leaf leads to itself, so that all trees may take the same number of steps.
            "threshold": np.where(leaf, 0.0, tree.threshold).tolist(),
            "left": np.where(leaf, own, tree.children_left).tolist(),
            "right": np.where(leaf, own, tree.children_right).tolist(),
            "value": (fitted.learning_rate * tree.value[:, 0, 0]).tolist(),
        })  # fmt: skip
    return {"trees": trees, "depth": 3, "start": math.log(prior / (1 - prior))}


def _split_all(
    recordings: Sequence[Recording], share: float, seed: int, known: Profile | None
) -> list[tuple[list[int], list[int]]]:
    """Items that fit and items that certify, by a seeded draw.

    No question certifies that a scorer was fitted on, at this or another precision. Where the scorer is known, a tenth
    of the items only says where thresholds may lie, which must not come from the items they are tested on either.
    """
    used: set[str] = set(known.identity.get("fitted_questions", ())) if known else set()
    chosen, rest = [], []
    for recording in recordings:
        n = len(recording.traces)
        if n < MIN_ITEMS:
            raise ValueError(f"{n} items at {recording.bits:g} bits are too few: at least {MIN_ITEMS} are needed")
        order = [int(i) for i in np.random.default_rng(seed).permutation(n)]
        cut = round((0.1 if known else share) * n)
        chosen.append(sorted(order[:cut]))
        rest.append(sorted(order[cut:]))
    if not known:
        used = {mark_of(r.traces[i]) for r, part in zip(recordings, chosen, strict=True) for i in part}
    halves = []
    for recording, part, others in zip(recordings, chosen, rest, strict=True):
        held = [i for i in others if mark_of(recording.traces[i]) not in used]
        if len(held) < MIN_ITEMS // 2:
            raise ValueError(
                f"at {recording.bits:g} bits only {len(held)} items are left that the scorer was not fitted on: "
                f"at least {MIN_ITEMS // 2} are needed to certify a threshold"
            )
        halves.append((part, held))
    return halves


def mark_of(trace: Trace) -> str:
    """A short name for a question."""
    return hashlib.sha256(trace.item.question.encode()).hexdigest()[:10]


def _same_model(recordings: Sequence[Recording]) -> None:
    def shared(recording: Recording) -> dict[str, Any]:
        told = {key: recording.identity.get(key) for key in (*IDENTITY, "probes")}
        return {**told, "temperature": recording.identity["decoding"]["temperature"]}

    first = shared(recordings[0])
    for recording in recordings[1:]:
        for key, other in shared(recording).items():
            if other != first[key]:
                raise ProfileError(f"recordings to be pooled must agree in {key}: {first[key]!r} and {other!r}")
    bits = [recording.bits for recording in recordings]
    if len(set(bits)) < len(bits):
        raise ProfileError(f"each precision may come once, got {', '.join(f'{b:g}' for b in bits)}")
