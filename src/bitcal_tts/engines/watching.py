"""One request that is watched inside somebody else's engine: what it asks for, what has come, what must come next."""

from __future__ import annotations

import json
import logging
import os
import re
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
_KEYS = ("method", "bits", "budget", "options", "question", "stop_token", "id", "declare")
_KINDS: dict[str, Any] = {
    "method": str, "bits": (int, float), "budget": int, "options": dict, "question": str, "stop_token": int, "id": str,
    "declare": dict,
}  # fmt: skip
_WORDS = {str: "text", int: "a whole number", (int, float): "a number", dict: "an object"}
SIGNALS = Signals("full")
_LOG = logging.getLogger(__name__)
PROFILES_VARIABLE = "BITCAL_PROFILES"
"""Names the folder of profiles that requests may ask for by name."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")
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
        for key, kind in _KINDS.items():
            if told.get(key) is not None and (not isinstance(told[key], kind) or isinstance(told[key], bool)):
                raise ValueError(f"{ARGUMENT}.{key} must be {_WORDS[kind]}, got {told[key]!r}")
        options = dict(told.get("options") or {})
        if "profile" in options:
            options["profile"] = _profile(str(options["profile"]))
        try:
            self.method = build_method(told["method"], bits=told["bits"], budget=told["budget"], **options)
        except TypeError as error:  # a value of another kind than a parameter has
            raise ValueError(f"{ARGUMENT}: {error}") from None
        lacking = SIGNALS.lacks(self.method.needs)
        if lacking:
            words = ", ".join(signal.words for signal in lacking)
            raise ValueError(f"{told['method']} needs {words}, which is not to be had inside vLLM")
        self.question: str | None = told.get("question")
        if self.question is None and self.method.reads_question:
            raise ValueError(f"{told['method']} reads the question: give it as {ARGUMENT}.question")
        self.stop_token: int | None = told.get("stop_token")
        if self.stop_token is not None and self.stop_token < 0:
            raise ValueError(f"{ARGUMENT}.stop_token must be a token's id, got {self.stop_token}")
        self.id: str | None = told.get("id")
        self.declare: dict[str, Any] = dict(told.get("declare") or {})
        Identity().declare(self.declare)  # what cannot be declared is refused now


def _profile(name: str) -> Profile:
    """A profile by its name, from the folder that whoever started the server has named: clients name no paths."""
    folder = os.environ.get(PROFILES_VARIABLE)
    if not folder:
        raise ValueError(f"profiles are served from the folder in {PROFILES_VARIABLE}, which is not set on the server")
    path = Path(folder) / f"{name}.json"
    if not _NAME.fullmatch(name) or not path.is_file():
        raise ValueError(f"there is no profile {name[:80]!r} on the server")
    try:
        return Profile.from_dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError):
        raise ValueError(f"the profile {name!r} on the server cannot be read") from None


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
        known = settings.stop_token is not None and settings.stop_token < len(tokenizer)
        self._stop = settings.stop_token if known and settings.stop_token is not None else min(self._eos)
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

    def watched(self, settings: Settings, out: list[int]) -> Watched | None:
        """A request; one that was put aside goes on where it was, by the id that it was given.

        One whose promise does not hold here is not watched, and the log says why: an error would end the engine.
        """
        known = self._by_id.get(settings.id) if settings.id is not None else None
        if known is not None and out:
            known.out = out
            return known
        try:
            row = Watched(settings, out, self._tokenizer, self._identity)
        except ValueError as error:
            _LOG.warning("a request runs to its end unwatched: %s", error)
            return None
        if settings.id is not None:
            self._by_id[settings.id] = row
            while len(self._by_id) > _REMEMBERED:
                self._by_id.pop(next(iter(self._by_id)))
        return row
