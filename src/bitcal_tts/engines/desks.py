"""Rows looked after by several processes: what a method does with a token is Python, and would hold a GPU up."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from bitcal_tts.engines.base import EngineError
from bitcal_tts.engines.desk import Desk, Host, Lines, Replies
from bitcal_tts.engines.row import Row
from bitcal_tts.halting.controller import Probe

_ROWS_EACH = 8  # rows in flight that are worth a process
_MOST = 24


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
    process does. What a session would have told others, here it tells: drift is watched in this process.
    """

    def __init__(self, rows: Sequence[Row], eos: frozenset[int], processes: int) -> None:
        self._rows = rows
        context = multiprocessing.get_context("fork")
        self._ends: list[Any] = []
        self._processes = []
        for _ in range(processes):
            here, there = context.Pipe()
            process = context.Process(target=_work, args=(there, Desk(rows, eos), [*self._ends, here]), daemon=True)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # threads there are, but none that a desk needs
                process.start()
            there.close()
            self._ends.append(here)
            self._processes.append(process)

    def take(self, lines: Lines, meanwhile: Callable[[], None]) -> Replies:
        """Each its share, all at once."""
        shares: list[list[int]] = [[] for _ in self._ends]
        for line, index in enumerate(lines.rows):
            shares[index % len(self._ends)].append(line)
        return self._ask([("take", lines.part(share)) if share else None for share in shares], meanwhile)

    def tell(self, probes: dict[int, Probe]) -> Replies:
        """Each its share."""
        shares: list[dict[int, Probe]] = [{} for _ in self._ends]
        for index, probe in probes.items():
            shares[index % len(self._ends)][index] = probe
        return self._ask([("tell", share) if share else None for share in shares])

    def close(self) -> None:
        """End them."""
        for end in self._ends:
            end.close()
        for process in self._processes:
            process.join()

    def _ask(self, messages: Sequence[tuple[str, Any] | None], meanwhile: Callable[[], None] = lambda: None) -> Replies:
        asked = [end for end, message in zip(self._ends, messages, strict=True) if message is not None]
        try:
            for end, message in zip(self._ends, messages, strict=True):
                if message is not None:
                    end.send(message)
            meanwhile()
            answers = [end.recv() for end in asked]
        except (EOFError, OSError) as error:
            raise EngineError(
                f"a process that looks after rows has died ({error!r}): was there too little memory?"
            ) from None
        replies: Replies = {}
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
            replies |= answer
        for index, reply in replies.items():
            if reply.done is not None:
                self._rows[index].session.method.report(reply.score)
        return replies


def _work(end: Any, desk: Desk, others: list[Any]) -> None:
    """What a process does until the other end is closed."""
    gc.freeze()  # what was there before is not this process's to clear away
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    warnings.simplefilter("ignore")
    for other in others:
        other.close()
    while True:
        try:
            name, message = end.recv()
        except (EOFError, OSError):
            return
        try:
            answer: Any = getattr(desk, name)(message)
        except Exception as error:
            answer = error
        try:
            end.send(answer)
        except OSError:
            return
