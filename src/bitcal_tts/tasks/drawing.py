"""Problems drawn by seed, without end: what the tasks that make their own have in common."""

from __future__ import annotations

import hashlib
import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple


class Problem(NamedTuple):
    """A question, its worked solution without the final line, and its answer."""

    question: str
    solution: str
    answer: str


def distinct(
    name: str, splits: Sequence[str], split: str, seed: int, draw: Callable[[random.Random, int], Problem | None]
) -> Iterator[Problem]:
    """Problems that differ in their questions, the same for the same name, split and seed.

    Args:
        name: Of the task.
        splits: Those it has.
        split: The one that is asked for.
        seed: Chooses the problems.
        draw: One draw, told its number; None where nothing came of it, or nothing of this split.
    """
    if split not in splits:
        raise ValueError(f"split must be one of {', '.join(splits)}, got {split!r}")
    return _distinct(f"{name} {split} {seed}", draw)


def _distinct(named: str, draw: Callable[[random.Random, int], Problem | None]) -> Iterator[Problem]:
    seen: set[bytes] = set()
    for i in itertools.count():
        problem = draw(random.Random(f"{named} {i}"), i)  # noqa: S311
        if problem is None:
            continue
        key = hashlib.blake2b(problem.question.encode(), digest_size=8).digest()
        if key not in seen:
            seen.add(key)
            yield problem


def far_seed(named: str) -> int:
    """A seed for reasoning-gym, which draws item i of seed s like item i - 1 of seed s + 1: hashed, far apart."""
    return int.from_bytes(hashlib.sha256(named.encode()).digest()[:4], "big")
