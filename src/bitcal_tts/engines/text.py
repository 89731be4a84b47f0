"""Token ids to text, token by token."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from tokenizers.decoders import ByteLevel, DecodeStream

from bitcal_tts.halting.landing import Landing


@lru_cache(maxsize=256)  # landings are few, and come again with every request
def landing_ids(tokenizer: Any, landing: Landing) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Token ids of the closing and of the cue, each by itself, so that the end of the closing is a token's end."""
    closing, cue = (tuple(response_ids(tokenizer, text)) for text in landing)
    return closing, cue


def response_ids(tokenizer: Any, text: str) -> list[int]:
    """Token ids of a part of a response."""
    ids: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"] if text else []
    return ids


def token_counter(tokenizer: Any) -> Callable[[str], int]:
    """How many tokens a part of a response has; landings repeat, so that they are counted once."""
    return lru_cache(maxsize=1024)(lambda text: len(response_ids(tokenizer, text)))


def held_back(tokenizer: Any, token_ids: Sequence[int], text: str) -> str:
    """At the end of a text: what the bytes of a character that was never finished decode to, if there are any."""
    whole: str = _backend(tokenizer).decode(list(token_ids), skip_special_tokens=False)
    return whole[len(text) :]


class TokenTexts:
    """The text each token adds, so that the texts of a trace joined are the trace's text.

    Bytes of an unfinished character are held back until the token that completes it. Where a token's bytes are the same
    whatever stands before it, those of whole characters are looked up.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = _backend(tokenizer)
        self._alone = _texts_alone(self._tokenizer)
        self._stream: DecodeStream | None = None
        """What holds bytes back; where tokens are looked up, only as long as it does."""

    def add(self, token_id: int) -> str:
        """The text that this token adds."""
        if self._stream is None:
            known = None if self._alone is None else self._alone[token_id]
            if known is not None:
                return known
            self._stream = DecodeStream(skip_special_tokens=False)
        text: str = self._stream.step(self._tokenizer, token_id) or ""
        if text and self._alone is not None:
            self._stream = None
        return text

    def add_all(self, token_ids: Sequence[int]) -> list[str]:
        """The texts that these tokens add."""
        return [self.add(token_id) for token_id in token_ids]


class _TextsAlone(dict[int, str | None]):
    """The texts of tokens, by id, found when they are first asked for; None for a part of a character."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer

    def __missing__(self, token_id: int) -> str | None:
        text: str = self._tokenizer.decode([token_id], skip_special_tokens=False)
        known = self[token_id] = None if "\ufffd" in text else text
        return known


@lru_cache(maxsize=8)
def _texts_alone(tokenizer: Any) -> _TextsAlone | None:
    """Shared by all texts of a tokenizer; None where what a token adds depends on what stands before it."""
    return _TextsAlone(tokenizer) if isinstance(tokenizer.decoder, ByteLevel) else None


def _backend(tokenizer: Any) -> Any:
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise ValueError(f"{type(tokenizer).__name__} is not a fast tokenizer; load one with a tokenizer.json")
    return backend
