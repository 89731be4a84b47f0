"""A request that runs to its end, as `settled` would have seen it: where it could have been stopped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bitcal_tts.calibration.recording import Walker
from bitcal_tts.halting.answers import AnswerFormat
from bitcal_tts.halting.controller import Decision
from bitcal_tts.halting.exchange import WouldBe
from bitcal_tts.halting.session import Session
from bitcal_tts.halting.values import KINDS, Look, as_text
from bitcal_tts.traces.looks import CandidateRows, LookTable, Stops


def spread(n: int, most: int, phase: float) -> list[int]:
    """Some of so many looks, at even distances from one another.

    Args:
        n: Looks.
        most: How many of them at most.
        phase: From 0 to 1: where the first of them lies.
    """
    return list(range(n)) if n <= most else [int((i + phase) * n / most) for i in range(most)]


class Observed:
    """Looks of a request at which nothing is decided.

    Args:
        method: Looks.
        **options: Of its session.
    """

    def __init__(self, method: Walker, **options: Any) -> None:
        self.places: list[WouldBe] = []
        self.forced: WouldBe | None = None
        """Where the budget's reserve or a loop would have ended it."""
        self._looks: list[Look] = []
        self._known: dict[Any, bool] = {}
        self._question: str | None = options.get("question")
        self.session = Session(method, watch=self._note, heed=False, **options)

    def _note(self, decision: Decision) -> None:
        if self.forced is not None:
            return
        if decision.score is not None:
            assert isinstance(self.session.method, Walker)
            self._looks.append(self.session.method.seen)
            self.places.append(self.session.stop_here())
        if decision.halts:
            self.forced = self.session.stop_here()

    def text(self) -> tuple[str | None, str]:
        """What was asked, and all that was written."""
        return self._question, self.session.outcome.text

    def is_same(self, answer: str | None) -> bool:
        """Whether an answer is the one that it ended with; where it has none, nothing can be lost."""
        same: bool = self._format.keeps(answer, self.session.outcome.answer)
        return same

    def table(self) -> LookTable:
        """What there was to see, without a word of the text; what a stop would answer is read off it."""
        return self._table(range(len(self._looks)), None)

    def asked(self, answers: Mapping[int, str | None]) -> LookTable:
        """Only the looks at which the model was made to answer: they are worth what it answered there."""
        return self._table(sorted(answers), {look: self.is_same(answer) for look, answer in answers.items()})

    def _table(self, looks: Sequence[int], same: Mapping[int, bool] | None) -> LookTable:
        """Some of the looks, and whether a stop at each answers what the request ended with, where that is known."""
        tokens, rows, vectors = self.session.outcome.tokens, [], []
        for number, i in enumerate(looks):
            vectors.append(self._looks[i].rows)
            values = self._looks[i].values or [None]
            for value in values:
                # Where the model was asked its answer counts, and only with the value that it gave.
                good = self._is_final(value) if same is None else same[i] and (len(values) < 2 or self._is_final(value))
                rows.append((number, good, good))
        places = [self.places[i] for i in looks]
        known = [same is not None and same[i] for i in looks]
        end = (tokens, False, "") if self.forced is None else (self.forced.at, True, "forced")
        return LookTable(
            trace=np.zeros(len(places), dtype=np.int64),
            at=np.array([place.at for place in places], dtype=np.int64),
            stops=Stops.of(
                [(place.at, 0, good, good, True, "settled") for place, good in zip(places, known, strict=True)]
            ),
            ends=Stops.of([(end[0], 0, True, True, *end[1:])]),
            full_tokens=np.array([tokens], dtype=np.int64),
            full_right=np.ones(1, dtype=np.bool_),
            strict=False,
            scores=np.zeros(len(places)),
            candidates=CandidateRows.of(rows, vectors),
            read=same is None,
        )

    def _is_final(self, value: Any) -> bool:
        """Whether a value is what the request ended with."""
        if value not in self._known:
            text = None if value is None else as_text(value, KINDS.get(self._format.values or ""))
            self._known[value] = self.is_same(text)
        return self._known[value]

    @property
    def _format(self) -> AnswerFormat:
        format: AnswerFormat = self.session.method.parameters.format
        return format
