"""Code reasoning: the content of the last closed code block."""

from __future__ import annotations

import json
import re
from typing import Any

from bitcal_tts.halting.answers.base import AnswerFormat

_OPEN = re.compile(r"^[ \t]*```[^\n`]*\n", re.MULTILINE)
_CLOSE = re.compile(r"^[ \t]*```[ \t]*$", re.MULTILINE)


class CodeBlock(AnswerFormat):
    """A fenced block; equality is that of JSON where both sides are JSON, else of the text without outer space."""

    name = "code"
    cue = "```\n"
    reserve = 128

    def start(self, text: str, at: int = 0) -> int | None:
        """Just inside the first fence that opens a block at or after `at`."""
        # A closing fence looks like an opening one: blocks are counted from the beginning.
        position = 0
        while (opened := _OPEN.search(text, position)) is not None:
            if opened.end() > at:
                return opened.end()
            end = self.complete(text, opened.end())
            if end is None:
                return None
            position = end
        return None

    def complete(self, text: str, start: int, *, ended: bool = False) -> int | None:
        """After the fence that closes it."""
        closed = _CLOSE.search(text, start)
        if closed is None or (closed.end() == len(text) and not ended and not closed[0].endswith("```")):
            return None
        return closed.end()

    def value(self, text: str) -> str | None:
        """The content of the last closed block."""
        best, at = None, 0
        while (opened := _OPEN.search(text, at)) is not None and (
            closed := _CLOSE.search(text, opened.end())
        ) is not None:
            best = text[opened.end() : closed.start()].strip("\n") or best
            at = closed.end()
        return best

    def equal(self, one: str, other: str) -> bool:
        """Equal as JSON, else as text."""
        left, right = _json(one), _json(other)
        if left is not _NOT_JSON and right is not _NOT_JSON:
            return bool(left == right)
        return one.strip() == other.strip()


_NOT_JSON = object()


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return _NOT_JSON
