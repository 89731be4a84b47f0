"""One controlled generation: the upstream's stream through a session, the landing of a stop, and the account."""

from __future__ import annotations

import math
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from functools import partial
from itertools import repeat
from threading import Event
from typing import Any

from anyio import to_thread

from bitcal_tts.engines.base import Decoding, Place, Written
from bitcal_tts.engines.flight import as_tokens
from bitcal_tts.engines.http import GREEDY
from bitcal_tts.engines.wire import Piece, Prompt, ServerError, Standing
from bitcal_tts.halting.controller import Probe
from bitcal_tts.halting.exchange import Ask, Directive, End, Force, SessionOutcome, Tokens, WouldBe
from bitcal_tts.halting.handing import is_handed_over
from bitcal_tts.halting.policy import Action
from bitcal_tts.halting.stopping import answer_of, stopped
from bitcal_tts.serving.course import Course
from bitcal_tts.serving.upstream import Upstream

_FEW = 2
"""Likeliest tokens that are asked for where nobody reads them: a server sorts for each, and writes them out."""


class Generation:
    """A request that is controlled.

    Args:
        upstream: Decodes.
        course: Decides.
        prompt: What the model goes on with.
        decoding: How tokens are chosen.
        seed: Of this request.
        second: Another server, and the prompt as it takes it, for requests that are escalated; asked for where one is.
    """

    def __init__(
        self,
        upstream: Upstream,
        course: Course,
        prompt: Prompt,
        decoding: Decoding,
        seed: int,
        second: Callable[[], tuple[Upstream, Prompt]] | None = None,
    ) -> None:
        self._second = second
        self.escalated_tokens: int | None = None
        """Tokens that a second server wrote; None where nothing was escalated."""
        self._escalated_text = ""
        self._upstream, self.course, self._session, self.prompt = upstream, course, course.session, prompt
        self._decoding, self._seed = decoding, seed
        self._reads = course.session.signals.distribution != "absent"
        self._seen: list[tuple[str, float | None, bool]] = []
        self._took = 0.0
        self._ids: list[int] = []
        self._texts: list[str] = []

    @property
    def cap(self) -> int:
        """Most tokens, thinking and answer together."""
        return self.course.cap or self._share

    @property
    def _share(self) -> int:
        """Of these, what the first server may write."""
        return int(self._session.method.parameters.budget)

    def leave(self) -> None:
        """It has come to its end, or has been given up."""
        self.course.leave(self)

    @property
    def outcome(self) -> SessionOutcome:
        """How it went, once it has ended."""
        return self._session.outcome

    async def texts(self) -> AsyncGenerator[str, None]:
        """The text of the answer as it comes, landing included."""
        directive: Directive | None = None
        top = self._upstream.engine.top if self._reads else _FEW
        stream = self._upstream.stream(
            Standing(self.prompt, (), ""), limit=self._share, top=top, decoding=self._decoding, seed=self._seed
        )
        async with stream as pieces:
            async for piece in pieces:
                directive = self._take(piece)
                yield piece.text
                while isinstance(directive, Ask):
                    directive = self._session.tell((await self._probe(directive)).probe())
                if isinstance(directive, End | Force):
                    break
        escalates = isinstance(directive, End | Force) and self._escalates(directive)
        if isinstance(directive, Force) and not escalates:
            async for text in self._land(directive):
                yield text
            return
        self._session.end()
        if escalates:
            async for text in self._escalate():
                yield text

    @property
    def used(self) -> int:
        """Tokens of the whole answer."""
        return self.outcome.tokens + (self.escalated_tokens or 0)

    @property
    def answer(self) -> str | None:
        """What the whole of it answers."""
        if self.escalated_tokens is None:
            return self.outcome.answer
        return answer_of(self.outcome.text + self._escalated_text, self._session.method.parameters)

    @property
    def cut(self) -> bool:
        """Whether its cap ended it."""
        return self.outcome.finish == "budget" if self.escalated_tokens is None else self.used >= self.cap

    def _escalates(self, directive: End | Force) -> bool:
        """Whether a method gives a request up; or has not settled it by the end of the first server's share."""
        if self._second is None or directive.at >= self.cap:
            return False
        gives_up = directive.decision is not None and directive.decision.action is Action.ESCALATE
        return gives_up or (self.course.cap is not None and is_handed_over(directive.decision))

    async def _escalate(self) -> AsyncIterator[str]:
        """The second server goes on with the same text, under the same cap."""
        assert self._second is not None
        upstream, prompt = await to_thread.run_sync(self._second)
        changed = await upstream.changed()
        if changed is not None:
            raise ServerError(f"what is escalated is not taken: {changed}")
        text = self.outcome.text
        ids = await to_thread.run_sync(upstream.engine.encode, text)
        self.escalated_tokens = 0
        stream = upstream.stream(
            Standing(prompt, ids, text), limit=self.cap - self.used, top=_FEW, decoding=self._decoding, seed=self._seed
        )
        async with stream as pieces:
            async for piece in pieces:
                self.escalated_tokens += len(piece.ids)
                self._escalated_text += piece.text
                self._seen.append((piece.text, None, False))
                yield piece.text

    def _take(self, piece: Piece) -> Directive:
        began, engine = time.perf_counter(), self._upstream.engine
        tokens = as_tokens(piece, engine.vocabulary, full=engine.is_full) if self._reads else _as_text(piece)
        entropies: Sequence[float | None] = tokens.entropies or [None] * len(tokens.texts)
        self._seen += zip(tokens.texts, entropies, repeat(False), strict=False)
        self._ids += piece.ids
        self._texts += tokens.texts
        directive = self._session.feed(tokens)
        self._took += time.perf_counter() - began
        return directive

    def took(self) -> float:
        """Seconds that reading and judging has taken since this was last asked."""
        took, self._took = self._took, 0.0
        return took

    def seen(self) -> dict[str, Any]:
        """What is new: tokens, their entropies and whether they are landing; looks with their scores, and the bar."""
        tokens, self._seen = self._seen, []
        looks = self.course.looks[:]
        self.course.looks.clear()
        threshold = getattr(self._session.method.parameters, "threshold", None)
        bar = threshold if threshold is not None and math.isfinite(threshold) else None
        return {"tokens": tokens, "looks": looks, "threshold": bar}

    async def _land(self, directive: Force) -> AsyncIterator[str]:
        """The upstream's stream is closed; the landing is appended, and the model goes on greedily after it."""
        closing, cue = directive.landing
        forced = [await self._encoded(text) for text in (closing, cue)]
        for ids, text in zip(forced, (closing, cue), strict=True):
            if ids:
                self._session.feed(Tokens([text, *[""] * (len(ids) - 1)]), forced=True)
        self._seen.append((closing + cue, None, True))
        yield closing + cue
        before = self._standing(directive.at)
        landed = Standing(self.prompt, [*before.ids, *forced[0], *forced[1]], before.text + closing + cue)
        left = directive.room - len(forced[0]) - len(forced[1])
        stream = self._upstream.stream(landed, limit=max(1, left), top=_FEW, decoding=GREEDY, seed=0)
        ended: Directive | None = None
        async with stream as pieces:
            async for piece in pieces:
                began = time.perf_counter()
                ended = self._session.feed(_as_text(piece))
                self._took += time.perf_counter() - began
                self._seen.append((piece.text, None, True))
                yield piece.text
                if isinstance(ended, End):
                    return
        self._session.end()

    async def _probe(self, directive: Ask | WouldBe, *, entropy: bool = True) -> Written:
        """What the model would answer here, by a request aside."""
        place = Place.of(directive, self._session.method.parameters.format)
        write, stopped = partial(self._upstream.engine.write, entropy=entropy), Event()
        try:
            return await to_thread.run_sync(write, self._standing(directive.at), place, stopped, abandon_on_cancel=True)
        finally:
            stopped.set()

    async def if_stopped(self, where: WouldBe) -> tuple[int, str | None, int]:
        """Tokens and answer of a stop that was not made, and tokens that finding out took."""
        probe = None if where.landing is None else (await self._probe(where, entropy=False)).probe()

        def written() -> Probe:
            assert probe is not None
            return probe

        text = partial("".join, self._texts[: where.at])
        tokens, answer = stopped(where, text, written, self._session.method.parameters)
        return tokens, answer, 0 if probe is None else probe.n_tokens

    def _standing(self, at: int) -> Standing:
        return Standing(self.prompt, self._ids[:at], "".join(self._texts[:at]))

    async def _encoded(self, text: str) -> list[int]:
        encode: Callable[[str], list[int]] = self._upstream.engine.encode
        return await to_thread.run_sync(encode, text)


def _as_text(piece: Piece) -> Tokens:
    """A piece without what the server tells of its likelihood."""
    return Tokens([piece.text, *[""] * (len(piece.ids) - 1)])


def account(generation: Generation) -> dict[str, Any]:
    """What a response says of the control: why it ended, and that its cap was kept."""
    outcome, p = generation.outcome, generation.course.session.method.parameters
    decision, admitted = outcome.decision, generation.course.admitted
    return {
        "method": generation.course.method,
        "reason": outcome.reason,
        "step": None if decision is None else decision.tokens,
        "score": None if decision is None else decision.score,
        "answer": generation.answer,
        "cap": generation.cap,
        "used": generation.used,
        "reserve": getattr(p, "reserve", 0) or 0,
        "honoured": generation.used <= generation.cap,
        "probe_tokens": outcome.probe_tokens,
        "landing_tokens": outcome.landing_tokens,
        "escalated": generation.escalated_tokens is not None,
        "escalated_tokens": generation.escalated_tokens or 0,
        **({} if admitted is None else {"autopilot": {"phase": admitted.phase, "role": admitted.role}}),
    }
