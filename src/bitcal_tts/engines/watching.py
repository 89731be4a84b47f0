"""One request that is watched inside somebody else's engine: what it asks for, what has come, what must come next."""

from __future__ import annotations

import json
from collections import deque
from pathlib import Path
from typing import Any

import torch

from bitcal_tts.engines.checkpoint import eos_token_ids, template_sha256
from bitcal_tts.engines.text import TokenTexts, landing_ids, token_counter
from bitcal_tts.halting.identity import Identity
from bitcal_tts.halting.methods import build_method
from bitcal_tts.halting.profile import Profile
from bitcal_tts.halting.session import Force, Session, Tokens
from bitcal_tts.halting.signals import Signals

ARGUMENT = "bitcal"
_KEYS = ("method", "bits", "budget", "options", "question", "stop_token", "id", "declare", "chunk")
SIGNALS = Signals("full")
_REMEMBERED = 4096


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
        lacking = SIGNALS.lacks(self.method.needs)
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
        out: Its tokens, as the engine keeps them.
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
            signals=SIGNALS,
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


def asked_for(sampling_params: Any) -> Settings | None:
    """What a request asks for; None where it asks for nothing."""
    told = (sampling_params.extra_args or {}).get(ARGUMENT)
    return None if told is None else Settings(told)


class Roster:
    """Makes requests watched, and finds those again that an engine has put aside.

    Args:
        vllm_config: What vLLM was started with.
    """

    def __init__(self, vllm_config: Any) -> None:
        from transformers import AutoTokenizer

        model = vllm_config.model_config
        self._tokenizer = AutoTokenizer.from_pretrained(model.tokenizer, revision=model.tokenizer_revision)
        self._identity = Identity(
            {
                "engine": "vllm",
                "model": model.model,
                "compute_dtype": str(model.dtype).removeprefix("torch."),
                "template_sha256": template_sha256(self._tokenizer),
                "signals": str(SIGNALS),
            }
        )
        self._by_id: dict[str, Watched] = {}

    def watched(self, settings: Settings, out: list[int]) -> Watched:
        """A request; one that was put aside goes on where it was, by the id that it was given."""
        known = self._by_id.get(settings.id) if settings.id is not None else None
        if known is not None and out:
            known.out = out
            return known
        row = Watched(settings, out, self._tokenizer, self._identity)
        if settings.id is not None:
            self._by_id[settings.id] = row
            while len(self._by_id) > _REMEMBERED:
                self._by_id.pop(next(iter(self._by_id)))
        return row
