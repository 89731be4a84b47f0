"""One request in a lane of a llama.cpp context: a token at a time, and what its session says to each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bitcal_tts.engines.base import Completion, Decoding, Place, Request, Written
from bitcal_tts.engines.lanes import Lane, Steps
from bitcal_tts.engines.logits import choose
from bitcal_tts.halting.exchange import Ask, Directive, End, Force, Tokens
from bitcal_tts.halting.session import Session

if TYPE_CHECKING:
    from bitcal_tts.engines.gguf_engine import LlamaCppEngine


class LaneRow:
    """A request that is decoded.

    Args:
        engine: Has the model.
        request: What is decoded.
        session: Decides.
        decoding: How tokens are chosen.
        chunk_size: Hidden states are compared every so many tokens.
        keep_hidden: Whether the vectors there are kept.
    """

    def __init__(
        self,
        engine: LlamaCppEngine,
        request: Request,
        session: Session,
        decoding: Decoding,
        chunk_size: int,
        keep_hidden: bool,
    ) -> None:
        self._engine, self.request, self._session = engine, request, session
        self._decoding, self._chunk_size, self._keep_hidden = decoding, chunk_size, keep_hidden
        prefix = request.prefix
        begun = engine.vocabulary.encode(prefix) if isinstance(prefix, str) else list(prefix)
        self.prompt = [*engine.prompt(request.prompt), *begun]
        self._done = Completion(request.id, len(self.prompt))
        self._texts = engine.vocabulary.texts()
        self._unit: NDArray[np.float64] | None = None

    def run(self, lane: Lane) -> Steps[Completion]:
        """Decode to the end, or to where the session ends it."""
        done, session, ends = self._done, self._session, self._engine.vocabulary.ends
        draws = iter(())
        if self._decoding.temperature > 0:
            draws = iter(np.random.default_rng([self._decoding.seed, self.request.seed]).random(self.request.budget))
        feed = self.prompt
        while True:
            told = yield feed
            token = choose(told.logits, self._decoding, next(draws, None))
            if token in ends:
                directive: Directive = session.end()
            else:
                directive = self._take(token, told)
                feed = [token]
            while isinstance(directive, Ask):
                written = yield from self._write(lane, directive, entropy=True)
                lane.cut(len(self.prompt) + directive.at - 1)
                directive = session.tell(written.probe())
            if isinstance(directive, Force):
                yield from self._land(lane, directive)
                break
            if isinstance(directive, End):
                done.cut(directive.at, self._chunk_size)
                break
        outcome = session.outcome
        if done.token_texts and not outcome.landing_tokens and outcome.tokens == len(done.token_ids):
            done.token_texts[-1] += self._texts.held()
        return done.close(outcome)

    def _take(self, token: int, told: Any) -> Directive:
        """Feed the session a token, at a chunk boundary with the cosine there."""
        done = self._done
        text, logprob = self._texts.add(token), told.logprob(token)
        done.token_ids.append(token)
        done.token_texts.append(text)
        for column, value in (
            (done.entropies, told.entropy),
            (done.logprobs, logprob),
            (done.margins, told.margin),
            (done.top_logprobs, told.top_logprob),
        ):
            column.append(value)
        cosines = self._compared(told.hidden) if len(done.token_ids) % self._chunk_size == 0 else ()
        return self._session.feed(
            Tokens([text], [told.entropy], [logprob], [told.margin], [told.top_logprob], hidden_similarities=cosines)
        )

    def _compared(self, hidden: Any) -> tuple[float | None, ...]:
        if hidden is None:
            return ()
        if self._keep_hidden:
            self._done.hidden.append(np.array(hidden, dtype=np.float32))
        vector = hidden.astype(np.float64)
        unit, before = vector / (np.linalg.norm(vector) + 1e-12), self._unit
        self._unit = unit
        if before is None:
            return (None,)
        self._done.hidden_similarities.append(float(unit @ before))
        return (self._done.hidden_similarities[-1],)

    def _write(self, lane: Lane, directive: Ask | Force, *, entropy: bool) -> Steps[Written]:
        """What the model writes after a landing, in this lane: the last token before it has not been fed yet."""
        place = Place.of(directive, self.request.method.parameters.format)
        all_of_it = [*self.prompt, *self._done.token_ids[: directive.at]]
        lane.cut(len(all_of_it) - 1)
        return (yield from self._engine.write(lane, all_of_it[lane.length :], place, entropy=entropy))

    def _land(self, lane: Lane, directive: Force) -> Steps[None]:
        """What came past the stop is cut off, and the landing appended."""
        done = self._done
        done.cut(directive.at, self._chunk_size)
        written = yield from self._write(lane, directive, entropy=False)
        self._session.landed(written.probe())
        texts = self._engine.vocabulary.texts()
        done.token_ids += written.forced + written.ids
        done.token_texts += [texts.add(token) for token in written.forced] + written.texts
