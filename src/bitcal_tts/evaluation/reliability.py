"""How far a score can be trusted as the probability that the answer now is right (the paper's first question)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

BINS = 10


class Bin(NamedTuple):
    """One point of a reliability diagram."""

    mean_score: float
    share_right: float
    n: int


def auroc(scores: ArrayLike, right: ArrayLike) -> float:
    """Probability that a right case scores above a wrong one, ties counted half (Hanley and McNeil 1982).

    NaN where all cases are right or all are wrong: there is nothing to rank.
    """
    s, y = _cases(scores, right)
    positives, negatives = int(y.sum()), int((~y).sum())
    if positives == 0 or negatives == 0:
        return float("nan")
    _, inverse, counts = np.unique(s, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    ranks = (last - (counts - 1) / 2)[inverse]
    return float((ranks[y].sum() - positives * (positives + 1) / 2) / (positives * negatives))


def brier(scores: ArrayLike, right: ArrayLike) -> float:
    """Mean squared distance between score and truth (Brier 1950)."""
    s, y = _cases(scores, right)
    return float(np.mean((s - y) ** 2))


def reliability_bins(scores: ArrayLike, right: ArrayLike, bins: int = BINS) -> list[Bin]:
    """Mean score and share of right cases in bins of equal width over [0, 1]; empty bins are left out."""
    s, y = _cases(scores, right)
    at = np.clip((s * bins).astype(int), 0, bins - 1)
    return [
        Bin(float(s[at == b].mean()), float(y[at == b].mean()), int((at == b).sum()))
        for b in range(bins)
        if (at == b).any()
    ]


def ece(scores: ArrayLike, right: ArrayLike, bins: int = BINS) -> float:
    """Expected calibration error over bins of equal width (Naeini et al. 2015)."""
    found = reliability_bins(scores, right, bins)
    total = sum(b.n for b in found)
    return sum(b.n * abs(b.mean_score - b.share_right) for b in found) / total


def reliability(scores: ArrayLike, right: ArrayLike) -> dict[str, Any]:
    """All of them, as JSON types."""
    s, y = _cases(scores, right)
    area = auroc(s, y)
    return {
        "n": len(s),
        "share_right": float(y.mean()),
        "mean_score": float(s.mean()),
        "auroc": None if np.isnan(area) else area,
        "ece": ece(s, y),
        "brier": brier(s, y),
        "bins": [b._asdict() for b in reliability_bins(s, y)],
    }


def _cases(scores: ArrayLike, right: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    s, y = np.asarray(scores, dtype=np.float64), np.asarray(right, dtype=bool)
    if s.shape != y.shape or s.ndim != 1 or s.size == 0:
        raise ValueError(f"scores and outcomes must be equally long and not empty, got {s.shape} and {y.shape}")
    if not np.isfinite(s).all() or s.min() < 0 or s.max() > 1:
        raise ValueError("scores must lie between 0 and 1")
    return s, y
