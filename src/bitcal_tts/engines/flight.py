"""One request on its way to a server and back: its stream, its session, and what has come."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from bitcal_tts.engines.base import Completion, Decoding, Place, Request, Written
from bitcal_tts.engines.wire import Piece, ServerError, Standing
from bitcal_tts.halting.session import Ask, Directive, End, Force, Session, Tokens
from bitcal_tts.halting.signals import from_top

if TYPE_CHECKING:
    from bitcal_tts.engines.http import HttpEngine


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
        return done.close(outcome)

    def _take(self, piece: Piece) -> Directive:
        done, n, engine = self._done, len(piece.ids), self._engine
        if not piece.likeliest or piece.logprob is None:
            raise ServerError(f"{engine.url} sends no log-probabilities with its tokens: start it so that it does")
        known = from_top(piece.likeliest, engine.vocabulary)
        rest: list[Any] = [None] * (n - 1)  # tokens inside a character come together, and are told of once
        texts = [piece.text, *[""] * (n - 1)]
        columns = {
            "entropies": [known.entropy, *rest],
            "logprobs": [piece.logprob, *rest],
            "margins": [known.margin, *rest],
            "top_logprobs": [known.top_logprob, *rest],
        }
        done.token_ids += piece.ids
        done.token_texts += texts
        for name, column in columns.items():
            getattr(done, name).extend(float("nan") if value is None else value for value in column)
        missing = None if engine.is_full else [known.missing] * n
        return self._session.feed(Tokens(texts, **columns, missing=missing))

    def _write(self, directive: Ask | Force, *, entropy: bool) -> Written:
        limit = directive.room if isinstance(directive, Force) else None
        place = Place(directive.at, directive.landing, self._request.method.parameters.format, limit=limit)
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
