"""What stops of a request that ran to its end would have come to, found out by side requests."""

from __future__ import annotations

from collections.abc import Sequence

from anyio import to_thread

from bitcal_tts.halting.exchange import WouldBe
from bitcal_tts.serving.course import Ended
from bitcal_tts.serving.observing import Observed
from bitcal_tts.serving.rounds import Round, Trial
from bitcal_tts.traces.looks import LookTable


class Trying:
    """One request; the model is made to answer at a place once, whoever wants to know.

    Args:
        observed: What there was to see of it.
        ended: Can be asked.
    """

    def __init__(self, observed: Observed, ended: Ended) -> None:
        self._observed, self._ended = observed, ended
        self.spent = 0
        """Tokens that finding out has taken."""
        self._found: dict[WouldBe, tuple[int, str | None]] = {}
        self._answers: dict[int, str | None] = {}
        self._table: LookTable | None = None

    async def ask(self, looks: Sequence[int]) -> None:
        """Have it answer at some of its looks."""
        for look in looks:
            _, self._answers[look] = await self._stopped(self._observed.places[look])

    def learned(self) -> LookTable:
        """The looks at which it was asked, worth what it answered there."""
        return self._observed.asked(self._answers)

    async def trial(self, of: Round, wanted: range) -> Trial:
        """What each of the wanted thresholds would have done to it."""
        judged = await to_thread.run_sync(lambda: self._looks().judged(of.scorer.scores))
        full = int(judged.full_tokens[0])
        trial = Trial([None] * len(of.thresholds), [None] * len(of.thresholds), full, float(judged.first_scores()[0]))
        for which in wanted:
            look = int(judged.first_looks(of.thresholds[which])[0])
            where = self._observed.places[look] if look >= 0 else self._observed.forced
            if where is None:
                trial.lost[which], trial.cost[which] = False, full
                continue
            tokens, answer = await self._stopped(where)
            if look >= 0:
                self._answers[look] = answer
            trial.lost[which], trial.cost[which] = not self._observed.is_same(answer), tokens
        return trial

    def _looks(self) -> LookTable:
        if self._table is None:
            self._table = self._observed.table()
        return self._table

    async def _stopped(self, where: WouldBe) -> tuple[int, str | None]:
        """Tokens and answer of a stop there."""
        if where not in self._found:
            tokens, answer, spent = await self._ended.if_stopped(where)
            self.spent += spent
            self._found[where] = tokens, answer
        return self._found[where]
