"""Processes that work for this one: they end when it does, however it ends."""

from __future__ import annotations

import multiprocessing
import os
from threading import Thread


def end_with_parent() -> None:
    """Called in a worker: from now on it ends with the process that began it, be that killed.

    A worker of a pool waits for work by a pipe that it could write to itself, and so is not told that nobody else can.
    """
    parent = multiprocessing.parent_process()
    assert parent is not None, "a worker has been begun by somebody"

    def wait() -> None:
        parent.join()
        os._exit(1)

    Thread(target=wait, daemon=True).start()
