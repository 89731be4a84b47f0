"""Work on traces, a share of them in each process: what is found of a trace does not depend on any other."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

from bitcal_tts.traces.trace import Trace, TraceError
from bitcal_tts.workers import end_with_parent

Found = TypeVar("Found")
Tick = Callable[[], None]
Work = Callable[[Sequence[Trace], Tick], Found]
"""Takes some of the traces, and tells of each as it is done with it."""
_SHARES = 4  # shares a process: none waits long for another
_FEWEST = 64  # traces that are worth processes
_LOOKED = 0.2  # seconds between looks at how far they are
_held: list[Any] = []
"""What processes are forked with: the traces are not copied, and what is done with them need not be sent."""


def in_shares(traces: Sequence[Trace], work: Work[Found], *, tick: Tick | None = None) -> list[Found]:
    """What `work` finds on each share of the traces, in their order; on all cores where that is worth it.

    Shares are consecutive, so that what is joined in their order is what one process would have found.
    """
    tick = tick or (lambda: None)
    processes = min(os.cpu_count() or 1, len(traces) // _FEWEST)
    if processes < 2 or sys.platform != "linux":  # elsewhere a fork is not safe
        return [work(traces, tick)]
    n = processes * _SHARES
    bounds = [len(traces) * i // n for i in range(n + 1)]
    context = multiprocessing.get_context("fork")
    counts = context.RawArray("q", n)
    _held[:] = [traces, bounds, work, counts]
    pool = ProcessPoolExecutor(processes, context, initializer=_begin)
    futures: list[Future[Found]] = []
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # threads there are, but none that the work needs
            futures = [pool.submit(_share, i) for i in range(n)]
        _follow(futures, counts, tick)
        return [future.result() for future in futures]
    except BaseException as error:
        for future in futures:
            future.cancel()
        for process in list(pool._processes.values()) if pool._processes else ():
            process.kill()  # all at once: one that heeds SIGTERM alone takes the lock along that another waits for
        if isinstance(error, BrokenProcessPool):
            raise TraceError("a process that reads traces has died: was there too little memory?") from None
        raise
    finally:
        pool.shutdown()
        _held.clear()


def _follow(futures: Sequence[Future[Any]], counts: Any, tick: Tick) -> None:
    """Tell of the traces that are done until all are, or something goes wrong."""
    told = 0
    pending: set[Future[Any]] = set(futures)
    while pending:
        done, pending = wait(pending, timeout=_LOOKED)
        by_now = sum(counts)  # looked at once: they go on counting
        for _ in range(by_now - told):
            tick()
        told = by_now
        for future in done:
            future.result()


def _begin() -> None:
    end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    warnings.simplefilter("ignore")


def _share(i: int) -> Any:
    traces, bounds, work, counts = _held

    def tick() -> None:
        counts[i] += 1

    return work(traces[bounds[i] : bounds[i + 1]], tick)
