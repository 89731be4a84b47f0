"""What requests inside vLLM ask for, those of them that are watched, and how they are made to stop."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from bitcal_tts.engines.checkpoint import eos_token_ids, template_sha256
from bitcal_tts.engines.named_profiles import named_profile
from bitcal_tts.engines.text import TokenTexts, response_ids
from bitcal_tts.engines.watched import SIGNALS, Watched
from bitcal_tts.halting.identity import Identity
from bitcal_tts.halting.profile import Profile
from bitcal_tts.halting.rules.oracle import Oracle
from bitcal_tts.halting.shared import SharedMethods

ARGUMENT = "bitcal"
_KEYS = ("method", "bits", "budget", "options", "question", "stop_token", "id", "declare")
_KINDS: dict[str, Any] = {
    "method": str, "bits": (int, float), "budget": int, "options": dict, "question": str, "stop_token": int, "id": str,
    "declare": dict,
}  # fmt: skip
_WORDS = {str: "text", int: "a whole number", (int, float): "a number", dict: "an object"}
_LOG = logging.getLogger(__name__)
PROFILES_VARIABLE = "BITCAL_PROFILES"
"""Names the folder of profiles that requests may ask for by name."""
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
            self.method = _METHODS.build(told["method"], bits=told["bits"], budget=told["budget"], **options)
        except TypeError as error:  # a value of another kind than a parameter has
            raise ValueError(f"{ARGUMENT}: {error}") from None
        lacking = SIGNALS.lacks(self.method.needs)
        if lacking:
            words = ", ".join(signal.words for signal in lacking)
            raise ValueError(f"{told['method']} needs {words}, which is not to be had inside vLLM")
        if isinstance(self.method, Oracle):
            raise ValueError(f"{told['method']} needs to be told the answers: it exists in replay only")
        self.question: str | None = told.get("question")
        if self.question is None and self.method.reads_question:
            raise ValueError(f"{told['method']} reads the question: give it as {ARGUMENT}.question")
        self.stop_token: int | None = told.get("stop_token")
        if self.stop_token is not None and self.stop_token < 0:
            raise ValueError(f"{ARGUMENT}.stop_token must be a token's id, got {self.stop_token}")
        self.id: str | None = told.get("id")
        self.declare: dict[str, Any] = dict(told.get("declare") or {})
        Identity().declare(self.declare)  # what cannot be declared is refused now


_METHODS = SharedMethods()


def _profile(name: str) -> Profile:
    """A profile by its name, from the folder that whoever started the server has named: clients name no paths."""
    folder = os.environ.get(PROFILES_VARIABLE)
    if not folder:
        raise ValueError(f"profiles are served from the folder in {PROFILES_VARIABLE}, which is not set on the server")
    return named_profile(Path(folder), name)


class _Vocabulary:
    """A Transformers tokenizer as what `Watched` asks for."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self.ends = eos_token_ids(tokenizer)
        self.encode = lru_cache(maxsize=1024)(lambda text: response_ids(tokenizer, text))

    def __len__(self) -> int:
        return len(self._tokenizer)

    def texts(self) -> TokenTexts:
        """For a new response."""
        return TokenTexts(self._tokenizer)


def take(rows: Iterable[Watched]) -> None:
    """Decide on what has come of each; one that this fails for goes on unwatched, as an error would end the engine."""
    for row in rows:
        try:
            row.take()
        except Exception:
            _LOG.exception("a request goes on unwatched")
            row.give_up()


def force(rows: Mapping[int, Watched], logits: torch.Tensor) -> None:
    """Leave each row of logits no choice where its request must go on with one token.

    A landed answer that the model ends by itself is a halt too: the stop token takes the place of its end.
    """
    for index, row in rows.items():
        forced = row.forces
        if forced is not None:
            logits[index] = -torch.inf
            logits[index, forced] = 0.0
        elif row.landing and row.stop not in row.ends:
            ends = sorted(row.ends)
            logits[index, row.stop] = torch.maximum(logits[index, row.stop], logits[index, ends].max())
            logits[index, ends] = -torch.inf


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
        tokenizer = AutoTokenizer.from_pretrained(model.tokenizer, revision=model.tokenizer_revision)
        self._vocabulary = _Vocabulary(tokenizer)
        self._identity = Identity(
            {
                "engine": "vllm",
                "model": model.model,
                "compute_dtype": str(model.dtype).removeprefix("torch."),
                "template_sha256": template_sha256(tokenizer),
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
        size = len(self._vocabulary)
        try:
            row = Watched(
                settings.method,
                out,
                self._vocabulary,
                self._identity.declare(settings.declare),
                question=settings.question,
                stop=None if settings.stop_token is None or settings.stop_token >= size else settings.stop_token,
            )
        except ValueError as error:
            _LOG.warning("a request runs to its end unwatched: %s", error)
            return None
        if settings.id is not None:
            self._by_id[settings.id] = row
            while len(self._by_id) > _REMEMBERED:
                self._by_id.pop(next(iter(self._by_id)))
        return row
