"""How a profile turns rows of numbers into log-odds: a weighted sum, or boosted trees; with numpy alone."""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

MOST_LEAVES = 53
"""Of a tree: a number of so many bits is exact as a float, whose exponent tells the highest of them."""
_NARROW_LEAVES = 24
_NARROW: Any = (np.uint32, np.int32, np.float32, 23, 127)  # bits, as signed, as a float: its mantissa and bias
_WIDE: Any = (np.uint64, np.int64, np.float64, 52, 1023)
_MANY = 32  # rows that are judged together: what that takes stays in a processor's cache
_A_THREAD = 1024  # rows that a thread takes at a time
_THREADS = 4  # more than these wait for one another


class Logistic:
    """A weighted sum of standardised numbers."""

    def __init__(self, model: Mapping[str, Any]) -> None:
        mean, scale, weights = (np.asarray(model[key], dtype=np.float64) for key in ("mean", "scale", "weights"))
        if not mean.shape == scale.shape == weights.shape or mean.ndim != 1 or (scale <= 0).any():
            raise ValueError("mean, scale and weights must be equally long, scales above 0")
        self._weights = weights / scale
        self._intercept = float(model["intercept"]) - float(mean @ self._weights)

    def __call__(self, rows: NDArray[np.float32]) -> NDArray[np.float64]:
        """Log-odds of each row."""
        z: NDArray[np.float64] = rows.astype(np.float64) @ self._weights + self._intercept
        return z


class Boosted:
    """A sum of trees, all of whose splits are looked at, whichever of them a row would come by.

    A split that a row lies above rules out the leaves on its left; of those that nobody rules out, the leftmost is
    where the row would have come to (Lucchese et al., QuickScorer, SIGIR 2015). Leaves are bits, the leftmost the
    highest, so that comparing, ruling out and finding the leaf are a few passes over contiguous memory.
    """

    def __init__(self, model: Mapping[str, Any]) -> None:
        trees = [_Tree.of(tree) for tree in model["trees"]]
        self._start = float(model["start"])
        self._n, self._splits = len(trees), max((len(tree.splits) for tree in trees), default=0)
        leaves = max((len(tree.values) for tree in trees), default=1)
        bits, self._signed, self._float, self._mantissa, bias = _NARROW if leaves <= _NARROW_LEAVES else _WIDE
        shape = (self._splits, self._n)
        # Trees that have fewer splits than the largest have some that nothing lies above.
        feature, threshold, kept = np.zeros(shape, np.int64), np.full(shape, np.inf), np.zeros(shape, bits)
        values = np.zeros((self._n, leaves))
        for i, tree in enumerate(trees):
            values[i, leaves - len(tree.values) :] = tree.values[::-1]
            for j, split in enumerate(tree.splits):
                feature[j, i], threshold[j, i] = split.feature, split.threshold
                kept[j, i] = ~bits((1 << leaves - split.first) - (1 << leaves - split.end))
        self._feature, self._threshold, self._kept = feature.ravel(), _below(threshold.ravel()), kept.ravel()
        self._values, self._at = values.ravel(), leaves * np.arange(self._n) - bias
        self._all = bits((1 << leaves) - 1)
        self._widest = int(feature.max(initial=0))

    def __call__(self, rows: NDArray[np.float32]) -> NDArray[np.float64]:
        """Log-odds of each row."""
        if self._widest >= rows.shape[1]:
            raise IndexError(f"a tree looks at feature {self._widest} of {rows.shape[1]}")
        if len(rows) <= _MANY:
            return self._some(rows)
        z: NDArray[np.float64] = np.empty(len(rows))

        def fill(start: int) -> None:
            for i in range(start, min(start + _A_THREAD, len(rows)), _MANY):
                z[i : i + _MANY] = self._some(rows[i : i + _MANY])

        starts = range(0, len(rows), _A_THREAD)
        if len(starts) == 1:
            fill(0)
            return z
        with ThreadPoolExecutor(min(_THREADS, os.cpu_count() or 1)) as pool:
            for _ in pool.map(fill, starts):
                pass  # rows are judged one by one: the same whatever the threads
        return z

    def _some(self, rows: NDArray[np.float32]) -> NDArray[np.float64]:
        # All places are within bounds by now: `clip` is how numpy is told not to look again.
        above = rows.take(self._feature, axis=1, mode="clip") > self._threshold
        alive = (above.view(np.int8) - np.int8(1)).astype(self._signed).view(self._kept.dtype)  # no bits where above
        alive |= self._kept
        alive = np.bitwise_and.reduce(alive.reshape(len(rows), self._splits, self._n), axis=1) & self._all
        leaf = alive.astype(self._float).view(self._signed) >> self._mantissa
        z: NDArray[np.float64] = self._values.take(leaf + self._at, mode="clip").sum(-1) + self._start
        return z


class _Split(NamedTuple):
    """A split, and the leaves on its left: from `first` up to `end`, counted from the left."""

    feature: int
    threshold: float
    first: int
    end: int


class _Tree(NamedTuple):
    """A tree's splits, and the values of its leaves from left to right."""

    splits: list[_Split]
    values: list[float]

    @classmethod
    def of(cls, tree: Mapping[str, Any]) -> _Tree:
        """Read a tree's lists of nodes, distrusting them; a leaf leads to itself."""
        features, thresholds, lefts, rights, values = (tree[name] for name in _LISTS)
        n = len(features)
        if not n == len(thresholds) == len(lefts) == len(rights) == len(values):
            raise ValueError("a tree's lists must have as many entries as it has nodes")
        if n >= 2 * MOST_LEAVES:
            raise ValueError(f"a tree may have at most {MOST_LEAVES} leaves, and one has {n} nodes")
        read = cls([], [])
        seen: set[int] = set()

        def walk(node: int) -> None:
            if node in seen or not 0 <= node < n:
                raise ValueError(f"a tree's nodes must lead to each of its nodes once, one leads to {node} of {n}")
            seen.add(node)
            if lefts[node] == rights[node] == node:
                read.values.append(float(values[node]))
                return
            if features[node] < 0:
                raise ValueError("a tree's features must be at least 0")
            first = len(read.values)
            walk(lefts[node])
            read.splits.append(_Split(int(features[node]), float(thresholds[node]), first, len(read.values)))
            walk(rights[node])

        walk(0)
        return read


_LISTS = ("feature", "threshold", "left", "right", "value")


def _below(numbers: NDArray[np.float64]) -> NDArray[np.float32]:
    """The largest 32-bit floats that are no larger: a 32-bit number lies above them where it lies above the others."""
    near = numbers.astype(np.float32)
    return np.where(near > numbers, np.nextafter(near, np.float32(-np.inf)), near)
