"""Several things at a time, each of which waits for a server."""

from __future__ import annotations

import queue
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from bitcal_tts.engines.base import EngineWarning
from bitcal_tts.engines.wire import Wire

SILENCE = 60.0
"""Seconds without a byte after which that is said."""
_LEAVING = 2.0
"""Seconds for those that are under way to close what they hold, once nobody waits for them."""


def together(one: Callable[[int], Any], n: int, at_once: int, stopped: threading.Event, wire: Wire) -> Iterator[Any]:
    """Do `n` things, `at_once` at a time, in any order; who leaves early, or fails, stops the others.

    Those that wait for a server that hangs are left to wait: their threads end with the process at the latest.

    Args:
        one: Does the thing of that number.
        n: How many things there are.
        at_once: How many are done at a time.
        stopped: Set when nobody waits for them any more, and heeded by `one`.
        wire: The connection by which all of them speak to the server.
    """
    numbers: queue.SimpleQueue[int] = queue.SimpleQueue()
    done: queue.SimpleQueue[tuple[Any, BaseException | None]] = queue.SimpleQueue()
    for i in range(n):
        numbers.put(i)

    def work() -> None:
        while not stopped.is_set():
            try:
                i = numbers.get_nowait()
            except queue.Empty:
                return
            try:
                done.put((one(i), None))
            except BaseException as error:
                done.put((None, error))
                return

    threads = [threading.Thread(target=work, daemon=True) for _ in range(min(at_once, n))]
    wire.heard = time.monotonic()
    for thread in threads:
        thread.start()
    try:
        for _ in range(n):
            result, error = _next(done, wire)
            if error is not None:
                raise error
            yield result
    finally:
        stopped.set()
        until = time.monotonic() + _LEAVING
        for thread in threads:
            thread.join(max(0.0, until - time.monotonic()))


def _next(done: queue.SimpleQueue[Any], wire: Wire) -> Any:
    """What is done next; a server that has said nothing for long is named meanwhile."""
    left = 0.0  # what is done is handed out, however long nobody has asked for it
    while left >= 0:
        with suppress(queue.Empty):
            return done.get(timeout=left)
        left = wire.heard + SILENCE - time.monotonic()
    warnings.warn(
        f"{wire.url} has said nothing for {SILENCE:g} seconds: it reads a long prompt, or hangs; after "
        f"{wire.patience:g} it is given up",
        EngineWarning,
        stacklevel=2,
    )
    return done.get()
