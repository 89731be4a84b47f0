"""How many tokens a text has, where no tokenizer is known."""

from __future__ import annotations

import re

_PIECES = re.compile(
    r"\n+[ \t]*|\d|[ ]?[A-Za-z]{1,10}|[A-Za-z]+|[ ]?\\[A-Za-z]{1,6}|[ ]?[^\sA-Za-z0-9]{1,2}|\s", re.DOTALL
)
"""A word of up to ten letters is a token, a longer one several; so is every digit, and every sign or two."""


def approximate(text: str) -> list[str]:
    """Pieces of a text, about as many as a tokenizer of a current model makes of it (docs/audit.md says how nearly)."""
    return _PIECES.findall(text)
