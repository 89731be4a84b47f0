"""A text as tokens: by a tokenizer that is named, else by an approximation whose error is known."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

from bitcal_tts.halting.counting import approximate
from bitcal_tts.logs.files import LogError

APPROXIMATE = "approximate"


def splitter(name: str | None) -> Callable[[str], list[str]]:
    """What splits a text into the texts of its tokens, which together are the text.

    Args:
        name: A tokenizer.json, a folder that holds one, or a hub id; None approximates.
    """
    return approximate if name is None or name == APPROXIMATE else _by_tokenizer(name)


@lru_cache(maxsize=4)
def _by_tokenizer(name: str) -> Callable[[str], list[str]]:
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise LogError("--tokenizer needs the package tokenizers: pip install tokenizers") from None
    path = Path(name) / "tokenizer.json" if Path(name).is_dir() else Path(name)
    if not path.exists() and (path.suffix == ".json" or path.is_absolute() or name.startswith(".")):
        raise LogError(f"there is no tokenizer {path}; give a tokenizer.json or a hub id")
    try:
        tokenizer = Tokenizer.from_file(str(path)) if path.exists() else Tokenizer.from_pretrained(name)
    except Exception as error:  # the package raises bare exceptions
        raise LogError(f"cannot load the tokenizer {name!r}: {error}; give a tokenizer.json or a hub id") from None

    def split(text: str) -> list[str]:
        pieces, at = [], 0
        for _, end in tokenizer.encode(text, add_special_tokens=False).offsets:
            # Tokens of one character share its place: the first of them has it.
            pieces.append(text[at:end] if end > at else "")
            at = max(at, end)
        return [*pieces, text[at:]] if at < len(text) else pieces

    return split
