"""Scores for texts from scorers that never saw their questions, and thresholds from other questions' scores.

Questions are dealt into folds by their text, the same for every file and for the starters in the package. A text is
scored by what was fitted on the other folds, added to the starter that was fitted without its fold.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bitcal_tts.auditing.walking import FOLDS, Walked
from bitcal_tts.calibration.boosting import boosted
from bitcal_tts.calibration.starters import Starter
from bitcal_tts.halting.features import NAMES
from bitcal_tts.halting.profile import Profile, mean_of
from bitcal_tts.traces.cut import Cut
from bitcal_tts.traces.looks import LookTable

ROUNDS = 150
ROUNDS_ON_A_STARTER = 60
MIN_ROWS = 400
"""Below this nothing is fitted: the starter alone judges, or nothing is stopped."""
_LOOKS_OF_A_TEXT = 60
_MOST_ROWS = 300_000
_SPOILT = ("share_of_budget", "coarseness")
"""What a log does not know: neither the budget nor the bits."""
_THRESHOLDS = 300


@dataclass(frozen=True)
class FoldScorers:
    """A scorer for the texts of each fold; None where there was too little to fit on."""

    profiles: tuple[Profile | None, ...]

    def __call__(self, table: LookTable, fold: int) -> LookTable:
        """The looks of texts of one fold, scored."""
        profile = self.profiles[fold]
        return never(table) if profile is None else table.judged(profile.scores)


def never(table: LookTable) -> LookTable:
    """Looks at which nothing is ever stopped."""
    return replace(table, scores=np.full(len(table), -math.inf))


def fit_folds(
    parts: Sequence[Walked],
    label: str,
    starter: Starter | None,
    *,
    rounds: int | None = None,
    most_rows: int | None = _MOST_ROWS,
    fits: int = 1,
) -> FoldScorers:
    """A scorer a fold, from the looks of the other folds of all files.

    Args:
        parts: One a file.
        label: `gold` or `final`.
        starter: What the scorers add to, or None.
        rounds: Trees a scorer.
        most_rows: Rows that are fitted on; of more, a random share.
        fits: Scorers a fold that differ by chance alone; their mean judges.
    """
    names = usable(parts) if starter is None else starter.features
    columns = np.array([NAMES.index(name) for name in names])
    fitted_on = _gathered(parts, label, columns, most_rows)
    start = None if starter is None else _margins(starter, fitted_on)
    rounds = rounds or (ROUNDS if starter is None else ROUNDS_ON_A_STARTER)
    profiles = []
    for fold in range(FOLDS):
        several = [_fit_fold(fold, names, fitted_on, start, rounds, seed) for seed in range(fits)]
        own = mean_of([one for one in several if one is not None]) if several[0] is not None else None
        known = None if starter is None else starter.scorers[fold]
        profiles.append(own if known is None else known if own is None else known.plus(own))
    return FoldScorers(tuple(profiles))


def usable(parts: Sequence[Walked]) -> tuple[str, ...]:
    """Features that are known at every look of a text."""
    known = np.ones(len(NAMES), dtype=np.bool_)
    for part in parts:
        vectors = part.settled.candidates.vectors
        known &= np.isfinite(vectors).all(axis=0) if len(vectors) else True
    return tuple(name for name, tells in zip(NAMES, known, strict=True) if tells and name not in _SPOILT)


class _Rows(NamedTuple):
    """What is fitted on: rows of features, whether they are right, how much they count, and their folds."""

    features: NDArray[np.float32]
    right: NDArray[np.bool_]
    weights: NDArray[np.float64]
    folds: NDArray[np.int64]

    def only(self, which: NDArray[np.bool_] | NDArray[np.int64]) -> _Rows:
        """Some of them."""
        return _Rows(self.features[which], self.right[which], self.weights[which], self.folds[which])


def _gathered(parts: Sequence[Walked], label: str, columns: NDArray[np.int64], most_rows: int | None) -> _Rows:
    """The looks that are fitted on: of long texts every so many."""
    gathered = []
    for part in parts:
        table, candidates = part.settled, part.settled.candidates
        looks = np.bincount(table.trace, minlength=part.n)
        stride = np.maximum(1, -(-looks // _LOOKS_OF_A_TEXT))
        place = np.arange(len(table)) - np.concatenate(([0], np.cumsum(looks)))[table.trace]
        chosen = (place % stride[table.trace] == 0)[candidates.look]
        text = table.trace[candidates.look[chosen]]
        kept = np.minimum(looks, _LOOKS_OF_A_TEXT)
        weights = kept[text] ** -0.5
        gathered.append(
            (candidates.vectors[chosen][:, columns], candidates.label(label)[chosen], weights, part.folds[text])
        )
    rows = _Rows(*(np.concatenate(column) for column in zip(*gathered, strict=True)))
    if most_rows is None or len(rows.features) <= most_rows:
        return rows
    return rows.only(np.sort(np.random.default_rng(0).choice(len(rows.features), most_rows, replace=False)))


def _margins(starter: Starter, rows: _Rows) -> NDArray[np.float64]:
    """Log-odds by the starter's scorers, each row by the one that has not seen its fold."""
    margins = np.zeros(len(rows.features))
    for fold, scorer in enumerate(starter.scorers):
        mine = rows.folds == fold
        if mine.any():
            margins[mine] = scorer.margins(rows.features[mine])
    return margins


def _fit_fold(
    fold: int, names: tuple[str, ...], rows: _Rows, start: NDArray[np.float64] | None, rounds: int, seed: int
) -> Profile | None:
    """A scorer from the other folds; None where they hold too little."""
    folds = rows.folds
    others = folds != fold
    some = rows.only(others)
    if others.sum() < MIN_ROWS or not some.right.any() or some.right.all():
        return None
    own = boosted(
        some.features,
        some.right,
        some.weights,
        start=None if start is None else start[others],
        rounds=rounds,
        seed=seed,
    )
    return Profile("boosted", names, own, {})


@dataclass(frozen=True)
class Crossed:
    """What a gate does with each text at the threshold of its fold: looks, with the loop guard where it is heeded."""

    table: LookTable
    folds: NDArray[np.int64]
    thresholds: tuple[float, ...]

    @property
    def at(self) -> NDArray[np.float64]:
        """The threshold of each text."""
        return np.array(self.thresholds)[self.folds]

    @property
    def cut(self) -> Cut:
        """What comes of it."""
        return self.table.cut(self.at)


def crossed(table: LookTable, folds: NDArray[np.int64], risk: float, label: str) -> Crossed:
    """Cut each fold at the loosest threshold at which the others lose no more than `risk`, and none above it does.

    Where the others lose more by the loop guard alone, because their model finds its way out of loops, it is left out.
    """
    table = table.rising()
    thresholds, guards = [], []
    for fold in range(FOLDS):
        others = table.of(np.nonzero(folds != fold)[0])
        guarded = bool(others.cut(math.inf).losses(label).sum() <= risk * others.n)
        others = others.with_guard(np.full(others.n, guarded))
        thresholds.append(loosest(others, risk, label) if others.n else math.inf)
        guards.append(guarded)
    return Crossed(table.with_guard(np.array(guards)[folds]), folds, tuple(thresholds))


def loosest(table: LookTable, risk: float, label: str) -> float:
    """The loosest threshold that loses no more than `risk` of the texts, nor does any that is stricter."""
    best = math.inf
    for threshold in candidates_of(table):
        if table.cut(threshold).losses(label).sum() > risk * table.n:
            break
        best = threshold
    return best


def candidates_of(table: LookTable, size: int = _THRESHOLDS) -> list[float]:
    """Thresholds worth trying, strictest first: scores at which a text would first be stopped."""
    finite = table.scores[np.isfinite(table.scores)]
    if not len(finite):
        return []
    values = np.unique(finite)
    if len(values) > size:
        # Finely where few texts are stopped, coarsely where many are.
        values = np.unique(np.quantile(values, 1 - np.geomspace(1e-5, 1, size)))
    return [float(value) for value in values[::-1]]
