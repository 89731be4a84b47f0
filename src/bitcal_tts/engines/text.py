"""Token ids to text, token by token."""

from __future__ import annotations

from typing import Any

from tokenizers.decoders import DecodeStream

from bitcal_tts.halting.landing import Landing


def landing_ids(tokenizer: Any, landing: Landing) -> tuple[list[int], list[int]]:
    """Token ids of the closing and of the cue, each by itself, so that the end of the closing is a token's end."""
    closing, cue = (tokenizer(text, add_special_tokens=False)["input_ids"] if text else [] for text in landing)
    return closing, cue


class TokenTexts:
    """The text each token adds, so that the texts of a trace joined are the trace's text.

    Bytes of an unfinished character are held back until the token that completes it.
    """

    def __init__(self, tokenizer: Any) -> None:
        backend = getattr(tokenizer, "backend_tokenizer", None)
        if backend is None:
            raise ValueError(f"{type(tokenizer).__name__} is not a fast tokenizer; load one with a tokenizer.json")
        self._tokenizer = backend
        self._stream = DecodeStream(skip_special_tokens=False)
        self._ids: list[int] = []
        self._length = 0

    def add(self, token_id: int) -> str:
        """The text that this token adds."""
        self._ids.append(token_id)
        piece = self._stream.step(self._tokenizer, token_id) or ""
        self._length += len(piece)
        return piece

    def rest(self) -> str:
        """At the end: what the held-back bytes decode to, if any are left."""
        whole: str = self._tokenizer.decode(self._ids, skip_special_tokens=False)
        return whole[self._length :]
