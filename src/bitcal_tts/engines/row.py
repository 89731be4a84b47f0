"""One request being decoded: what has come off the device, and the session that it is fed to."""

from __future__ import annotations

import time
from typing import Any

from bitcal_tts.engines.base import Completion, EngineError, Fork, Place, Request, Written
from bitcal_tts.engines.text import TokenTexts, held_back
from bitcal_tts.halting.controller import Probe
from bitcal_tts.halting.session import Ask, Directive, End, Force, Session, Tokens


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
        self.issued = 0
        self.directive: Directive | None = None
        """What the session said last, where that was not to go on."""
        self._prefix_ids = prefix_ids
        self._tokenizer = tokenizer
        self._texts = TokenTexts(tokenizer)
        self._chunk_size = chunk_size
        self._ended = False
        self._joined = 0.0

    def join(self) -> None:
        """It is among the rows being decoded from here on."""
        self._joined = time.perf_counter()

    @property
    def leaves(self) -> bool:
        """Whether the row has ended, or is to be landed."""
        return isinstance(self.directive, End | Force)

    def take(
        self, ids: list[int], signals: list[list[float]], eos: frozenset[int], cosine: float | None, *, boundary: bool
    ) -> None:
        """Feed tokens in order until one ends the sequence; at a chunk boundary with the cosine there, if any."""
        done = self.done
        first = len(done.token_ids)
        ended = False
        for token, (entropy, logprob, margin, top) in zip(ids, signals, strict=True):
            if entropy != entropy:
                raise EngineError(
                    f"NaN logits for item {done.id!r} at token {len(done.token_ids) + 1}: the checkpoint is broken "
                    "or the compute dtype overflows; try --compute-dtype float32"
                )
            if token in eos:
                ended = True
                break
            done.token_ids.append(token)
            done.token_texts.append(self._texts.add(token))
            done.entropies.append(entropy)
            done.logprobs.append(logprob)
            done.margins.append(margin)
            done.top_logprobs.append(top)
        at_boundary = boundary and not ended
        if at_boundary and cosine is not None:
            done.hidden_similarities.append(cosine)
        new = slice(first, None)
        directive = self.session.feed(
            Tokens(
                done.token_texts[new],
                entropies=done.entropies[new],
                logprobs=done.logprobs[new],
                margins=done.margins[new],
                top_logprobs=done.top_logprobs[new],
                hidden_similarities=(cosine,) if at_boundary else (),
            )
        )
        self._ended = ended
        self._follow(directive)

    def tell(self, probe: Probe) -> None:
        """Answer what the session asked."""
        self._follow(self.session.tell(probe))

    def fork(self) -> Fork:
        """Where the session asks, or is to be landed, as the one place of a fork."""
        assert isinstance(self.directive, Ask | Force)
        tokens = [*self._prefix_ids, *self.done.token_ids[: self.directive.at]]
        place = Place.of(self.directive, self.request.method.parameters.format)
        return Fork(self.request.prompt, tokens, [place._replace(tokens=len(tokens))])

    def land(self, written: Written) -> None:
        """Add a landing to the completion; its tokens were not chosen, so they have no signals."""
        self.session.landed(written.probe())
        texts = TokenTexts(self._tokenizer)
        self.done.token_ids += written.forced + written.ids
        self.done.token_texts += [texts.add(token) for token in written.forced] + written.texts

    def close(self) -> Completion:
        """The finished completion."""
        done, outcome = self.done, self.session.outcome
        done.seconds = time.perf_counter() - self._joined
        if done.token_texts and not outcome.landing_tokens:
            done.token_texts[-1] += held_back(self._tokenizer, done.token_ids, done.text)
        return done.close(outcome)

    def _follow(self, directive: Directive) -> None:
        """Note what to do; what was decoded past an end is cut off."""
        if self._ended and not isinstance(directive, End | Force | Ask):
            directive = self.session.end()
        self.directive = directive if isinstance(directive, End | Force | Ask) else None
        if isinstance(directive, End | Force):
            self.done.cut(directive.at, self._chunk_size)
