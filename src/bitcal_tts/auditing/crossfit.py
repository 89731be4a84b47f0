"""Scores for texts from scorers that never saw their questions, and thresholds from other questions' scores.

Questions are dealt into folds by their text, the same for every file and for the starters in the package. A text is
scored by what was fitted on the other folds, added to the starter that was fitted without its fold.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bitcal_tts.auditing.walking import FOLDS, Walked
from bitcal_tts.calibration.boosting import boosted
from bitcal_tts.calibration.starters import Starter
from bitcal_tts.halting.features import NAMES
from bitcal_tts.halting.profile import Profile
from bitcal_tts.traces.looks import Cut, LookTable

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
    from dataclasses import replace

    return replace(table, scores=np.full(len(table), -math.inf))


def fit_folds(
    parts: Sequence[Walked],
    label: str,
    starter: Starter | None,
    *,
    rounds: int | None = None,
    most_rows: int | None = _MOST_ROWS,
) -> FoldScorers:
    """A scorer a fold, from the looks of the other folds of all files.

    Args:
        parts: One a file.
        label: `gold` or `final`.
        starter: What the scorers add to, or None.
        rounds: Trees a scorer.
        most_rows: Rows that are fitted on; of more, a random share.
    """
    names = usable(parts) if starter is None else starter.features
    columns = np.array([NAMES.index(name) for name in names])
    rows, right, weights, folds = _gathered(parts, label, columns, most_rows)
    if len(rows) == 0 and starter is None:
        return FoldScorers((None,) * FOLDS)
    start = None if starter is None else _margins(starter, rows, folds)
    rounds = rounds or (ROUNDS if starter is None else ROUNDS_ON_A_STARTER)
    fitted = (_fit_fold(f, names, rows, right, weights, folds, start, starter, rounds) for f in range(FOLDS))
    return FoldScorers(tuple(fitted))


def usable(parts: Sequence[Walked]) -> tuple[str, ...]:
    """Features that are known at every look of a text."""
    known = np.ones(len(NAMES), dtype=np.bool_)
    for part in parts:
        vectors = part.settled.candidates.vectors
        known &= np.isfinite(vectors).all(axis=0) if len(vectors) else True
    return tuple(name for name, tells in zip(NAMES, known, strict=True) if tells and name not in _SPOILT)


def _gathered(
    parts: Sequence[Walked], label: str, columns: NDArray[np.int64], most_rows: int | None
) -> tuple[NDArray[np.float32], NDArray[np.bool_], NDArray[np.float64], NDArray[np.int64]]:
    """Rows, labels, weights and folds of the looks that are fitted on: of long texts every so many."""
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
    rows, right, weights, folds = (np.concatenate(column) for column in zip(*gathered, strict=True))
    if most_rows is not None and len(rows) > most_rows:
        some = np.sort(np.random.default_rng(0).choice(len(rows), most_rows, replace=False))
        rows, right, weights, folds = rows[some], right[some], weights[some], folds[some]
    return rows, right, weights, folds


def _margins(starter: Starter, rows: NDArray[np.float32], folds: NDArray[np.int64]) -> NDArray[np.float64]:
    margins = np.zeros(len(rows))
    for fold in range(FOLDS):
        mine = folds == fold
        if mine.any():
            margins[mine] = starter.margins(rows[mine], fold)
    return margins


def _fit_fold(
    fold: int,
    names: tuple[str, ...],
    rows: NDArray[np.float32],
    right: NDArray[np.bool_],
    weights: NDArray[np.float64],
    folds: NDArray[np.int64],
    start: NDArray[np.float64] | None,
    starter: Starter | None,
    rounds: int,
) -> Profile | None:
    others = folds != fold
    known = None if starter is None else starter.profile(fold)
    enough = others.sum() >= MIN_ROWS and right[others].any() and not right[others].all()
    if not enough:
        return known
    own = boosted(
        rows[others],
        right[others],
        weights[others],
        start=None if start is None else start[others],
        rounds=rounds,
    )
    profile = Profile("boosted", names, own, {})
    return profile if known is None else known.plus(profile)


@dataclass(frozen=True)
class Crossed:
    """What a gate does with each text at the threshold of its fold."""

    cut: Cut
    thresholds: tuple[float, ...]


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
    guarded_table = table.with_guard(np.array(guards)[folds])
    return Crossed(cut_each(guarded_table, np.array(thresholds)[folds]), tuple(thresholds))


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


def cut_each(table: LookTable, thresholds: NDArray[np.float64]) -> Cut:
    """What a gate does with each text at a threshold of its own."""
    from dataclasses import replace

    return replace(table, scores=table.scores - thresholds[table.trace]).cut(0.0)
