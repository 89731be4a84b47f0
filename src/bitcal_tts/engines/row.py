"""One request being decoded: what has come off the device, and the session that it is fed to."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitcal_tts.engines.base import Completion, EngineError, Fork, Place, Request, Written
from bitcal_tts.engines.text import TokenTexts, held_back, landing_ids
from bitcal_tts.halting.controller import Probe
from bitcal_tts.halting.exchange import Ask, Directive, End, Force, Tokens, Weigh
from bitcal_tts.halting.landing import AnswerWriting
from bitcal_tts.halting.session import Session


class Row:
    """A request in flight.

    Args:
        request: What is decoded.
        prompt_ids: Its prompt as the model reads it, the prefix included.
        prefix_ids: The prefix alone.
        session: Decides.
        tokenizer: The model's.
        chunk_size: Hidden states are compared every so many tokens.
    """

    def __init__(
        self,
        request: Request,
        prompt_ids: list[int],
        prefix_ids: list[int],
        session: Session,
        tokenizer: Any,
        chunk_size: int,
    ) -> None:
        self.request = request
        self.prompt_ids = prompt_ids
        self.session = session
        self.done = Completion(request.id, len(prompt_ids))
        self.directive: Directive | None = None
        """What the session said last, where that was not to go on."""
        self.over = False
        """Whether nothing more will come of it."""
        self._prefix_ids = prefix_ids
        self._tokenizer = tokenizer
        self._texts = TokenTexts(tokenizer)
        self._chunk_size = chunk_size
        self._ended = False
        self._landing: Writer | None = None

    @property
    def lands(self) -> bool:
        """Whether an answer is being written after a landing."""
        return self._landing is not None

    def take(
        self,
        ids: list[int],
        signals: list[list[float]],
        eos: frozenset[int],
        cosine: float | None,
        hidden: NDArray[np.float32] | None,
    ) -> None:
        """Feed tokens in order, at most a chunk, until one ends the sequence.

        Args:
            ids: The tokens.
            signals: Entropies, log-probabilities, margins and mean log-probabilities of the likeliest, of each of them.
            eos: Tokens that end a sequence.
            cosine: Between the hidden states at the boundary that they come to and at the one before, if any.
            hidden: The one there, where it is kept.
        """
        if self._landing is not None:
            self._land(self._landing, ids, signals, eos)
            return
        done = self.done
        n = len(ids) if eos.isdisjoint(ids) else next(i for i, token in enumerate(ids) if token in eos)
        ended = n < len(ids)
        entropies, logprobs, margins, tops = (column[:n] for column in signals)
        if math.isnan(sum(signals[0][: n + 1])):
            broken = next(i for i, entropy in enumerate(signals[0]) if math.isnan(entropy))
            at = len(done.token_ids) + broken + 1
            raise EngineError(
                f"NaN logits for item {done.id!r} at token {at}: the checkpoint is broken or the compute dtype "
                "overflows; try --compute-dtype float32"
            )
        texts = self._texts.add_all(ids[:n])
        whole = len(done.token_ids) // self._chunk_size
        done.token_ids += ids[:n]
        done.token_texts += texts
        done.entropies += entropies
        done.logprobs += logprobs
        done.margins += margins
        done.top_logprobs += tops
        at_boundary = len(done.token_ids) // self._chunk_size > whole
        if at_boundary and cosine is not None:
            done.hidden_similarities.append(cosine)
        if at_boundary and hidden is not None:
            done.hidden.append(hidden)
        similarities = (cosine,) if at_boundary else ()
        directive = self.session.feed(
            Tokens(texts, entropies, logprobs, margins, tops, hidden_similarities=similarities)
        )
        self._ended = ended
        self._follow(directive)

    def tell(self, probe: Probe) -> None:
        """Answer what the session asked."""
        self._follow(self.session.tell(probe))

    def weighed(self, judged: Sequence[tuple[float, Any]]) -> None:
        """Take what the looks at which the session waits were judged to be worth."""
        self._follow(self.session.weighed(judged))

    def fork(self) -> Fork:
        """Where the session asks, or is to be landed, as the one place of a fork."""
        assert isinstance(self.directive, Ask | Force)
        tokens = [*self._prefix_ids, *self.done.token_ids[: self.directive.at]]
        place = Place.of(self.directive, self.request.method.parameters.format)
        return Fork(self.request.prompt, tokens, [place._replace(tokens=len(tokens))])

    def land(self) -> list[int]:
        """Begin the landing that the session asks for: the tokens to append."""
        assert isinstance(self.directive, Force)
        self._landing = Writer.at(Place.of(self.directive, self.request.method.parameters.format), self._tokenizer)
        self.directive = None
        return self._landing.written.forced

    def _land(self, landing: Writer, ids: list[int], signals: list[list[float]], eos: frozenset[int]) -> None:
        """Take more of an answer; its tokens were not chosen freely, so that they have no signals."""
        landing.take(ids, signals, eos)
        if not landing.writing.over:
            return
        self._landing, self.over, written = None, True, landing.written
        self.session.landed(written.probe())
        texts = TokenTexts(self._tokenizer)
        self.done.token_ids += written.forced + written.ids
        self.done.token_texts += texts.add_all(written.forced) + written.texts

    def close(self) -> Completion:
        """The finished completion."""
        done, outcome = self.done, self.session.outcome
        if done.token_texts and not outcome.landing_tokens:
            done.token_texts[-1] += held_back(self._tokenizer, done.token_ids, done.text)
        return done.close(outcome)

    def _follow(self, directive: Directive) -> None:
        """Note what to do; what was decoded past an end is cut off."""
        if self._ended and not isinstance(directive, End | Force | Ask | Weigh):
            directive = self.session.end()
        self.directive = directive if isinstance(directive, End | Force | Ask | Weigh) else None
        if isinstance(directive, End | Force):
            self.over = isinstance(directive, End)
            self.done.cut(directive.at, self._chunk_size)


@dataclass
class Writer:
    """An answer being written, after what was appended to have it written."""

    written: Written
    writing: AnswerWriting
    decoder: TokenTexts
    seen: int = 0

    @classmethod
    def at(cls, place: Place, tokenizer: Any) -> Writer:
        """One at a place."""
        closing, cue = landing_ids(tokenizer, place.landing)
        return cls(*place.begin(closing, cue), TokenTexts(tokenizer))

    @property
    def most(self) -> int:
        """Tokens that it may come to, what is appended included."""
        return len(self.written.forced) + max(0, self.writing.limit)

    def take(self, ids: list[int], signals: list[list[float]], eos: frozenset[int]) -> None:
        """Take the next tokens, what was appended first, up to the end of the answer; signals by kind, as in `Row`."""
        written, forced = self.written, len(self.written.forced)
        for token, entropy, logprob in zip(ids, signals[0], signals[1], strict=True):
            if self.seen == written.closed > 0:  # what the next token is chosen from
                written.entropy = entropy
            self.seen += 1
            if self.seen <= forced or self.writing.over:
                continue
            if token in eos:
                self.writing.over = True
                continue
            piece = self.decoder.add(token)
            self.writing.feed(piece)
            written.ids.append(token)
            written.texts.append(piece)
            written.logprobs.append(logprob)
