"""Tokens as text, looked up one by one or from a stream that holds bytes back: the same."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel, DecodeStream
from tokenizers.decoders import Sequence as InTurn

from bitcal_tts.engines.text import TokenTexts
from bitcal_tts.tiny import models

TEXT = "Zoë’s 3 × 4 = 12 €, naïve 🙂🙂 漢字 \ufffd!\n</think>\n"


@pytest.fixture(params=["tiny-15m", "qwen2_5"])
def backend(request: pytest.FixtureRequest) -> Tokenizer:
    if request.param == "tiny-15m":
        folder = Path(models.resolve("tiny-15m"))
    else:
        folder = request.getfixturevalue("shared") / "tokenizers" / request.param
    return Tokenizer.from_file(str(folder / "tokenizer.json"))


def streamed(backend: Tokenizer, ids: list[int]) -> list[str]:
    stream = DecodeStream(skip_special_tokens=False)
    return [stream.step(backend, token) or "" for token in ids]


def texts(backend: Any, ids: list[int]) -> list[str]:
    return TokenTexts(SimpleNamespace(backend_tokenizer=backend)).add_all(ids)


def test_texts_that_are_looked_up_are_those_of_a_stream(backend: Tokenizer) -> None:
    ids = backend.encode(TEXT).ids
    assert "".join(texts(backend, ids)) == TEXT
    assert texts(backend, ids) == streamed(backend, ids)
    assert "" in texts(backend, ids)  # parts of characters were held back
    rng = np.random.default_rng(0)
    for _ in range(50):  # tokens in any order: broken characters, begun ones, ends of ones that nobody began
        ids = rng.integers(0, backend.get_vocab_size(), 200).tolist()
        ids[::7] = rng.choice(backend.encode("🙂漢").ids, len(ids[::7])).tolist()
        assert texts(backend, ids) == streamed(backend, ids)


def test_where_a_token_depends_on_those_before_it_nothing_is_looked_up(backend: Tokenizer) -> None:
    backend.decoder = InTurn([ByteLevel()])
    ids = backend.encode(TEXT).ids
    decoder = TokenTexts(SimpleNamespace(backend_tokenizer=backend))
    assert decoder.add_all(ids) == streamed(backend, ids)
    assert decoder._alone is None
