"""Trace folders -> a profile with its guarantee."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitcal_tts.calibration.boosting import boosted
from bitcal_tts.calibration.recording import Recording, mark_of
from bitcal_tts.calibration.risk import certify, check_levels, fewest, grid
from bitcal_tts.halting.features import NAMES
from bitcal_tts.halting.handing import weight_bytes
from bitcal_tts.halting.identity import UNKNOWN, Identity
from bitcal_tts.halting.profile import Profile, ProfileError
from bitcal_tts.traces.looks import LookTable
from bitcal_tts.traces.replay import outcomes

KINDS = ("logistic", "boosted")
LABELS = ("gold", "final")
AMONG = ("all", "right")
MIN_ITEMS = 40
SHARE = 0.5
"""Of the items, for fitting a scorer."""
SHARE_OF_KNOWN = 0.1
"""Of the items, where the scorer is known: they say where thresholds may lie."""
_REFERENCES = 500


def fewest_items(risk: float, confidence: float, *, scorer_is_known: bool = False) -> int:
    """Items of a recording below which a fit can certify nothing, its share for the scorer included."""
    share = SHARE_OF_KNOWN if scorer_is_known else SHARE
    return math.ceil(fewest(risk, confidence) / (1 - share))


def fit(
    recordings: Sequence[Recording],
    *,
    risk: float,
    confidence: float,
    kind: str = "boosted",
    label: str = "gold",
    features: Sequence[str] = NAMES,
    looks: str = "sentences",
    share: float = SHARE,
    p_value: str = "binomial",
    among: str = "all",
    joint: bool = False,
    budget: int | None = None,
    seed: int = 0,
    known: Profile | None = None,
    scorer: Profile | None = None,
    handed_to: Recording | None = None,
    tick: Callable[[], None] | None = None,
) -> Profile:
    """Fit a scorer on a share of the items and certify a threshold per precision on the rest.

    Args:
        recordings: One or more precisions of one model on one task; several of one precision are pooled.
        risk: Most of P(full run right and stopped run wrong).
        confidence: How surely that holds, over the calibration items.
        kind: `logistic` or `boosted`.
        label: `gold`, or `final` where no gold answers are needed: a loss is then any other answer than the full run's.
        features: Names of the features to use.
        looks: Where the gate looks: `sentences`, `statements`, `boundaries` or `both`.
        share: Of the items, for fitting the scorer; the rest certify.
        p_value: `binomial` or `hoeffding_bentkus`.
        among: Of which requests the risk is a share: `all`, or `right`, those whose full run is right. A model that is
            often wrong has little to lose among all.
        joint: Whether the confidence holds for all precisions of this fit together (Bonferroni), not for each.
        budget: Hard cap on new tokens; the recorded one by default, or that of the known profile.
        seed: Chooses which items fit and which certify.
        known: A profile whose scorer is kept: only thresholds are added, from items it was not fitted on.
        scorer: A scorer that is taken as it is, without the settings and thresholds that a known profile has.
        handed_to: The same items by another model, which answers whatever this one has not settled by its budget; lost
            is then what is stopped wrong and that model has right.
        tick: Told of each trace.
    """
    check_levels(risk, confidence)
    if handed_to is not None and (len(recordings) > 1 or label == "final" or known is not None or among == "right"):
        raise ValueError(
            "a profile for handing over is fitted on one recording, with gold answers, among all, and without --profile"
        )
    if not recordings:
        raise ValueError("there is nothing to fit on")
    if among not in AMONG:
        raise ValueError(f"among must be one of {', '.join(AMONG)}, got {among!r}")
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}, got {kind!r}")
    if not 0 < share < 1:
        raise ValueError(f"share must be above 0 and below 1, got {share!r}")
    if seed < 0:
        raise ValueError(f"seed must be at least 0, got {seed}")
    budget = _budget(recordings, budget, known)
    identity = _shared_identity(recordings, budget)
    if known is not None:
        _check_known(known, identity)
        looks, label = str(known.settings["looks"]), str(known.fitted["label"])
    if among == "right" and label == "final":
        raise ValueError("which full runs are right is not known with label 'final': certify among all")
    if label == "gold" and not any(trace.item.answer for recording in recordings for trace in recording.traces):
        raise ValueError(
            "these texts have no gold answers: --label final counts any other answer than the full run's as lost"
            + ("" if known is None and scorer is None else ", with a scorer of its own (without --from and --profile)")
        )
    every = None if known is None else int(known.settings["every"])
    if handed_to is not None:
        identity = identity.with_known(handed_to=handed_to.name)
    settings = recordings[0].certified(looks, budget, every)
    if known is not None and settings != dict(known.settings):
        changed = [
            f"{k} {known.settings.get(k)!r}, not {settings[k]!r}"
            for k in settings
            if settings[k] != known.settings.get(k)
        ]
        raise ProfileError(f"the profile was certified with its own {', '.join(changed)}")
    groups = _by_bits(recordings)
    others = set(known.thresholds) - groups.keys() if known is not None else set()
    if joint and others:
        told = ", ".join(f"{bits:g}" for bits in sorted(others))
        raise ValueError(f"the profile's thresholds for {told} bits were certified apart: fit all precisions together")
    level = 1 - (1 - confidence) / len(groups) if joint else confidence
    halves = _split_all(groups, share, seed, known or scorer, enough=fewest(risk, confidence))
    tables = [
        LookTable.joined([recording.table(budget, looks, tick, every) for recording in group])
        for group in groups.values()
    ]
    if label == "gold" and not any(table.full_right.any() for table in tables):
        raise ValueError("no full run is right, so that nothing could be lost: check the answers, or use --label final")
    fitting = [table.of(chosen) for table, (chosen, _) in zip(tables, halves, strict=True)]
    profile = known
    if profile is None:
        marks = {m for group, (chosen, _) in zip(groups.values(), halves, strict=True) for m in _marks(group, chosen)}
        profile = fit_scorer(fitting, kind, label, features) if scorer is None else scorer
        fitted = {
            "label": label,
            "looks": sum(map(len, fitting)),
            "bits": sorted(groups),
            "splits": sorted({str(r.description.get("split")) for r in recordings}),
            "questions": sorted(marks if scorer is None else scorer.fitted.get("questions", ())),
        }
        profile = replace(profile, identity=identity, settings=settings, fitted=fitted)
    held_out = {m for group, (_, held) in zip(groups.values(), halves, strict=True) for m in _marks(group, held)}
    certifying = sorted(held_out.union(profile.fitted.get("certifying", ())))
    profile = replace(profile, fitted={**profile.fitted, "certifying": certifying})
    thresholds, evidence, reference = dict(profile.thresholds), dict(profile.evidence), dict(profile.reference)
    for (bits, group), table, (chosen, held), seen in zip(groups.items(), tables, halves, fitting, strict=True):
        rest = table.of(held).judged(profile.scores)
        cut_off = float((rest.full_tokens >= budget).mean())
        if handed_to is not None:
            right, tokens = _answers_of(handed_to, group[0])
            rest = rest.handing_over(right[held], tokens[held])
        counted = rest.full_right if among == "right" else np.ones(rest.n, dtype=np.bool_)
        n = int(counted.sum())
        if n == 0:
            raise ValueError(f"at {bits:g} bits no full run is right among those that certify: certify among all")
        certificate = certify(
            lambda t, r=rest, c=counted: int(r.cut(t).losses(label)[c].sum()),  # type: ignore[misc]
            n,
            grid(seen.judged(profile.scores).scores),
            risk=risk,
            confidence=level,
            p_value=p_value,
            cost_at=lambda t, r=rest: float(r.cut(t).cost.mean()),  # type: ignore[misc]
        )
        thresholds[bits] = certificate.threshold
        certified = math.isfinite(certificate.threshold)
        cut = rest.cut(certificate.threshold) if certified else rest.full()
        more = certificate.more and math.ceil(certificate.more * table.n / n)
        scheme = {recording.identity["scheme"] for recording in group}.pop()
        evidence[f"{bits:g}"] = {
            **({} if scheme is UNKNOWN else {"scheme": scheme}),
            "risk": risk,
            "loss": "lost" if label == "gold" else "another answer than the full run's",
            **({} if handed_to is None else {"handed_to": handed_to.name}),
            "among": among,
            "confidence": confidence,
            **({"joint_over": sorted(groups)} if joint else {}),
            "p_value_kind": p_value,
            "certified": certified,
            "other_items": len(chosen),
            "certified_items": n,
            "losses": certificate.losses,
            "p_value": certificate.p_value,
            "more_items_needed": more,
            "cut_off_rate": cut_off,
            "tokens": float(cut.cost.mean()),
            "full_tokens": float(rest.full_tokens.mean()),
            "accuracy": float(cut.correct.mean()),
            "full_accuracy": float(rest.full_right.mean()),
        }
        reference[bits] = tuple(rest.first_scores()[:_REFERENCES].tolist())
    return replace(profile, thresholds=thresholds, evidence=evidence, reference=reference)


def _answers_of(other: Recording, first: Recording) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """Whether another model is right on the items of a recording, and its tokens as so many of the first's."""
    found = {outcome.item: outcome for outcome in outcomes(other.traces, other.landed, other.task)}
    missing = [trace.item.id for trace in first.traces if trace.item.id not in found]
    if missing:
        raise ProfileError(
            f"{len(missing)} items are not in the recording that is handed to, such as {missing[0]!r}: record both "
            "with the same task, split, seed and n"
        )
    share = weight_bytes(first.description) / weight_bytes(other.description)
    done = [found[trace.item.id] for trace in first.traces]
    return np.array([o.correct for o in done]), np.array([round(o.cost / share) for o in done])


def _budget(recordings: Sequence[Recording], asked: int | None, known: Profile | None) -> int:
    if asked is not None:
        return asked
    if known is not None:
        return int(known.identity["budget"])
    return int(min(recording.description["budget"] for recording in recordings))


def _check_known(known: Profile, identity: Identity) -> None:
    """The traces must be of what the profile was fitted on, but for the bits."""
    either = {"bits": None, "scheme": None}
    differences = known.identity.with_known(**either).differences(identity.with_known(**either))
    if differences:
        raise ProfileError(f"these traces are not what the profile was fitted on: {'; '.join(differences.values())}")


def _by_bits(recordings: Sequence[Recording]) -> dict[float, list[Recording]]:
    """Recordings by precision; none may come twice."""
    groups: dict[float, list[Recording]] = {}
    for recording in recordings:
        groups.setdefault(recording.bits, []).append(recording)
    for bits, group in groups.items():
        texts = [{(trace.item.question, trace.text) for trace in recording.traces} for recording in group]
        for one, other in itertools.combinations(texts, 2):
            if one <= other or other <= one:
                raise ProfileError(
                    f"at {bits:g} bits {min(len(one), len(other))} traces come twice: give each folder once"
                )
    return groups


def _marks(group: Sequence[Recording], chosen: Sequence[int] | None = None) -> list[str]:
    """Names of the questions of a group's traces, or of some of them."""
    marks = [mark_of(trace) for recording in group for trace in recording.traces]
    return marks if chosen is None else [marks[i] for i in chosen]


def fit_scorer(tables: Sequence[LookTable], kind: str, label: str, features: Sequence[str], **boosting: Any) -> Profile:
    """A scorer from looks, pooled; bits are a feature like any other.

    Args:
        tables: With the candidates of the looks.
        kind: `logistic` or `boosted`.
        label: `gold` or `final`.
        features: Names of those to use, where they tell anything.
        **boosting: How trees are fitted.
    """
    vectors, right, weights = _labelled(tables, label)
    kept = [name for name in NAMES if name in set(features)]
    columns = vectors[:, [NAMES.index(name) for name in kept]]
    kept = [name for name, tells in zip(kept, telling(columns), strict=True) if tells]
    if not kept:
        raise ValueError(f"the features {', '.join(features)} never change in these traces: there is nothing to fit on")
    columns = vectors[:, [NAMES.index(name) for name in kept]]
    model = _logistic(columns, right) if kind == "logistic" else boosted(columns, right, weights, **boosting)
    return Profile(kind, tuple(kept), model, {})


def telling(columns: NDArray[np.float32]) -> NDArray[np.bool_]:
    """Which features tell anything: one that is not known does not, nor one that never changes.

    The latter would be divided by its spread.
    """
    tells: NDArray[np.bool_] = np.asarray(np.isfinite(columns).all(axis=0))
    tells[tells] = np.ptp(columns[:, tells], axis=0) > 0
    return tells


def _labelled(
    tables: Sequence[LookTable], label: str
) -> tuple[NDArray[np.float32], NDArray[np.bool_], NDArray[np.float64]]:
    """Rows, labels and weights. A text that is looked at four times as often counts twice as much."""
    vectors = np.concatenate([table.candidates.vectors for table in tables])
    right = np.concatenate([table.candidates.label(label) for table in tables])
    weights = np.concatenate(
        [np.bincount(table.trace, minlength=table.n)[table.trace[table.candidates.look]] ** -0.5 for table in tables]
    )
    if len(right) == 0:
        raise ValueError("no answer is ever stated in these traces: there is nothing to fit on")
    if right.all() or not right.any():
        what = "loses nothing" if right.all() else "loses"
        raise ValueError(
            f"stopping {what} at every one of the {len(right)} looks: with one class only there is nothing to fit; "
            "record more items, or harder ones"
        )
    return vectors, right, weights


def _logistic(columns: NDArray[np.float32], right: NDArray[np.bool_]) -> dict[str, Any]:
    from sklearn.linear_model import LogisticRegression

    columns = columns.astype(np.float64)
    mean, scale = columns.mean(axis=0), columns.std(axis=0)
    fitted = LogisticRegression(max_iter=2000).fit((columns - mean) / scale, right)
    return {
        "mean": mean.tolist(),
        "scale": scale.tolist(),
        "weights": fitted.coef_[0].tolist(),
        "intercept": float(fitted.intercept_[0]),
    }


def _split_all(
    groups: dict[float, list[Recording]], share: float, seed: int, known: Profile | None, *, enough: int
) -> list[tuple[list[int], list[int]]]:
    """Items that fit and items that certify, by a seeded draw.

    Questions are drawn, not items: all samples of a question go the same way. No question certifies that a scorer was
    fitted on, at this or another precision, and each certifies once, since samples of one question are not independent.
    Where the scorer is known, a tenth of the questions only says where thresholds may lie, which must not come from the
    items they are tested on either.
    """
    used: set[str] = set(known.fitted.get("questions", ())) if known else set()
    names = {bits: _marks(group) for bits, group in groups.items()}
    chosen, rest = [], []
    for bits, marks in names.items():
        questions = list(dict.fromkeys(marks))
        left = SHARE_OF_KNOWN if known else share
        if len(questions) < MIN_ITEMS:
            least = max(MIN_ITEMS, math.ceil(enough / (1 - left)))
            raise ValueError(
                f"{len(questions)} items at {bits:g} bits are too few: this promise takes at least {least}"
            )
        order = np.random.default_rng(seed).permutation(len(questions)).tolist()
        drawn = {questions[i] for i in order[: round(left * len(questions))]}
        chosen.append([i for i, mark in enumerate(marks) if mark in drawn])
        first = {mark: i for i, mark in reversed(list(enumerate(marks)))}
        rest.append([i for i, mark in enumerate(marks) if mark not in drawn and first[mark] == i])
    if not known:
        used = {marks[i] for marks, part in zip(names.values(), chosen, strict=True) for i in part}
    halves = []
    for (bits, marks), part, others in zip(names.items(), chosen, rest, strict=True):
        held = [i for i in others if marks[i] not in used]
        if len(held) < MIN_ITEMS // 2:
            raise ValueError(
                f"at {bits:g} bits only {len(held)} of {len(marks)} items can certify a threshold, and at least "
                f"{MIN_ITEMS // 2} must: the scorer was fitted on the questions of the others. Take other problems"
                + (", or fit a scorer of their own, without --from or --profile" if known else "")
            )
        halves.append((part, held))
    return halves


def _shared_identity(recordings: Sequence[Recording], budget: int) -> Identity:
    """What all recordings agree in, but for the bits: they may be pooled only then."""
    first = _tied(recordings[0], budget)
    for recording in recordings[1:]:
        other = _tied(recording, budget)
        for key in sorted({*first.known, *other.known}):
            if first[key] != other[key]:
                raise ProfileError(f"recordings to be pooled must agree in {key}: {first[key]!r} and {other[key]!r}")
        first = Identity(first.known, first.declared | other.declared)
    every = {recording.description.get("probes") for recording in recordings}
    if len(every) > 1:
        raise ProfileError(f"recordings to be pooled must agree in probes: {' and '.join(map(repr, every))}")
    schemes: dict[float, set[Any]] = {}
    for recording in recordings:
        schemes.setdefault(recording.bits, set()).add(recording.identity["scheme"])
    for bits, names in schemes.items():
        if len(names) > 1:
            raise ProfileError(f"at {bits:g} bits recordings must agree in scheme: {' and '.join(map(repr, names))}")
    return first


def _tied(recording: Recording, budget: int) -> Identity:
    return recording.identity.without("bits", "scheme").with_known(budget=budget)
