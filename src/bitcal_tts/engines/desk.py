"""The host's side of decoding: rows take what the device wrote for them, and say what is to be done."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from bitcal_tts.engines.base import Completion, Fork
from bitcal_tts.engines.row import Row
from bitcal_tts.halting.controller import Probe
from bitcal_tts.halting.session import Ask, Force


class Lines(NamedTuple):
    """What rows wrote, a line each, in their order."""

    rows: Sequence[int]
    """Which they are."""
    ids: NDArray[np.int64]
    signals: NDArray[np.float32]
    cosines: NDArray[np.float32] | None
    """At a boundary; NaN where a row has nothing to be compared with."""
    hidden: NDArray[np.float32] | None
    boundary: bool

    def part(self, of: Sequence[int]) -> Lines:
        """Some of the lines."""
        some = list(of)
        cosines = None if self.cosines is None else self.cosines[some]
        hidden = None if self.hidden is None else self.hidden[some]
        return Lines([self.rows[i] for i in some], self.ids[some], self.signals[some], cosines, hidden, self.boundary)


@dataclass(frozen=True)
class Reply:
    """What a row says: exactly one of these, or nothing at all where it goes on.

    Attributes:
        asks: What it wants to know of the model.
        lands: Tokens to append to the first `at` of its response.
        done: It is over.
        score: What a monitor of drift is to be told of a row that is over.
    """

    asks: Fork | None = None
    lands: list[int] | None = None
    at: int = 0
    done: Completion | None = None
    score: float | None = None


Replies = dict[int, Reply]
"""By row."""


class Host(Protocol):
    """Whoever looks after the rows."""

    def take(self, lines: Lines, meanwhile: Callable[[], None]) -> Replies:
        """What those rows say that do not simply go on; `meanwhile` is done before they are waited for."""
        ...

    def tell(self, probes: dict[int, Probe]) -> Replies:
        """The same after rows were told what they had asked."""
        ...

    def close(self) -> None:
        """Give back what it holds."""
        ...


class Desk:
    """Rows looked after in this process.

    Args:
        rows: All of them; they are known by their place here.
        eos: Tokens that end a row.
    """

    def __init__(self, rows: Sequence[Row], eos: frozenset[int]) -> None:
        self._rows, self._eos = rows, eos

    def take(self, lines: Lines, meanwhile: Callable[[], None] = lambda: None) -> Replies:
        """Let rows take what they wrote."""
        meanwhile()
        ids, signals = lines.ids.tolist(), lines.signals.swapaxes(1, 2).tolist()
        cosines: list[Any] = [None] * len(ids) if lines.cosines is None else lines.cosines.tolist()
        replies: Replies = {}
        for line, index in enumerate(lines.rows):
            row = self._rows[index]
            if lines.hidden is not None and not row.lands:
                row.done.hidden.append(lines.hidden[line])
            cosine = cosines[line]
            cosine = None if cosine is None or cosine != cosine else cosine
            row.take(ids[line], signals[line], self._eos, cosine, boundary=lines.boundary)
            self._reply(index, replies)
        return replies

    def tell(self, probes: dict[int, Probe]) -> Replies:
        """Answer rows."""
        replies: Replies = {}
        for index, probe in probes.items():
            self._rows[index].tell(probe)
            self._reply(index, replies)
        return replies

    def close(self) -> None:
        """Nothing is held."""

    def _reply(self, index: int, replies: Replies) -> None:
        row = self._rows[index]
        if row.over:
            replies[index] = Reply(done=row.close(), score=row.session.method.reported)
        elif isinstance(row.directive, Ask):
            replies[index] = Reply(asks=row.fork())
        elif isinstance(row.directive, Force):
            at = len(row.done.token_ids)
            replies[index] = Reply(lands=row.land(), at=at)
