"""The table of looks: where a method may stop along every trace, and what stopping there would come to.

Traces are walked once, by the method itself; after that any threshold, and any scorer, is arithmetic on arrays. Sweeps,
gates and calibration share the table and the one way to cut it. The result is exactly that of `replay`.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitcal_tts.halting.drift import NO_LOOK
from bitcal_tts.halting.features import NAMES
from bitcal_tts.traces.cut import Bools, Cut, Ints

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Stops:
    """Places where traces may be left, one row each: what leaving there costs and what it is worth."""

    tokens: Ints
    probe_tokens: Ints
    right: Bools
    same: Bools
    halted: Bools
    reasons: NDArray[np.str_]

    @classmethod
    def of(cls, rows: Sequence[tuple[int, int, bool, bool, bool, str]]) -> Stops:
        """From one tuple a row."""
        columns = list(zip(*rows, strict=True)) or [()] * 6
        whole, truth = np.int64, np.bool_
        kinds = (whole, whole, truth, truth, truth, np.str_)
        return cls(*(np.array(column, dtype=kind) for column, kind in zip(columns, kinds, strict=True)))

    def take(self, rows: Ints) -> Stops:
        """Some of them."""
        return Stops(*(getattr(self, field.name)[rows] for field in dataclasses.fields(self)))


@dataclass(frozen=True)
class CandidateRows:
    """Values that texts may stand for at their looks, one row each, in the order of the looks.

    Attributes:
        look: Which look a row is of.
        right: Whether the value is right, and so is what the model answers there, where that is known.
        same: Whether it is the one that the full trace ends with, likewise.
        vectors: What a scorer sees, in the order of `NAMES`.
    """

    look: Ints
    right: Bools
    same: Bools
    vectors: NDArray[np.float32]

    @classmethod
    def of(cls, rows: Sequence[tuple[int, bool, bool]], vectors: Sequence[NDArray[np.float32]]) -> CandidateRows:
        """From one tuple and one vector a row."""
        look, right, same = zip(*rows, strict=True) if rows else ((), (), ())
        return cls(
            np.array(look, dtype=np.int64),
            np.array(right, dtype=np.bool_),
            np.array(same, dtype=np.bool_),
            np.concatenate(vectors) if vectors else np.zeros((0, len(NAMES)), np.float32),
        )

    def __len__(self) -> int:
        return len(self.look)

    def label(self, name: str) -> Bools:
        """`gold`: right. `final`: what the full run ends with.

        "Right, or the full run is wrong anyway" would be the loss itself, and is worse: a scorer learns from it to give
        up early on items that look hopeless.
        """
        if name not in ("gold", "final"):
            raise ValueError(f"label must be gold or final, got {name!r}")
        return self.right if name == "gold" else self.same

    def of_looks(self, looks: Ints, n: int) -> CandidateRows:
        """Those of some of `n` looks, which are numbered anew in their order."""
        number = np.full(n, -1, dtype=np.int64)
        number[looks] = np.arange(len(looks))
        rows = np.nonzero(number[self.look] >= 0)[0]
        rows = rows[np.argsort(number[self.look[rows]], kind="stable")]
        return CandidateRows(number[self.look[rows]], self.right[rows], self.same[rows], self.vectors[rows])

    def best(self, scores: Floats) -> Ints:
        """The row with the highest score of each look; the first of equals."""
        highest = np.maximum.reduceat(scores, _first_of_each(self.look))
        rows = np.nonzero(scores == highest[self.look])[0]
        return rows[_first_of_each(self.look[rows])]


@dataclass(frozen=True)
class LookTable:
    """Looks, one row each, in the order of the traces; and how each trace ends where no look stops it.

    Attributes:
        trace: Which trace a look is of.
        at: Tokens so far.
        stops: What stopping at the look would come to.
        ends: Of each trace, where nothing stops it but its budget, a landing there, or a loop.
        full_tokens: Of the undisturbed trace.
        full_right: Whether the undisturbed trace is right.
        strict: Whether a score must lie above the threshold, not at it.
        scores: What the gate compares with its threshold.
        candidates: What the gate sees at its looks; empty where that was not asked for.
        read: Whether what a stop would answer is read off the text: it is then worth what the best candidate is.
    """

    trace: Ints
    at: Ints
    stops: Stops
    ends: Stops
    full_tokens: Ints
    full_right: Bools
    strict: bool
    scores: Floats
    candidates: CandidateRows
    read: bool = False

    def __len__(self) -> int:
        return len(self.trace)

    @property
    def n(self) -> int:
        """How many traces."""
        return len(self.full_right)

    def of(self, traces: Sequence[int] | Ints) -> LookTable:
        """The looks of some of the traces, which are numbered anew in their order."""
        chosen = np.asarray(traces, dtype=np.int64)
        number = np.full(self.n, -1, dtype=np.int64)
        number[chosen] = np.arange(len(chosen))
        rows = np.nonzero(number[self.trace] >= 0)[0]
        rows = rows[np.argsort(number[self.trace[rows]], kind="stable")]
        return LookTable(
            trace=number[self.trace[rows]],
            at=self.at[rows],
            stops=self.stops.take(rows),
            ends=self.ends.take(chosen),
            full_tokens=self.full_tokens[chosen],
            full_right=self.full_right[chosen],
            strict=self.strict,
            scores=self.scores[rows],
            candidates=self.candidates.of_looks(rows, len(self)),
            read=self.read,
        )

    @classmethod
    def joined(cls, tables: Sequence[LookTable]) -> LookTable:
        """Several tables as one, their traces numbered on."""
        offsets = np.cumsum([0, *(table.n for table in tables)])[:-1]

        def together(name: str) -> Any:
            return np.concatenate([getattr(table, name) for table in tables])

        def stops(name: str) -> Stops:
            parts = [getattr(table, name) for table in tables]
            return Stops(
                *(np.concatenate([getattr(part, f.name) for part in parts]) for f in dataclasses.fields(Stops))
            )

        return cls(
            trace=np.concatenate([table.trace + offset for table, offset in zip(tables, offsets, strict=True)]),
            at=together("at"),
            stops=stops("stops"),
            ends=stops("ends"),
            full_tokens=together("full_tokens"),
            full_right=together("full_right"),
            strict=tables[0].strict,
            scores=together("scores"),
            candidates=CandidateRows(
                np.concatenate(
                    [
                        table.candidates.look + offset
                        for table, offset in zip(tables, np.cumsum([0, *map(len, tables)])[:-1], strict=True)
                    ]
                ),
                *(
                    np.concatenate([getattr(table.candidates, name) for table in tables])
                    for name in ("right", "same", "vectors")
                ),
            ),
            read=tables[0].read,
        )

    def judged(self, scores_of: Callable[[NDArray[np.float32]], Floats]) -> LookTable:
        """The same looks with a scorer's scores; where stops are worth what is read off the text, with its choice."""
        if not len(self):
            return self
        scores = scores_of(self.candidates.vectors)
        best = self.candidates.best(scores)
        judged = dataclasses.replace(self, scores=scores[best])
        if not self.read:
            return judged
        right, same = self.candidates.right[best], self.candidates.same[best]
        # A loop ends a text with what it stood for at its last look.
        traces, last = np.unique(self.trace[::-1], return_index=True)
        looped = self.ends.halted[traces]
        at, look = traces[looped], len(self) - 1 - last[looped]
        ends = {"right": self.ends.right.copy(), "same": self.ends.same.copy()}
        ends["right"][at], ends["same"][at] = right[look], same[look]
        return dataclasses.replace(
            judged,
            stops=dataclasses.replace(self.stops, right=right, same=same),
            ends=dataclasses.replace(self.ends, **ends),
        )

    @classmethod
    def undisturbed(cls, tokens: int, right: bool, same: bool) -> LookTable:
        """One text that runs to its end, without a look."""
        return cls(
            trace=np.zeros(0, dtype=np.int64),
            at=np.zeros(0, dtype=np.int64),
            stops=Stops.of([]),
            ends=Stops.of([(tokens, 0, right, same, False, "")]),
            full_tokens=np.array([tokens], dtype=np.int64),
            full_right=np.array([right], dtype=np.bool_),
            strict=False,
            scores=np.zeros(0),
            candidates=CandidateRows.of([], []),
            read=True,
        )

    def with_looks(
        self, looks: Sequence[tuple[int, float]], stops: Sequence[tuple[int, int, bool, bool, bool, str]]
    ) -> LookTable:
        """The one text of this table with looks: tokens and score of each, and what stopping there comes to."""
        at, scores = zip(*looks, strict=True) if looks else ((), ())
        return dataclasses.replace(
            self,
            trace=np.zeros(len(looks), dtype=np.int64),
            at=np.array(at, dtype=np.int64),
            stops=Stops.of(stops),
            scores=np.array(scores, dtype=np.float64),
        )

    def cut(self, threshold: float | Floats) -> Cut:
        """What a gate does at a threshold, or at one for each trace: it stops at the first look that reaches it."""
        look = self.first_looks(threshold)
        early = look >= 0
        columns = {}
        for name in ("tokens", "probe_tokens", "right", "same", "halted", "reasons"):
            there, end = getattr(self.stops, name), getattr(self.ends, name)
            columns[name] = np.where(early, there[look], end) if len(self) else end
        return self._cut(**columns)

    def rising(self) -> LookTable:
        """Only the looks that score higher than all before them in their trace: no other can be the first to stop."""
        return self._bare(self._rises())

    def _rises(self) -> Bools:
        kept = np.zeros(len(self), dtype=np.bool_)
        starts = _first_of_each(self.trace)
        for start, end in itertools.pairwise([*starts.tolist(), len(self)]):
            scores = self.scores[start:end]
            before = np.concatenate(([-np.inf], np.maximum.accumulate(scores)[:-1]))
            kept[start:end] = scores > before
        return kept

    def condensed(self) -> LookTable:
        """The rising looks, and the first right and the first same one of each trace: some ten of a hundred.

        Any threshold stops where it did, and so does one who knows the answers.
        """
        kept = self._rises()
        for good in (self.stops.right, self.stops.same):
            rows = np.nonzero(good)[0]
            kept[rows[_first_of_each(self.trace[rows])]] = True
        return self._bare(kept)

    def _bare(self, kept: Bools) -> LookTable:
        """Some of the looks, without their candidates."""
        return dataclasses.replace(self, candidates=CandidateRows.of([], [])).only(np.nonzero(kept)[0])

    def only(self, looks: Ints) -> LookTable:
        """Some of the looks of the same traces."""
        return dataclasses.replace(
            self,
            trace=self.trace[looks],
            at=self.at[looks],
            stops=self.stops.take(looks),
            scores=self.scores[looks],
            candidates=self.candidates.of_looks(looks, len(self)),
        )

    def with_guard(self, traces: Bools) -> LookTable:
        """The same, the loop guard being heeded in some traces only: the others run to their end."""
        full = self.full()
        columns = {
            name: np.where(traces, getattr(self.ends, name), getattr(full, "correct" if name == "right" else name))
            for name in ("tokens", "probe_tokens", "right", "same", "halted", "reasons")
        }
        return dataclasses.replace(self, ends=Stops(**columns))

    def handing_over(self, right: Bools, tokens: Ints) -> LookTable:
        """The same where whatever no look stops is handed to somebody: who is right, at so many tokens more.

        Only a stop can lose something then, and loses it where they would have been right.
        """
        nobody = np.zeros(self.n, dtype=np.bool_)
        ends = dataclasses.replace(
            self.ends, right=right, same=~nobody, halted=nobody, reasons=np.full(self.n, ""),
            tokens=self.ends.tokens + tokens,
        )  # fmt: skip
        return dataclasses.replace(self, ends=ends, full_right=right, full_tokens=tokens)

    def places(self, thresholds: Floats) -> Ints:
        """Tokens at which each trace is stopped by a threshold of its own, without a landing; 0 where it is not."""
        look = self.first_looks(thresholds)
        return np.where(look >= 0, self.at[look], 0) if len(self) else np.zeros(self.n, dtype=np.int64)

    def full(self) -> Cut:
        """What the undisturbed traces come to."""
        n = self.n
        return self._cut(
            tokens=self.full_tokens,
            probe_tokens=np.zeros(n, dtype=np.int64),
            right=self.full_right,
            same=np.ones(n, dtype=np.bool_),
            halted=np.zeros(n, dtype=np.bool_),
            reasons=np.full(n, ""),
        )

    def _cut(self, *, right: Bools, **columns: Any) -> Cut:
        return Cut(**columns, correct=right, full_tokens=self.full_tokens, full_correct=self.full_right)

    def first_looks(self, threshold: float | Floats) -> Ints:
        """The look at which each trace is stopped, or -1."""
        bar = threshold[self.trace] if isinstance(threshold, np.ndarray) else threshold
        hits = np.nonzero(self.scores > bar if self.strict else self.scores >= bar)[0]
        first = hits[_first_of_each(self.trace[hits])]
        look = np.full(self.n, -1, dtype=np.int64)
        look[self.trace[first]] = first
        return look

    def first_scores(self) -> Floats:
        """The score at the first look of each trace, `NO_LOOK` where it has none: what drift is watched by."""
        first = _first_of_each(self.trace)
        watched = np.full(self.n, NO_LOOK)
        watched[self.trace[first]] = self.scores[first]
        return watched

    def score_values(self) -> Floats:
        """Every score that a threshold could be put at, in rising order."""
        return np.unique(self.scores[np.isfinite(self.scores)])


def _first_of_each(owners: Ints) -> Ints:
    """Of rows that stand in the order of their owners, the first of each owner."""
    return np.flatnonzero(np.diff(owners, prepend=-1))
