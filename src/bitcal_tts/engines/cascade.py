"""Two engines: whatever the first has not settled by its budget, the second answers.

The cheap one answers what it can be trusted with; the dear one sees only the rest. It goes on from the same text where
that was given up or ran out of tokens, and begins anew where it had ended by itself or went round in circles. Tokens of
both are counted, each at what it costs its engine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from bitcal_tts.engines.base import Completion, Decoding, Engine, EngineError, Request
from bitcal_tts.halting.controller import Controller
from bitcal_tts.halting.handing import is_handed_over, weight_bytes
from bitcal_tts.halting.methods import build_method
from bitcal_tts.halting.policy import Reason


@dataclass(frozen=True)
class Cascaded:
    """A request that went through a cascade: what each engine wrote, and what that cost.

    `cost` is in tokens of the second engine: one of the first counts as much less as it is cheaper.
    """

    first: Completion
    second: Completion | None
    cost: float

    @property
    def id(self) -> str:
        """The request's."""
        return self.first.id

    @property
    def text(self) -> str:
        """Of both."""
        return self.first.text if self.second is None else kept_text(self.first) + self.second.text

    @property
    def answer(self) -> str | None:
        """Of whoever ended it."""
        return self.first.answer if self.second is None else self.second.answer


class Cascade:
    """A first engine, and a second one that it hands over to.

    Args:
        first: Answers what it can; each request's own method and budget are its.
        second: Goes on with what is handed over.
        budget: Hard cap on the new tokens of both together.
        goes_on: The method of the second engine, for the tokens that are left; by default `landed`, which decodes to
            the end and has the answer written where the budget runs out.
        weights: What a token of each costs; by default the bytes of weights that are moved for it.
    """

    def __init__(
        self,
        first: Engine,
        second: Engine,
        *,
        budget: int,
        goes_on: Callable[[Request, int], Controller] | None = None,
        weights: tuple[float, float] | None = None,
    ) -> None:
        self.first, self.second, self.budget = first, second, budget
        self._goes_on = goes_on or self._landed
        cheap, dear = weights or (weight_bytes(first.describe()), weight_bytes(second.describe()))
        self.share = cheap / dear
        """What a token of the first costs, where one of the second costs 1."""

    def decode(
        self, requests: Sequence[Request], decoding: Decoding | None = None, *, batch_size: int = 32
    ) -> Iterator[Cascaded]:
        """Decode all requests on the first engine, then what it hands over on the second."""
        decoding = decoding or Decoding()
        by_id = {request.id: request for request in requests}
        if len(by_id) < len(requests):
            raise EngineError("requests of a cascade need names of their own: they are known by them")
        handed_over: dict[str, Completion] = {}
        for done in self.first.decode(requests, decoding, batch_size=batch_size):
            if is_handed_over(done.decision) and self.budget > len(done.token_ids):
                handed_over[done.id] = done
            else:
                yield Cascaded(done, None, self.share * _tokens(done))
        rest = [self._rest(by_id[name], done) for name, done in handed_over.items()]
        for more in self.second.decode(rest, decoding, batch_size=batch_size):
            done = handed_over[more.id]
            yield Cascaded(done, more, self.share * _tokens(done) + _tokens(more))

    def _rest(self, request: Request, done: Completion) -> Request:
        """What is left to do of a request."""
        method = self._goes_on(request, self.budget - len(done.token_ids))
        return Request(request.id, request.prompt, method, request.seed, kept_text(done), request.question)

    def _landed(self, request: Request, budget: int) -> Controller:
        p = request.method.parameters
        markers = {name: getattr(p, name) for name in ("opening", "close")}
        made: Controller = build_method("landed", bits=self.second.bits, budget=budget, answers=p.answers, **markers)
        return made


def _tokens(done: Completion) -> int:
    """Those of probes included."""
    return len(done.token_ids) + done.probe_tokens


def kept_text(done: Completion) -> str:
    """What of a text is worth going on from: nothing of one that ended by itself, unsettled, or that loops.

    An answer that a model was made to write at the end of its budget is left out.
    """
    if done.finish == "eos" or (done.decision is not None and done.decision.reason is Reason.LOOP):
        return ""
    return "".join(done.token_texts[: len(done.token_texts) - done.landing_tokens])
