"""Threads of GNU's OpenMP, on which torch and LightGBM compute.

They hold on to a core for long while they wait for one another: 300,000 turns unless told otherwise. Beside other work
on the same cores recording takes eleven times as long then; where they let go sooner it takes twice as long
(`benchmarks/threads.py`). OpenMP reads its settings when it is loaded.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

_NAME = "GOMP_SPINCOUNT"
_DECODING = "10000"
"""Of 1,000 decoding alone would be a tenth slower, of so many it is not."""
_FITTING = "1000"


def let_go_soon() -> None:
    """Have threads that are loaded from now on let go of a core soon, unless the environment says otherwise."""
    if not _is_told():
        os.environ[_NAME] = _DECODING


@contextmanager
def letting_go_at_once() -> Iterator[None]:
    """Have those that are loaded here let go of it sooner still, and no others."""
    if _is_told():
        yield
        return
    before = os.environ.get(_NAME)
    os.environ[_NAME] = _FITTING
    try:
        yield
    finally:
        del os.environ[_NAME]
        if before is not None:
            os.environ[_NAME] = before


def _is_told() -> bool:
    """Whether somebody else than this program has said how long they may wait."""
    return "OMP_WAIT_POLICY" in os.environ or os.environ.get(_NAME, _DECODING) != _DECODING
