"""What the tokens of a GGUF model say, by llama.cpp itself."""

from __future__ import annotations

import codecs
import ctypes
from functools import lru_cache
from typing import Any

import llama_cpp.llama_cpp as llama

from bitcal_tts.engines.base import EngineError


class GgufVocabulary:
    """What the tokens of a model say.

    Args:
        model: As llama.cpp has it.
    """

    def __init__(self, model: Any) -> None:
        self._vocab = llama.llama_model_get_vocab(model)
        self.size = llama.llama_vocab_n_tokens(self._vocab)
        self.ends = frozenset(token for token in range(self.size) if llama.llama_vocab_is_eog(self._vocab, token))
        self._encoded = lru_cache(maxsize=1024)(lambda text: tuple(self.split(text, special=False)))
        self._buffer = ctypes.create_string_buffer(512)

    def encode(self, text: str) -> list[int]:
        """Token ids of a part of a response."""
        return list(self._encoded(text)) if text else []

    def split(self, text: str, *, special: bool) -> list[int]:
        """Token ids of a text; `special` adds what a prompt begins with."""
        raw = text.encode()
        room = len(raw) + 8
        tokens = (llama.llama_token * room)()
        n = llama.llama_tokenize(self._vocab, raw, len(raw), tokens, room, special, True)
        if n < 0:
            raise EngineError(f"llama.cpp cannot split a text of {len(raw):,} bytes")
        return list(tokens[:n])

    def piece(self, token: int) -> bytes:
        """What a token says."""
        n = llama.llama_token_to_piece(self._vocab, token, self._buffer, len(self._buffer), 0, True)
        if n < 0:
            raise EngineError(f"token {token} says more than {len(self._buffer)} bytes")
        return self._buffer.raw[:n]

    def texts(self) -> _Texts:
        """For a new response."""
        return _Texts(self)


class _Texts:
    """The text each token adds; bytes of an unfinished character wait for the token that completes it."""

    def __init__(self, vocabulary: GgufVocabulary) -> None:
        self._vocabulary = vocabulary
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def add(self, token_id: int) -> str:
        """The text that this token adds."""
        return self._decoder.decode(self._vocabulary.piece(token_id))

    def held(self) -> str:
        """What a character that was never finished comes to."""
        return self._decoder.decode(b"", final=True)
