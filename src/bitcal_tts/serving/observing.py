"""A request that runs to its end, as `settled` would have seen it: where it could have been stopped."""

from __future__ import annotations

from typing import Any

import numpy as np

from bitcal_tts.calibration.recording import Walker
from bitcal_tts.halting.answers import AnswerFormat
from bitcal_tts.halting.controller import Decision
from bitcal_tts.halting.exchange import WouldBe
from bitcal_tts.halting.session import Session
from bitcal_tts.halting.values import KINDS, Look, as_text
from bitcal_tts.traces.looks import CandidateRows, LookTable, Stops


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
        tokens, rows, vectors = self.session.outcome.tokens, [], []
        known: dict[Any, bool] = {}
        kind = KINDS.get(self._format.values or "")
        for i, look in enumerate(self._looks):
            vectors.append(look.rows)
            for value in look.values or [None]:
                if value not in known:
                    known[value] = self.is_same(None if value is None else as_text(value, kind))
                rows.append((i, known[value], known[value]))
        end = (tokens, False, "") if self.forced is None else (self.forced.at, True, "forced")
        return LookTable(
            trace=np.zeros(len(self.places), dtype=np.int64),
            at=np.array([place.at for place in self.places], dtype=np.int64),
            stops=Stops.of([(place.at, 0, False, False, True, "settled") for place in self.places]),
            ends=Stops.of([(end[0], 0, True, True, *end[1:])]),
            full_tokens=np.array([tokens], dtype=np.int64),
            full_right=np.ones(1, dtype=np.bool_),
            strict=False,
            scores=np.zeros(len(self.places)),
            candidates=CandidateRows.of(rows, vectors),
            read=True,
        )

    @property
    def _format(self) -> AnswerFormat:
        format: AnswerFormat = self.session.method.parameters.format
        return format
