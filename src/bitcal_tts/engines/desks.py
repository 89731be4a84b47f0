"""Rows looked after by several processes: what a method does with a token is Python, and would hold a GPU up."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import warnings
from array import array
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import accumulate, pairwise
from multiprocessing.connection import wait
from queue import SimpleQueue
from threading import Thread
from typing import Any, NamedTuple

import numpy as np

from bitcal_tts.engines.base import Completion, EngineError
from bitcal_tts.engines.desk import Desk, Host, Lines, Replies
from bitcal_tts.engines.row import Row
from bitcal_tts.halting.controller import Probe

_ROWS_EACH = 4  # rows in flight that are worth a process
_MOST = 24
_BEHIND = 3  # chunks that a process may owe answers for, while it is handed the next
_PATIENCE = 5e-4  # seconds between looks at whether the device needs more to do


def host_for(rows: Sequence[Row], eos: frozenset[int], *, in_flight: int, processes: int | None) -> Host:
    """Whoever looks after rows: this process, or as many as there are cores to spare for, while a GPU decodes."""
    if processes is None:
        processes = min((os.cpu_count() or 1) - 1, in_flight // _ROWS_EACH, _MOST)
    if processes < 2 or "fork" not in multiprocessing.get_all_start_methods():
        return Desk(rows, eos)
    return Desks(rows, eos, processes)


class Desks:
    """Processes that look after a share of the rows each.

    They are forked, so that sessions and tokenizers are there as they are; they touch no device, and end when this
    process does. A row is given to the one that has the fewest when it has written something. What a session would have
    told others, here it tells: drift is watched in this process.
    """

    def __init__(self, rows: Sequence[Row], eos: frozenset[int], processes: int) -> None:
        self._rows = rows
        context = multiprocessing.get_context("fork")
        pipes = [context.Pipe() for _ in range(processes)]
        self._first = context.Process(target=_work_with_others, args=(pipes, Desk(rows, eos)), daemon=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # threads there are, but none that a desk needs
            self._first.start()
        self._ends: list[Any] = [here for here, _ in pipes]
        for _, there in pipes:
            there.close()
        self._unanswered = [0] * processes
        self._whose: dict[int, int] = {}
        """Which of them has a row, while it is in flight."""
        self._shares = [0] * processes

    def take(self, lines: Lines) -> None:
        """Each its share, all at once."""
        whose = np.array([self._desk_of(index) for index in lines.rows])
        by_process = lines.part(np.argsort(whose, kind="stable").tolist())
        first = 0
        for i, n in enumerate(np.bincount(whose, minlength=len(self._ends)).tolist()):
            if n:
                self._send(i, ("take", by_process.run(slice(first, first + n))))
            first += n

    def tell(self, probes: dict[int, Probe]) -> None:
        """Each its share."""
        shares: list[dict[int, Probe]] = [{} for _ in self._ends]
        for index, probe in probes.items():
            shares[self._desk_of(index)][index] = probe
        for i, share in enumerate(shares):
            if share:
                self._send(i, ("tell", share))

    def replies(self, patient: Callable[[], bool]) -> Replies:
        """What has come, and what is worth waiting for."""
        said: Replies = {}
        while waiting := {end: i for i, end in enumerate(self._ends) if self._unanswered[i]}:
            behind = max(self._unanswered) > _BEHIND
            ready = wait(list(waiting), timeout=None if behind else _PATIENCE if patient() else 0)
            for end in ready:
                said |= self._receive(waiting[end])
            if not ready and not behind and not patient():
                break
        for index, reply in said.items():
            if reply.done is not None:
                self._rows[index].session.method.report(reply.score)
                self._shares[self._whose.pop(index)] -= 1
        return said

    @property
    def waits(self) -> bool:
        """Whether any of them has not answered."""
        return any(self._unanswered)

    def unpacked(self, done: Completion) -> Completion:
        """With lists."""
        for name in _PACKED:
            setattr(done, name, getattr(done, name).tolist())
        return done

    def close(self) -> None:
        """End them."""
        for end in self._ends:
            end.close()
        self._first.join()

    def _desk_of(self, index: int) -> int:
        desk = self._whose.get(index)
        if desk is None:
            desk = self._whose[index] = self._shares.index(min(self._shares))
            self._shares[desk] += 1
        return desk

    def _send(self, i: int, message: tuple[str, Any]) -> None:
        try:
            self._ends[i].send(message)
        except OSError as error:
            raise _died(error) from None
        self._unanswered[i] += 1

    def _receive(self, i: int) -> Replies:
        try:
            answer = self._ends[i].recv()
        except (EOFError, OSError) as error:
            raise _died(error) from None
        self._unanswered[i] -= 1
        if isinstance(answer, BaseException):
            raise answer
        replies: Replies = answer
        return replies


class _Texts(NamedTuple):
    """Texts of tokens as one."""

    text: str
    ends: array[int]

    def tolist(self) -> list[str]:
        """The texts."""
        return [self.text[begin:end] for begin, end in pairwise([0, *self.ends])]


def _texts(texts: list[str]) -> _Texts:
    return _Texts("".join(texts), array("q", accumulate(map(len, texts))))


_PACKED: dict[str, Callable[[Any], Any]] = {
    "token_ids": partial(array, "q"),
    "token_texts": _texts,
    **dict.fromkeys(("entropies", "logprobs", "margins", "top_logprobs"), partial(array, "d")),
}
"""How lists are packed: on their way from one process to another they are taken apart many times faster."""


def _pack(done: Completion) -> None:
    for name, packed in _PACKED.items():
        setattr(done, name, packed(getattr(done, name)))


def _died(error: Exception) -> EngineError:
    return EngineError(f"a process that looks after rows has died ({error!r}): was there too little memory?")


def _work_with_others(pipes: list[tuple[Any, Any]], desk: Desk) -> None:
    """What the first process does: it forks the others, which takes a while that nobody else has to wait."""
    gc.freeze()  # what was there before is not these processes' to clear away
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    warnings.simplefilter("ignore")
    for here, _ in pipes:
        here.close()
    (_, own), *others = pipes
    for i, (_, end) in enumerate(others, 1):
        if os.fork() == 0:
            for _, other in (pipes[0], *pipes[i + 1 :]):
                other.close()
            try:
                _work(end, desk)
            finally:
                os._exit(0)
        end.close()
    _work(own, desk)
    with suppress(ChildProcessError):
        while True:
            os.wait()


def _work(end: Any, desk: Desk) -> None:
    """What a process does until the other end is closed."""
    inbox: SimpleQueue[tuple[str, Any] | None] = SimpleQueue()
    # By a thread of its own: whoever sends is never held up, and so never waits for one who waits for him.
    Thread(target=_read, args=(end, inbox), daemon=True).start()
    while (message := inbox.get()) is not None:
        name, what = message
        try:
            getattr(desk, name)(what)
            answer: Any = desk.replies()
            for reply in answer.values():
                if reply.done is not None:
                    _pack(reply.done)
        except Exception as error:
            answer = error
        try:
            end.send(answer)
        except OSError:
            return


def _read(end: Any, inbox: SimpleQueue[tuple[str, Any] | None]) -> None:
    while True:
        try:
            inbox.put(end.recv())
        except (EOFError, OSError):
            inbox.put(None)
            return
