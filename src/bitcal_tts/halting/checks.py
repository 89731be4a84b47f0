"""Checks of values, with errors that name the value and what would be right."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable
from typing import Any


def did_you_mean(name: str, known: Iterable[str], prefix: str = "", *, likeness: float = 0.6) -> str:
    """Half a sentence with the known name that is nearest to a misspelt one; empty where none is near.

    Args:
        name: As typed.
        known: What there is.
        prefix: What names begin with, which makes none of them near.
        likeness: How near is near, up to 1.
    """
    bare = [one.removeprefix(prefix) for one in known if one.startswith(prefix)]
    near = difflib.get_close_matches(name.removeprefix(prefix), bare, n=1, cutoff=likeness)
    return f" (did you mean {prefix}{near[0]}?)" if near else ""


def number(name: str, value: Any, *, least: float = -math.inf) -> float:
    """A finite number of at least `least`, or an error that names it."""
    real = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not real or not math.isfinite(value) or value < least:
        wanted = "a finite number" if math.isinf(least) else f"a finite number of at least {least:g}"
        raise ValueError(f"{name} must be {wanted}, got {value!r}")
    return float(value)


def whole(name: str, value: object, *, least: int) -> None:
    """Refuse all but whole numbers of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, got {value!r}")


def flag(name: str, value: object) -> None:
    """Refuse all but true and false."""
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be true or false, got {value!r}")
