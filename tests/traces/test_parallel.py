"""Work on traces in several processes: the same result, errors that come out, and nothing left behind."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Sequence
from concurrent.futures import Future
from threading import Thread, Timer
from typing import Any

import pytest
from short_task import short_task

from bitcal_tts import build_method
from bitcal_tts.evaluation.frontier import frontier, points_of, walk_along
from bitcal_tts.traces import parallel
from bitcal_tts.traces.parallel import Tick, _follow, in_shares
from bitcal_tts.traces.trace import Trace, TraceError

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere one process does all")


@pytest.fixture(autouse=True)
def three_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "_FEWEST", 4)
    monkeypatch.setattr(os, "cpu_count", lambda: 3)


@pytest.mark.parametrize("name", ["truncate", "stated", "adaptive", "complete"])
def test_the_points_are_those_of_one_process(probed: Any, name: str) -> None:
    task, traces = short_task(), probed.read()[:17]
    opening, close = probed.description["thinking"]
    options = {} if name == "adaptive" else {"opening": opening, "close": close}
    method = build_method(name, bits=32, budget=320, **options)
    ticks: list[int] = []
    begun = multiprocessing.get_context("fork").Value("i", 0)
    mine: list[bool] = []  # in each process, whether it has

    def walked(some: Sequence[Trace], tick: Tick) -> Any:
        if not mine:  # on a busy machine one may be done with all before another gets a core
            mine.append(True)
            with begun.get_lock():
                begun.value += 1
            until = time.monotonic() + 30
            while begun.value < 2 and time.monotonic() < until:
                time.sleep(0.01)
        return os.getpid(), walk_along(some, method, task, identity=None, tick=tick)

    shares = in_shares(traces, walked, tick=lambda: ticks.append(1))
    assert len({pid for pid, _ in shares} - {os.getpid()}) > 1
    assert len(ticks) == 17
    found = points_of([walk for _, walk in shares], traces, method, {})
    alone = frontier(traces, method, task)
    told = [
        [(p.threshold, p.cost, p.unprobed, p.lost, p.accuracy, list(p.outcomes)) for p in points]
        for points in (found, alone)
    ]
    assert told[0] == told[1]


def test_an_error_comes_out_and_no_process_stays(probed: Any) -> None:
    def fails(some: Sequence[Trace], tick: Tick) -> int:
        raise TraceError(f"nothing can be known of {len(some)} traces")

    with pytest.raises(TraceError, match="nothing can be known"):
        in_shares(probed.read()[:16], fails)
    assert not multiprocessing.active_children()
    assert not parallel._held


@pytest.mark.parametrize("ends_well", [True, False])
def test_a_process_that_does_not_heed_a_signal_holds_nobody_up(probed: Any, ends_well: bool) -> None:
    def walked(some: Sequence[Trace], tick: Tick) -> int:
        if some[0] is traces[0]:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)  # as a library may have it that was there before
            time.sleep(1)  # meanwhile the others have nothing to do, and one of them holds what all wait for
            if not ends_well:
                raise TraceError("nothing can be known")
        return len(some)

    traces, ended = probed.read()[:16], []

    def reads() -> None:
        with contextlib.suppress(TraceError):
            in_shares(traces, walked)
        ended.append(True)

    thread = Thread(target=reads, daemon=True)
    thread.start()
    thread.join(30)
    left = multiprocessing.active_children()
    for process in left:
        process.kill()
    assert ended and not left


def test_a_process_that_is_killed_is_an_error_in_one_line(probed: Any) -> None:
    def dies(some: Sequence[Trace], tick: Tick) -> int:
        os.kill(os.getpid(), signal.SIGKILL)
        return 0

    with pytest.raises(TraceError, match="a process that reads traces has died"):
        in_shares(probed.read()[:16], dies)
    assert not multiprocessing.active_children()


def test_few_traces_are_not_worth_processes(probed: Any) -> None:
    assert in_shares(probed.read()[:7], lambda some, _: (os.getpid(), len(some))) == [(os.getpid(), 7)]


def test_every_trace_is_told_of_though_processes_go_on_while_it_is_told() -> None:
    counts = [3]
    told: list[int] = []

    def tick() -> None:
        told.append(1)
        counts[0] = 5  # meanwhile

    done: Future[None] = Future()
    done.set_result(None)
    later: Future[None] = Future()
    Timer(0.3, later.set_result, [None]).start()
    _follow([done, later], counts, tick)
    assert len(told) == 5
