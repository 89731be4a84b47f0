"""Halting inside vLLM: a logits processor that is passed by name.

    vllm serve MODEL --logits-processors bitcal_tts.engines.vllm:Halting

A request says how it is to be halted in `SamplingParams.extra_args`, over HTTP in `vllm_xargs`, as JSON text:

    extra_body={"vllm_xargs": {"bitcal": '{"method": "complete", "bits": 16, "budget": 512}'}, "stop_token_ids": [3]}

Requests that say nothing are not touched. A halt forces the token that `stop_token` names; where it is among the
request's `stop_token_ids` its `stop_reason` is that token, so that a halt can be told from a natural end. This is the
interface of vLLM's V1 model runner. Nothing is registered as an entry point: a V2 runner refuses to start where a
plugin for V1 is installed.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from vllm.v1.sample.logits_processor import BatchUpdate, LogitsProcessor, MoveDirectionality

from bitcal_tts.engines.checkpoint import eos_token_ids, template_sha256
from bitcal_tts.engines.sampling import token_signals
from bitcal_tts.engines.text import TokenTexts, landing_ids, token_counter
from bitcal_tts.halting.identity import Identity
from bitcal_tts.halting.methods import build_method
from bitcal_tts.halting.profile import Profile
from bitcal_tts.halting.session import Force, Session, Tokens
from bitcal_tts.halting.signals import Signals

ARGUMENT = "bitcal"
_KEYS = ("method", "bits", "budget", "options", "question", "stop_token", "id", "declare", "chunk")
_SIGNALS = Signals("full")


class Settings:
    """What a request asks for, checked.

    Args:
        told: JSON text, or the object itself.
    """

    def __init__(self, told: Any) -> None:
        if isinstance(told, str):
            try:
                told = json.loads(told)
            except ValueError as error:
                raise ValueError(f"{ARGUMENT} must be JSON: {error}") from None
        if not isinstance(told, dict):
            raise ValueError(f"{ARGUMENT} must be an object with {', '.join(_KEYS)}; got {type(told).__name__}")
        unknown = sorted(set(told) - set(_KEYS))
        if unknown:
            raise ValueError(f"{ARGUMENT} knows {', '.join(_KEYS)}; not {', '.join(unknown)}")
        missing = [key for key in ("method", "bits", "budget") if key not in told]
        if missing:
            raise ValueError(f"{ARGUMENT} lacks {', '.join(missing)}")
        options = dict(told.get("options") or {})
        if isinstance(options.get("profile"), str):
            options["profile"] = _profile(options["profile"])
        self.method = build_method(told["method"], bits=told["bits"], budget=told["budget"], **options)
        lacking = _SIGNALS.lacks(self.method.needs)
        if lacking:
            words = ", ".join(signal.words for signal in lacking)
            raise ValueError(f"{told['method']} needs {words}, which is not to be had inside vLLM")
        self.question: str | None = told.get("question")
        if self.question is None and self.method.reads_question:
            raise ValueError(f"{told['method']} reads the question: give it as {ARGUMENT}.question")
        self.stop_token: int | None = told.get("stop_token")
        self.id: str | None = told.get("id")
        self.declare: dict[str, Any] = dict(told.get("declare") or {})
        self.chunk: int | None = told.get("chunk")
        if self.chunk is not None and (not isinstance(self.chunk, int) or self.chunk < 1):
            raise ValueError(f"{ARGUMENT}.chunk must be a whole number of at least 1, got {self.chunk!r}")


def _profile(path: str) -> Profile:
    """A profile from a file on the server's machine."""
    try:
        return Profile.from_dict(json.loads(Path(path).read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(f"{ARGUMENT}.options.profile cannot be read: {error}") from None


class Watched:
    """One request that is watched.

    Args:
        settings: What it asks for.
        out: Its tokens, as vLLM keeps them.
        tokenizer: The model's.
        identity: What is being served.
    """

    def __init__(self, settings: Settings, out: list[int], tokenizer: Any, identity: Identity) -> None:
        self.out = out
        self._tokenizer, self._texts = tokenizer, TokenTexts(tokenizer)
        self._eos = eos_token_ids(tokenizer)
        self._stop = min(self._eos) if settings.stop_token is None else settings.stop_token
        self.session = Session(
            settings.method,
            signals=_SIGNALS,
            identity=identity.declare(settings.declare),
            question=settings.question,
            count_tokens=token_counter(tokenizer),
        )
        self._fed = 0
        self._landing: deque[int] | None = None
        """Tokens of a landing that have not come back yet; None before it."""
        self._forced = 0
        self.known: dict[int, list[float]] = {}
        """Signals by position, off the device."""

    @property
    def landing(self) -> bool:
        """Whether an answer is being forced out of it."""
        return self._landing is not None

    def take(self) -> None:
        """Feed what has come since the last time, as far as its signals are known, and follow what the session says."""
        if self.session.over:
            return
        if self.landing:
            self._take_landing()
            return
        ids: list[int] = []
        while self._fed + len(ids) < len(self.out) and self._fed + len(ids) in self.known:
            ids.append(self.out[self._fed + len(ids)])
        ended = next((i for i, token in enumerate(ids) if token in self._eos), None)
        kept = ids if ended is None else ids[:ended]
        if kept:
            columns = zip(*(self.known.pop(self._fed + i) for i in range(len(kept))), strict=True)
            entropies, logprobs, margins, tops = map(list, columns)
            directive = self.session.feed(
                Tokens([self._texts.add(token) for token in kept], entropies, logprobs, margins, tops)
            )
            self._fed += len(kept)
            if isinstance(directive, Force):
                closing, cue = landing_ids(self._tokenizer, directive.landing)
                self._landing, self._forced = deque([*closing, *cue]), len(self.out)
        if ended is not None and not self.session.over:
            self.session.end()

    def _take_landing(self) -> None:
        assert self._landing is not None
        for token in self.out[self._forced :]:
            self._forced += 1
            if self._landing:
                self._landing.popleft()
                self.session.feed(Tokens([self._texts.add(token)]), forced=True)
            elif token in self._eos or token == self._stop:
                self.session.end()
            else:
                self.session.feed(Tokens([self._texts.add(token)]))
            if self.session.over:
                return

    def end_with_stop(self, logits: torch.Tensor) -> None:
        """A landed answer that the model ends by itself is a halt too: the stop token takes the place of its end."""
        if self._stop not in self._eos:
            for token in self._eos:
                logits[self._stop] = torch.maximum(logits[self._stop], logits[token])
                logits[token] = -torch.inf

    @property
    def forces(self) -> int | None:
        """The token that must come next, or None where the model is free."""
        if self.session.over:
            return self._stop
        return self._landing[0] if self._landing else None


class _Step:
    """Signals of one forward pass, still on the device."""

    def __init__(self, rows: Sequence[Watched], logits: torch.Tensor) -> None:
        self.rows = rows
        self.positions = [len(row.out) for row in rows]
        self._logits: torch.Tensor | None = logits
        self.signals: torch.Tensor | None = None

    def close(self) -> None:
        """Tokens have been chosen: their log-probabilities are known now, and the logits are not needed any more."""
        if self._logits is None:
            return
        chosen = [row.out[at] if at < len(row.out) else 0 for row, at in zip(self.rows, self.positions, strict=True)]
        tokens = torch.tensor([max(0, token) for token in chosen], device=self._logits.device)
        self.signals, self._logits = token_signals(self._logits, tokens), None


class Halting(LogitsProcessor):  # type: ignore[misc]
    """Halts requests inside vLLM, each by its own method.

    One log-softmax a step for the rows that are watched; their signals are copied off the device once a chunk.
    """

    @classmethod
    def validate_params(cls, sampling_params: Any) -> None:
        """Refuse bad settings when a request comes in: HTTP 400 with the reason."""
        told = (sampling_params.extra_args or {}).get(ARGUMENT)
        if told is not None:
            Settings(told)

    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        from transformers import AutoTokenizer

        model = vllm_config.model_config
        self._tokenizer = AutoTokenizer.from_pretrained(model.tokenizer, revision=model.tokenizer_revision)
        self._chunk = 1 if device.type == "cpu" else 16
        self._rows: dict[int, Watched] = {}
        self._by_id: dict[str, Watched] = {}
        self._steps: list[_Step] = []
        self._identity = Identity(
            {
                "engine": "vllm",
                "model": model.model,
                "compute_dtype": str(model.dtype).removeprefix("torch."),
                "template_sha256": template_sha256(self._tokenizer),
                "signals": str(_SIGNALS),
            }
        )

    def is_argmax_invariant(self) -> bool:
        """No: a halt chooses the token."""
        return False

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        """Requests that come, go and change places, in that order."""
        if batch_update is None:
            return
        for index in batch_update.removed:
            self._rows.pop(index, None)
        for index, params, _, out in batch_update.added:
            self._rows.pop(index, None)
            told = (params.extra_args or {}).get(ARGUMENT)
            if told is not None:
                self._rows[index] = self._watched(Settings(told), out)
        for one, other, direction in batch_update.moved:
            moving, there = self._rows.pop(one, None), self._rows.pop(other, None)
            if moving is not None:
                self._rows[other] = moving
            if direction is MoveDirectionality.SWAP and there is not None:
                self._rows[one] = there

    def _watched(self, settings: Settings, out: list[int]) -> Watched:
        """A request; one that was preempted goes on where it was, by the id that it was given."""
        known = self._by_id.get(settings.id) if settings.id is not None else None
        if known is not None and out:
            known.out = out
            return known
        row = Watched(settings, out, self._tokenizer, self._identity)
        if settings.id is not None:
            self._by_id[settings.id] = row
            while len(self._by_id) > 4096:
                self._by_id.pop(next(iter(self._by_id)))
        return row

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        """See the logits, decide on what has come, and force what must come."""
        if not self._rows:
            return logits
        rows = {index: row for index, row in self._rows.items() if index < logits.shape[0]}
        if self._steps:
            self._steps[-1].close()
        chunk = min((self._chunk, *(1 for row in rows.values() if row.landing)))
        if len(self._steps) >= chunk:
            self._flush()
        for row in rows.values():
            row.take()
        free = [index for index, row in rows.items() if row.forces is None]
        if free:
            self._steps.append(_Step([rows[index] for index in free], logits[free]))
        for index, row in rows.items():
            forced = row.forces
            if forced is not None:
                logits[index] = -torch.inf
                logits[index, forced] = 0.0
            elif row.landing:
                row.end_with_stop(logits[index])
        return logits

    def _flush(self) -> None:
        """One copy off the device for all rows of all steps."""
        done = [step for step in self._steps if step.signals is not None]
        self._steps = []
        if not done:
            return
        signals = torch.cat([step.signals for step in done if step.signals is not None]).cpu().tolist()
        told = iter(signals)
        for step in done:
            for row, at in zip(step.rows, step.positions, strict=True):
                row.known[at] = next(told)
