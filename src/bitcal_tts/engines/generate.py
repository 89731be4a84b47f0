"""Halting inside somebody else's `model.generate` call: one object, both logits processor and stopping criterion."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch

from bitcal_tts.engines import checkpoint
from bitcal_tts.engines.base import Decoding
from bitcal_tts.engines.precision import precision_of
from bitcal_tts.engines.sampling import token_signals, unit_rows
from bitcal_tts.engines.tap import HiddenTap, tap_of
from bitcal_tts.engines.text import TokenTexts, landing_ids, token_counter
from bitcal_tts.engines.thinking import find_markers, style_of
from bitcal_tts.halting.controller import Controller, Decision
from bitcal_tts.halting.exchange import Force, Tokens
from bitcal_tts.halting.identity import DECODING, Identity
from bitcal_tts.halting.session import Session
from bitcal_tts.halting.settled import refuse
from bitcal_tts.halting.signals import Signal, Signals

Tensor = torch.Tensor
_SWITCHED_OFF: dict[str, Any] = {
    "num_beams": 1,
    "num_return_sequences": 1,
    "no_repeat_ngram_size": 0,
    "typical_p": 1.0,
    "epsilon_cutoff": 0.0,
    "eta_cutoff": 0.0,
    "min_length": 0,
    **dict.fromkeys((
        "min_new_tokens", "bad_words_ids", "suppress_tokens", "begin_suppress_tokens", "sequence_bias", "stop_strings",
        "forced_bos_token_id", "forced_eos_token_id", "exponential_decay_length_penalty", "guidance_scale",
        "watermarking_config", "prompt_lookup_num_tokens", "max_time",
    )),
}  # fmt: skip
"""What would change the tokens that are chosen, besides sampling, and its value where it does not."""
_PROMPT_END = 256  # tokens of a prompt in which its think markers are looked for


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
    answer: str | None = None


class _Row:
    def __init__(self, session: Session, tokenizer: Any) -> None:
        self.session = session
        self.forced: list[int] = []
        """Tokens of a landing, while it is on."""
        self.landing = False
        self.chosen = 0
        """Tokens chosen since the landing began."""
        self._tokenizer = tokenizer
        self._texts = TokenTexts(tokenizer)
        self._pieces: list[str] = []
        self._fed = 0

    def take(self, ids: list[int], signals: list[list[float]], cosines: tuple[float | None, ...], eos: Any) -> None:
        """Feed the session with tokens up to the one that ends the row, and follow what it says."""
        session = self.session
        if session.over:
            return
        first = len(self._pieces)
        ended = False
        for token in ids:
            if token in eos and self._fed >= len(self.forced):  # what is forced does not end a row
                ended = True
                break
            self._pieces.append(self._texts.add(token))
            if self.landing:
                self._fed += 1
        new = self._pieces[first:]
        if self.landing:
            forced = max(0, len(self.forced) - (self._fed - len(new)))
            if new[:forced]:
                session.feed(Tokens(new[:forced]), forced=True)
            if new[forced:]:
                session.feed(Tokens(new[forced:]))
        else:
            entropies, logprobs, margins, tops = zip(*signals[: len(new)], strict=True) if new else ((), (), (), ())
            directive = session.feed(
                Tokens(new, entropies, logprobs, margins, tops, hidden_similarities=() if ended else cosines)
            )
            if isinstance(directive, Force):
                closing, cue = landing_ids(self._tokenizer, directive.landing)
                self.landing, self.forced, self._fed, self.chosen = True, [*closing, *cue], 0, 0
        if ended and not session.over:
            session.end()

    @property
    def result(self) -> RowResult:
        """How the row went."""
        done = self.session.outcome
        return RowResult(
            tokens=done.tokens,
            text=done.text,
            ended=done.finish != "halted",
            decision=done.decision,
            landing_tokens=done.landing_tokens,
            answer=done.answer,
        )


class BitCal:
    """Halts each row of a `generate` call by itself, at the method's budget at the latest.

    Example:
        >>> bitcal = BitCal(build_method("bitcal_tts", bits=4, budget=512), tokenizer, model=model)
        >>> output = model.generate(**inputs, max_new_tokens=512, **bitcal.kwargs())
        >>> bitcal.results[0].decision

    A halted row is padded until the longest one ends: tokens are saved, time only where all rows end early.
    `bitcal record` and `TransformersEngine` decode so that rows leave the batch. A row that is halted inside its
    thinking has the end of it and the answer's cue forced on it, and writes its answer greedily, within its budget.

    Args:
        method: From `build_method`; copied fresh for every row.
        tokenizer: The model's fast tokenizer.
        model: Needed for the hidden-state signal, which is read where it enters the output embedding, and to see that
            a profile was fitted for it: its files, bits, dtype and template are read, not typed.
        eos_token_ids: Tokens after which a row is over; the tokenizer's by default.
    """

    def __init__(
        self,
        method: Controller,
        tokenizer: Any,
        *,
        model: Any = None,
        eos_token_ids: set[int] | None = None,
    ) -> None:
        if Signal.PROBE in method.needs:
            raise ValueError(
                f"{method.parameters.name} probes the model, which cannot be done inside generate: decode with "
                "TransformersEngine, or choose a rule that does not probe"
            )
        self.method = method
        self.tokenizer = tokenizer
        self._model = model
        self._eos = checkpoint.eos_token_ids(tokenizer, model) if eos_token_ids is None else frozenset(eos_token_ids)
        self._tap: HiddenTap | None = None if model is None else tap_of(model)
        self._signals = Signals("full", hidden_every=None if model is None else method.parameters.chunk_size)
        self._identity = Identity()
        if method.promises:
            self._check_model()
        Session(method, signals=self._signals, identity=self._assumed(), question="")  # refuses early
        self._questions: Sequence[str] | None = None
        self._rows: list[_Row] = []
        self._length = -1
        self._count = 0
        self._pending: list[Tensor] = []
        self._unit: Tensor | None = None
        self._state: Tensor | None = None

    def _check_model(self) -> None:
        """Read what is served from the model."""
        if self._model is None:
            raise ValueError("a profile is checked against the model it serves: BitCal(..., model=model)")
        self._identity = identity_of(self._model, self.tokenizer)

    def _assumed(self) -> Identity:
        """What is known of the model, and for the rest, which the prompts and `kwargs` will tell, what is hoped for."""
        if not self.method.promises:
            return self._identity
        hoped = {"thinking", "style", *DECODING}
        profile = self.method.parameters.profile.identity
        return self._identity.with_known(**{key: profile[key] for key in hoped if key in profile.known})

    @property
    def results(self) -> list[RowResult]:
        """What happened to each row of the last call, once `generate` has returned."""
        if self._pending:
            self._decide()
        for row in self._rows:
            if not row.session.over:  # `max_new_tokens` came before the method's budget
                row.session.end("budget")
        return [row.result for row in self._rows]

    def kwargs(self, *, questions: Sequence[str] | None = None, **options: Any) -> dict[str, Any]:
        """What to pass to one `generate` call.

        Args:
            questions: What each row's prompt asks, without its instructions, for a method that reads it.
            **options: How tokens are chosen: `do_sample`, `temperature`, `top_p`, `top_k`, `min_p`,
                `repetition_penalty`. With a profile, whose promise is tied to them, they are passed on from here, those
                that are not given as the model's generation config has them, with the budget, and with everything else
                that would change what is chosen switched off: to give one of these to `generate` as well is then an
                error of Python's.
        """
        self._length = -1
        self._questions = questions
        unknown = sorted(set(options) - {"do_sample", *DECODING})
        if unknown:
            raise ValueError(f"kwargs takes do_sample, {', '.join(DECODING)}; not {', '.join(unknown)}")
        if self.method.promises:
            self._refuse_other_settings()
            budget = self.method.parameters.budget
            options = {**_SWITCHED_OFF, **self._decoding_options(options), "max_new_tokens": budget}
        return {**options, "logits_processor": [self], "stopping_criteria": [self]}

    def _refuse_other_settings(self) -> None:
        """What a checkpoint's generation config may hold beyond sampling, a promise does not know of."""
        found = [
            f"{name}={value!r}"
            for name, off in _SWITCHED_OFF.items()
            if (value := getattr(self._model.generation_config, name, None)) not in (None, off)
        ]
        if found:
            refusal = f"the model's generation config sets {', '.join(found)}, which no profile was fitted with"
            refuse(refusal, "unset it, or force it", force=self.method.parameters.force)

    def _decoding_options(self, options: dict[str, Any]) -> dict[str, Any]:
        """All settings that tokens are chosen by, spelled out, and noted as what is served."""
        config = self._model.generation_config

        def value(name: str, usual: float) -> Any:
            configured = getattr(config, name, None)
            return options.get(name, usual if configured is None else configured)

        penalty = {"repetition_penalty": float(value("repetition_penalty", 1.0))}
        sampled = options.get("do_sample", options.get("temperature", 0.0) > 0 or bool(config.do_sample))
        if not sampled or value("temperature", 1.0) == 0.0:
            self._identity = self._identity.with_known(**_served(Decoding()), **penalty)
            return {"do_sample": False, **penalty}
        decoding = Decoding(
            temperature=float(value("temperature", 1.0)),
            top_p=float(value("top_p", 1.0)),
            top_k=int(value("top_k", 0)),
            min_p=float(value("min_p", 0.0)),
        )
        self._identity = self._identity.with_known(**_served(decoding), **penalty)
        return {"do_sample": True, **_served(decoding), **penalty}

    # Transformers inspects this signature: exactly two parameters, for both roles.
    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """As a processor `scores` is the step's logits; as a stopping criterion None or a tuple."""
        if torch.is_tensor(scores):
            self._before_choice(input_ids, scores)
            return self._land(scores)
        return self._after_choice(input_ids)

    def _before_choice(self, input_ids: Tensor, logits: Tensor) -> None:
        if input_ids.shape != (len(self._rows), self._length):
            self._begin(input_ids)
        self._logits = logits
        hidden = None if self._tap is None else self._tap.last
        if hidden is not None and hidden.shape[0] == len(self._rows):
            self._state = hidden[:, -1]

    def _begin(self, input_ids: Tensor) -> None:
        """A new `generate` call."""
        count_tokens = token_counter(self.tokenizer)
        questions: Sequence[str | None] = [None] * len(input_ids) if self._questions is None else self._questions
        if len(questions) != len(input_ids):
            raise ValueError(f"there are {len(input_ids)} prompts, but kwargs was told {len(questions)} questions")
        if self.method.reads_question and self._questions is None:
            name = self.method.parameters.name
            raise ValueError(f"{name} reads the question: model.generate(..., **bitcal.kwargs(questions=[...]))")
        self._rows = [
            _Row(
                Session(
                    self.method,
                    signals=self._signals,
                    identity=self._served_to(prompt),
                    question=question,
                    count_tokens=count_tokens,
                ),
                self.tokenizer,
            )
            for prompt, question in zip(input_ids, questions, strict=True)
        ]
        self._length = input_ids.shape[1]
        self._count = 0
        self._pending = []
        self._unit = self._state = None
        self._stopped = torch.zeros(len(self._rows), dtype=torch.bool, device=input_ids.device)

    def _served_to(self, prompt: Tensor) -> Identity:
        """What is served to a row: whether it thinks, its prompt tells."""
        if not self.method.promises:
            return self._identity
        markers = find_markers(self.tokenizer, self.tokenizer.decode(prompt[-_PROMPT_END:].tolist()))
        thinking = None if markers is None else list(markers)
        return self._identity.with_known(thinking=thinking, style=style_of(markers))

    def _after_choice(self, input_ids: Tensor) -> Tensor:
        if input_ids.shape[1] == self._length:  # asked again about the same token
            return self._stopped
        self._length = input_ids.shape[1]
        chosen = input_ids[:, -1]
        for row in self._rows:
            row.chosen += row.landing
        self._pending.append(token_signals(self._logits, chosen))
        self._count += 1
        p = self.method.parameters
        self._chunk = input_ids[:, -len(self._pending) :]
        if len(self._pending) == p.chunk_size or self._count == p.budget:
            self._decide()
        return self._stopped

    def _decide(self) -> None:
        """The only point at which the device is waited for: once a chunk."""
        ids = self._chunk.tolist()
        signals = torch.stack(self._pending, dim=1).tolist()
        whole = len(self._pending) == self.method.parameters.chunk_size
        cosines = self._similarities() if whole else None
        self._pending = []
        for i, row in enumerate(self._rows):
            here: tuple[float | None, ...] = (cosines[i],) if cosines is not None else (None,) if whole else ()
            row.take(ids[i], signals[i], here, self._eos)
        over = [row.session.over for row in self._rows]
        self._stopped = torch.tensor(over, dtype=torch.bool, device=self._chunk.device)

    def _similarities(self) -> list[float] | None:
        if self._state is None:
            return None
        unit = unit_rows(self._state.float())
        previous, self._unit = self._unit, unit
        return None if previous is None else (previous * unit).sum(-1).tolist()

    def _land(self, scores: Tensor) -> Tensor:
        """Leave landing rows one choice: what is forced on them, then what they find likeliest."""
        landing = [(i, row) for i, row in enumerate(self._rows) if row.landing and not row.session.over]
        if not landing:
            return scores
        only = scores.argmax(-1)
        for i, row in landing:
            if row.chosen < len(row.forced):
                only[i] = row.forced[row.chosen]
        which = torch.tensor([i for i, _ in landing], device=scores.device)
        scores = scores.clone()
        scores[which] = float("-inf")
        scores[which, only[which]] = 0.0
        return scores


def identity_of(model: Any, tokenizer: Any) -> Identity:
    """What a promise is tied to, as far as a loaded model tells; what it does not is unknown."""
    precision = precision_of(model)
    source = str(model.config.name_or_path)
    known: dict[str, Any] = {
        "engine": "transformers",
        "model": source,
        "bits": precision.bits,
        "scheme": precision.scheme,
        "compute_dtype": precision.compute_dtype,
        "template_sha256": checkpoint.template_sha256(tokenizer),
    }
    with suppress(OSError):  # its files may no longer be where it was loaded from
        known["model_sha256"] = checkpoint.hash_model(source)
    return Identity(known)


def _served(decoding: Decoding) -> dict[str, Any]:
    return {key: value for key, value in decoding.describe().items() if key in DECODING}
