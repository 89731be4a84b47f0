"""The host's side of decoding: rows take what the device wrote for them, and say what is to be done."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from bitcal_tts.engines.base import Completion, Fork
from bitcal_tts.engines.row import Row
from bitcal_tts.halting.controller import Probe
from bitcal_tts.halting.exchange import Ask, Force, Weigh


class Lines(NamedTuple):
    """What rows wrote, a line each, in their order."""

    rows: Sequence[int]
    """Which they are."""
    lands: Sequence[bool]
    """Of each whether it was writing what a landing asks for: otherwise a row that lands by now has been cut back."""
    ids: NDArray[np.int64]
    signals: NDArray[np.float32]
    cosines: NDArray[np.float32]
    """Of rows that have come to a boundary; NaN where a row has not, or has nothing to be compared with."""
    hidden: NDArray[np.float32] | None
    """There; of the others anything."""
    by: int
    """Steps that the device had been given by then."""

    def part(self, of: Sequence[int]) -> Lines:
        """Some of the lines."""
        some = list(of)
        rows, lands = [self.rows[i] for i in some], [self.lands[i] for i in some]
        return self._cut(rows, lands, some)

    def run(self, some: slice) -> Lines:
        """Lines that lie one behind the other."""
        return self._cut(self.rows[some], self.lands[some], some)

    def _cut(self, rows: Sequence[int], lands: Sequence[bool], some: list[int] | slice) -> Lines:
        hidden = None if self.hidden is None else self.hidden[some]
        return Lines(rows, lands, self.ids[some], self.signals[some], self.cosines[some], hidden, self.by)


@dataclass(frozen=True)
class Reply:
    """What a row says: exactly one of these, or nothing at all where it goes on.

    Attributes:
        asks: What it wants to know of the model.
        lands: Tokens to append to the first `at` of its response.
        done: It is over.
        score: What a monitor of drift is to be told of a row that is over.
        by: Steps that the device had been given when it wrote the last of what this rests on.
    """

    asks: Fork | None = None
    lands: list[int] | None = None
    at: int = 0
    done: Completion | None = None
    score: float | None = None
    by: int = 0


Replies = dict[int, Reply]
"""By row."""


class Host(Protocol):
    """Whoever looks after the rows."""

    def take(self, lines: Lines) -> None:
        """Hand over what rows wrote."""
        ...

    def tell(self, probes: dict[int, Probe]) -> None:
        """Answer what rows have asked."""
        ...

    def replies(self, patient: Callable[[], bool]) -> Replies:
        """What rows have said since the last time that do not simply go on.

        What was handed over last is waited for as long as `patient` says so, and what was before it in any case.
        """
        ...

    def unpacked(self, done: Completion) -> Completion:
        """A completion of a reply as it is to be handed on."""
        ...

    @property
    def waits(self) -> bool:
        """Whether anything that was handed over has not been answered."""
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
        self._said: Replies = {}
        self._by = 0
        self._weighing: list[tuple[int, Weigh]] = []
        self._later: dict[int, deque[_Line]] = {}
        """What was written by rows that ask: they take nothing before they are told."""

    waits = False

    def take(self, lines: Lines) -> None:
        """Let rows take what they wrote."""
        self._by = lines.by
        ids, signals = lines.ids.tolist(), lines.signals.swapaxes(1, 2).tolist()
        for i, (index, lands, cosine) in enumerate(zip(lines.rows, lines.lands, lines.cosines.tolist(), strict=True)):
            known = None if cosine != cosine else cosine
            hidden = None if lines.hidden is None else lines.hidden[i].copy()  # the memory will be written to again
            line = _Line(ids[i], signals[i], known, hidden, lands)
            if index in self._later:
                self._later[index].append(line)
            else:
                self._take(index, line)
        self._weigh()

    def tell(self, probes: dict[int, Probe]) -> None:
        """Answer rows, and let them take what they wrote meanwhile."""
        for index, probe in probes.items():
            self._rows[index].tell(probe)
            later = self._later.pop(index, deque())
            self._heed(index)
            self._weigh()
            while later and index not in self._later:
                self._take(index, later.popleft())
                self._weigh()
            if later:
                self._later[index] = later

    def replies(self, patient: Callable[[], bool] = lambda: True) -> Replies:
        """What rows have said."""
        said, self._said = self._said, {}
        return said

    def unpacked(self, done: Completion) -> Completion:
        """It is."""
        return done

    def close(self) -> None:
        """Nothing is held."""

    def _take(self, index: int, line: _Line) -> None:
        row = self._rows[index]
        if row.over or row.lands != line.lands:
            return  # it was decoded before what came to an end was found out
        row.take(line.ids, line.signals, self._eos, line.cosine, line.hidden)
        self._heed(index)

    def _heed(self, index: int) -> None:
        """Note what a row says."""
        row = self._rows[index]
        if row.over:
            self._said[index] = Reply(done=row.close(), score=row.session.method.reported, by=self._by)
        elif isinstance(row.directive, Ask):
            self._said[index] = Reply(asks=row.fork(), by=self._by)
            self._later[index] = deque()
        elif isinstance(row.directive, Weigh):
            self._weighing.append((index, row.directive))
        elif isinstance(row.directive, Force):
            at = len(row.done.token_ids)
            self._said[index] = Reply(lands=row.land(), at=at, by=self._by)

    def _weigh(self) -> None:
        """Have looks judged, those of all rows together, until none is left."""
        while self._weighing:
            looks: dict[int, list[tuple[int, Weigh]]] = {}
            for index, directive in self._weighing:
                looks.setdefault(id(directive.profile), []).append((index, directive))
            self._weighing = []
            for some in looks.values():
                judged = iter(some[0][1].profile.judge_all([look for _, directive in some for look in directive.looks]))
                for index, directive in some:
                    self._rows[index].weighed(list(islice(judged, len(directive.looks))))
                    self._heed(index)


class _Line(NamedTuple):
    """What one row wrote."""

    ids: list[int]
    signals: list[list[float]]
    cosine: float | None
    hidden: NDArray[np.float32] | None
    lands: bool
