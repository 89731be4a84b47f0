"""A growing text, sentence by sentence."""

from __future__ import annotations

import re
from collections.abc import Sequence

MAX_LENGTH = 600
"""A sentence that is longer is cut: work and memory a token stay bounded, whatever a text is made of."""
_BEGUN = 5
"""Characters of an end that has begun: `."`."""
_END = re.compile(r"(?<=[.!?])[*)\"'\]]{0,3}\s|\n")


class Sentences:
    """Splits a text that arrives in pieces.

    A sentence has ended when what follows it has begun: a space after a full stop, or a new line: `3.` may be
    about to become `3.5`.
    """

    __slots__ = ("_rest", "_searched")

    def __init__(self) -> None:
        self._rest = ""
        self._searched = 0

    def feed(self, piece: str) -> Sequence[str]:
        """Take the next piece; the sentences that it ends, without the space between them."""
        rest = self._rest = self._rest + piece
        end = _END.search(rest, self._searched)
        if end is None and len(rest) <= MAX_LENGTH:
            self._searched = max(0, len(rest) - _BEGUN)
            return ()
        return self._ended(end)

    def may_skip(self, text: str) -> bool:
        """Whether a sentence that does not end goes on with so much text, without being cut."""
        return len(self._rest) + len(text) <= MAX_LENGTH

    def skip(self, text: str) -> None:
        """Take text of which no part can end a sentence."""
        self._rest += text
        self._searched = max(0, len(self._rest) - _BEGUN)

    def _ended(self, end: re.Match[str] | None) -> list[str]:
        ended, rest, start = [], self._rest, 0
        while end is not None:
            if end.start() > start:
                ended.append(rest[start : end.start()])
            start = end.end()
            end = _END.search(rest, start)
        rest = rest[start:]
        self._searched = max(0, len(rest) - _BEGUN)
        while len(rest) > MAX_LENGTH:
            cut = rest.rfind(" ", MAX_LENGTH // 2, MAX_LENGTH)
            cut = MAX_LENGTH if cut < 0 else cut
            ended.append(rest[:cut])
            rest, self._searched = rest[cut:], 0
        self._rest = rest
        return ended
