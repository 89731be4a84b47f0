"""A growing text, sentence by sentence."""

from __future__ import annotations

import re
from collections.abc import Iterator

MAX_LENGTH = 600
"""A sentence that is longer is cut: work and memory a token stay bounded, whatever a text is made of."""
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

    def feed(self, piece: str) -> Iterator[str]:
        """Take the next piece; the sentences that it ends, without the space between them."""
        self._rest += piece
        while (end := _END.search(self._rest, self._searched)) is not None:
            sentence, self._rest, self._searched = self._rest[: end.start()], self._rest[end.end() :], 0
            if sentence:
                yield sentence
        self._searched = max(0, len(self._rest) - 5)  # an end that has begun: `."`
        while len(self._rest) > MAX_LENGTH:
            cut = self._rest.rfind(" ", MAX_LENGTH // 2, MAX_LENGTH)
            cut = MAX_LENGTH if cut < 0 else cut
            sentence, self._rest, self._searched = self._rest[:cut], self._rest[cut:], 0
            yield sentence
