"""How much memory there is for keys and values, what happens where there is none, and who looks after the rest."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from bitcal_tts.engines.base import EngineWarning

_SPARED = 0.1  # of a GPU's memory, for what a step takes besides
_HOST_SHARE = 0.5


class OutOfMemoryWarning(EngineWarning):
    """A device had less memory than it seemed to; what was decoded goes on, fewer requests at a time."""


class FullError(Exception):
    """There is no memory for the rows in flight, and nothing of them was lost."""


@contextmanager
def may_be_full() -> Iterator[None]:
    """Around what may take more memory than there is, and can be done again with fewer rows."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise FullError from error


def room(device: torch.device) -> int:
    """Bytes that may be taken now."""
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return max(0, int(free + kept - _SPARED * total))
    return int(_HOST_SHARE * _available())


@contextmanager
def garbage_left_alone() -> Iterator[None]:
    """While objects are made by the thousand that all stay: looking for garbage among them takes as long."""
    collected = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collected:
            gc.enable()


@contextmanager
def garbage_elsewhere() -> Iterator[None]:
    """While what is there by now stays there: garbage is looked for among what is made from now on."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _available() -> int:
    """Bytes of the host's memory that can be had without swapping; of an unknown host, plenty."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return 1 << 36
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")), 1 << 36)
