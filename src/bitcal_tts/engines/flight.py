"""One request on its way to a server and back: its stream, its session, and what has come."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

from bitcal_tts.engines.base import Completion, Decoding, Place, Request, Written
from bitcal_tts.engines.wire import Piece, ServerError, Standing
from bitcal_tts.halting.exchange import Ask, Directive, End, Force, Tokens
from bitcal_tts.halting.session import Session
from bitcal_tts.halting.signals import from_top

if TYPE_CHECKING:
    from bitcal_tts.engines.http import HttpEngine


def as_tokens(piece: Piece, vocabulary: int, *, full: bool) -> Tokens:
    """A piece as a session is fed it.

    Args:
        piece: As it came.
        vocabulary: How many tokens there are in all.
        full: Whether all of them were told of.
    """
    if not piece.likeliest or piece.logprob is None:
        raise ServerError("the server sends no log-probabilities with its tokens: start it so that it does")
    known, n = from_top(piece.likeliest, vocabulary), len(piece.ids)
    rest: list[Any] = [None] * (n - 1)  # tokens inside a character come together, and are told of once
    margin: Any = known.margin
    top: Any = known.top_logprob
    return Tokens(
        [piece.text, *[""] * (n - 1)],
        [known.entropy, *rest],
        [piece.logprob, *rest],
        [margin, *rest],
        [top, *rest],
        missing=None if full else [known.missing] * n,
    )


class Flight:
    """A request in flight.

    Args:
        engine: Knows the server.
        request: What is decoded.
        session: Decides.
        standing: Its prompt, and the prefix.
        decoding: How tokens are chosen.
        stopped: Set where nobody waits for it any more.
    """

    def __init__(
        self,
        engine: HttpEngine,
        request: Request,
        session: Session,
        standing: Standing,
        decoding: Decoding,
        stopped: threading.Event,
    ) -> None:
        self._engine, self._request, self._session, self._standing = engine, request, session, standing
        self._decoding, self._stopped = decoding, stopped
        self._done = Completion(request.id, standing.prompt.tokens + len(standing.ids))

    def run(self) -> Completion:
        """Decode to the end, or to where the session ends it."""
        seed = (self._decoding.seed * 1_000_003 + self._request.seed) % 2**31
        stream = self._engine.stream(self._standing, self._request.budget, self._decoding, seed)
        directive: Directive | None = None
        began = time.perf_counter()
        with stream as pieces:
            for piece in pieces:
                if self._stopped.is_set():
                    raise ServerError("stopped")
                directive = self._take(piece)
                while isinstance(directive, Ask):
                    directive = self._session.tell(self._write(directive, entropy=True).probe())
                if isinstance(directive, End | Force):
                    break
        if isinstance(directive, Force):
            self._land(directive)
        elif not isinstance(directive, End):
            self._session.end()
        done, outcome = self._done, self._session.outcome
        if not outcome.landing_tokens:
            done.cut(outcome.tokens)
        done.seconds = time.perf_counter() - began
        return done.close(outcome)

    def _take(self, piece: Piece) -> Directive:
        done, engine = self._done, self._engine
        tokens = as_tokens(piece, engine.vocabulary, full=engine.is_full)
        done.token_ids += piece.ids
        done.token_texts += tokens.texts
        for name in ("entropies", "logprobs", "margins", "top_logprobs"):
            getattr(done, name).extend(float("nan") if value is None else value for value in getattr(tokens, name))
        return self._session.feed(tokens)

    def _write(self, directive: Ask | Force, *, entropy: bool) -> Written:
        place = Place.of(directive, self._request.method.parameters.format)
        prompt, ids, text = self._standing
        done, at = self._done, directive.at
        before = Standing(prompt, [*ids, *done.token_ids[:at]], text + "".join(done.token_texts[:at]))
        return self._engine.write(before, place, self._stopped, entropy=entropy)

    def _land(self, directive: Force) -> None:
        """The stream is closed; what came past the stop is cut off, and the landing appended."""
        written = self._write(directive, entropy=False)
        self._done.cut(directive.at)
        self._session.landed(written.probe())
        self._done.token_ids += written.forced + written.ids
        closing, cue = directive.landing
        forced = [""] * len(written.forced)
        for at, text in ((0, closing), (written.closed, cue)):
            if text:
                forced[at] = text
        self._done.token_texts += forced + written.texts
