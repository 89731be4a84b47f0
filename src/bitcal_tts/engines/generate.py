"""Halting inside somebody else's `model.generate` call: one object, both logits processor and stopping criterion."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from bitcal_tts.engines import checkpoint
from bitcal_tts.engines.batch import token_signals, unit_rows
from bitcal_tts.engines.text import TokenTexts, landing_ids
from bitcal_tts.halting.answers import AnswerFormat
from bitcal_tts.halting.controller import Decision, Method, Step
from bitcal_tts.halting.settled import SettledParameters

Tensor = torch.Tensor


@dataclass
class RowResult:
    """What happened to one row of the batch."""

    tokens: int = 0
    text: str = ""
    ended: bool = False
    decision: Decision | None = None
    """The decision that halted the row; None where it ended by itself or goes on."""
    landing_tokens: int = 0
    """Of the tokens, how many a soft landing appended or had the model write."""


@dataclass
class _Landing:
    """A row that was halted inside its thinking and writes its answer."""

    forced: list[int]
    limit: int
    cue: str
    answers: AnswerFormat
    fed: int = 0
    written: str = ""


@dataclass
class _Row:
    controller: Method
    texts: TokenTexts
    result: RowResult = field(default_factory=RowResult)
    landing: _Landing | None = None

    @property
    def over(self) -> bool:
        return self.result.ended or (self.result.decision is not None and self.landing is None)


class BitCal:
    """Halts each row of a `generate` call by itself, at the controller's budget at the latest.

    Example:
        >>> bitcal = BitCal(build_method("bitcal_tts", bits=4, budget=512), tokenizer, model=model)
        >>> output = model.generate(**inputs, max_new_tokens=512, **bitcal.kwargs())
        >>> bitcal.results[0].decision

    A halted row is padded until the longest one ends: tokens are saved, time only where all rows end early.
    `bitcal record` and `TransformersEngine` decode so that rows leave the batch. A row that is halted inside its
    thinking has the end of it and the answer's cue forced on it, and writes its answer greedily, within its budget.

    Args:
        controller: From `build_method`; copied fresh for every row.
        tokenizer: The model's fast tokenizer.
        model: Needed for the hidden-state signal, which is read by a hook on the output embedding, and to see that a
            profile was fitted for it.
        eos_token_ids: Tokens after which a row is over; the tokenizer's by default.
    """

    def __init__(
        self,
        controller: Method,
        tokenizer: Any,
        *,
        model: Any = None,
        eos_token_ids: set[int] | None = None,
    ) -> None:
        if getattr(controller, "probes", False):
            raise ValueError(
                f"{controller.parameters.name} probes the model, which cannot be done inside generate: decode with "
                "TransformersEngine, or choose a rule that does not probe"
            )
        _check_profile(controller, model)
        self.controller = controller
        self.tokenizer = tokenizer
        self._eos = checkpoint.eos_token_ids(tokenizer, model) if eos_token_ids is None else frozenset(eos_token_ids)
        self._hidden: Tensor | None = None
        self._rows: list[_Row] = []
        self._length = -1
        self._count = 0
        self._pending: list[Tensor] = []
        self._unit: Tensor | None = None
        self._state: Tensor | None = None
        if model is not None:
            model.get_output_embeddings().register_forward_pre_hook(self._catch_hidden)

    @property
    def results(self) -> list[RowResult]:
        """What happened to each row of the last call; complete once `generate` has returned."""
        if self._pending:
            self._take_rest()
        return [row.result for row in self._rows]

    def kwargs(self) -> dict[str, Any]:
        """What to pass to one `generate` call."""
        self._length = -1
        return {"logits_processor": [self], "stopping_criteria": [self]}

    # Transformers inspects this signature: exactly two parameters, for both roles.
    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """As a processor `scores` is the step's logits; as a stopping criterion None or a tuple."""
        if torch.is_tensor(scores):
            self._before_choice(input_ids, scores)
            return self._land(scores)
        return self._after_choice(input_ids)

    def _catch_hidden(self, _: Any, inputs: tuple[Tensor, ...]) -> None:
        self._hidden = inputs[0]

    def _before_choice(self, input_ids: Tensor, logits: Tensor) -> None:
        if input_ids.shape != (len(self._rows), self._length):
            self._begin(input_ids)
        self._logits = logits
        if self._hidden is not None and self._hidden.shape[0] == len(self._rows):
            self._state = self._hidden[:, -1]

    def _begin(self, input_ids: Tensor) -> None:
        """A new `generate` call."""
        self._rows = [_Row(self.controller.fresh(), TokenTexts(self.tokenizer)) for _ in range(input_ids.shape[0])]
        self._length = input_ids.shape[1]
        self._count = 0
        self._pending = []
        self._unit = self._state = None
        self._stopped = torch.zeros(len(self._rows), dtype=torch.bool, device=input_ids.device)

    def _after_choice(self, input_ids: Tensor) -> Tensor:
        if input_ids.shape[1] == self._length:  # asked again about the same token
            return self._stopped
        self._length = input_ids.shape[1]
        chosen = input_ids[:, -1]
        for row in self._rows:
            if row.landing is not None:
                row.landing.fed += 1
        self._pending.append(token_signals(self._logits, chosen))
        self._count += 1
        p = self.controller.parameters
        self._chunk = input_ids[:, -len(self._pending) :]
        if len(self._pending) == p.chunk_size or self._count == p.budget:
            self._decide()
        return self._stopped

    def _decide(self) -> None:
        """The only point at which the device is waited for: once a chunk."""
        ids = self._chunk.tolist()
        signals = torch.stack(self._pending, dim=1).tolist()
        cosines = self._similarities()
        self._pending = []
        for i, row in enumerate(self._rows):
            if row.landing is not None:
                self._take_landing(row, ids[i])
            elif not row.over:
                self._observe(row, ids[i], signals[i], None if cosines is None else cosines[i])
        over = [row.over for row in self._rows]
        self._stopped = torch.tensor(over, dtype=torch.bool, device=self._chunk.device)

    def _take_rest(self) -> None:
        """Tokens after the last boundary: the rows ended by themselves, so there is nothing to decide."""
        ids = self._chunk.tolist()
        self._pending = []
        for i, row in enumerate(self._rows):
            if row.landing is not None:
                self._take_landing(row, ids[i])
            elif not row.over:
                self._take(row, ids[i])

    def _similarities(self) -> list[float] | None:
        if self._state is None:
            return None
        unit = unit_rows(self._state.float())
        previous, self._unit = self._unit, unit
        return None if previous is None else (previous * unit).sum(-1).tolist()

    def _take(self, row: _Row, ids: list[int]) -> list[str]:
        """Append tokens up to the one that ends the row; the texts that were added."""
        pieces = []
        for token in ids:
            if token in self._eos:
                row.result.ended = True
                break
            pieces.append(row.texts.add(token))
        row.result.tokens += len(pieces)
        row.result.text += "".join(pieces)
        row.result.ended |= row.result.tokens >= row.controller.parameters.budget
        if row.result.ended:
            row.result.text += row.texts.rest()
        return pieces

    def _observe(self, row: _Row, ids: list[int], signals: list[list[float]], cosine: float | None) -> None:
        pieces = self._take(row, ids)
        if row.result.ended:
            return
        decision = row.controller.observe(
            Step(
                text="".join(pieces),
                n_tokens=len(ids),
                entropy=signals[-1][0],
                hidden_similarity=cosine,
                token_texts=pieces,
                entropies=[s[0] for s in signals],
                logprobs=[s[1] for s in signals],
                margins=[s[2] for s in signals],
                top_logprobs=[s[3] for s in signals],
            )
        )
        if decision.halts:
            row.result.decision = decision
            row.landing = self._landing(row, decision)

    def _landing(self, row: _Row, decision: Decision) -> _Landing | None:
        """What a halted row still has to write; None where nothing, or where no room is left for it."""
        if decision.landing is None:
            return None
        p = row.controller.parameters
        closing, cue = landing_ids(self.tokenizer, decision.landing)
        forced = closing + cue
        limit = min(p.format.reserve, p.budget - row.result.tokens)
        return _Landing(forced, limit, decision.landing.cue, p.format) if limit > len(forced) else None

    def _land(self, scores: Tensor) -> Tensor:
        """Leave landing rows one choice: what is forced on them, then what they find likeliest."""
        landing = [(i, row.landing) for i, row in enumerate(self._rows) if row.landing is not None]
        if not landing:
            return scores
        only = scores.argmax(-1)
        for i, state in landing:
            if state.fed < len(state.forced):
                only[i] = state.forced[state.fed]
        which = torch.tensor([i for i, _ in landing], device=scores.device)
        scores = scores.clone()
        scores[which] = float("-inf")
        scores[which, only[which]] = 0.0
        return scores

    def _take_landing(self, row: _Row, ids: list[int]) -> None:
        """Append a landing's tokens up to the end of the answer; what was decoded past it is dropped."""
        state, result = row.landing, row.result
        assert state is not None
        for token in ids:
            written = result.landing_tokens >= len(state.forced)
            if written and token in self._eos:
                row.landing = None
                break
            piece = row.texts.add(token)
            result.tokens += 1
            result.landing_tokens += 1
            result.text += piece
            state.written += piece if written else ""
            if result.landing_tokens >= state.limit or state.answers.given(state.cue + state.written):
                row.landing = None
                break
        if row.landing is None:
            result.text += row.texts.rest()


def _check_profile(controller: Method, model: Any) -> None:
    """Refuse a profile that was fitted for another model; its bits and budget are the method's own."""
    if not isinstance(controller.parameters, SettledParameters):
        return
    if model is None:
        raise ValueError("a profile is checked against the model it serves: BitCal(..., model=model)")
    source = model.config.name_or_path
    controller.parameters.check({"engine": "transformers", "model_sha256": checkpoint.hash_model(source)})
