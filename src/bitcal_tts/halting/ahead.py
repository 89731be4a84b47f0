"""Tokens that have come together: up to which of them nothing ends, so that they can be read all at once."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

_LOUD = re.compile(r"[.!?][*)\"'\]]{0,3}\s|[\n\\<]")
"""Where a sentence or a line ends, or a box or a tag may begin."""
_BEGUN = 4  # characters of an end that has begun


class Ahead(NamedTuple):
    """Some tokens, and which of them may end something."""

    texts: Sequence[str]
    text: str
    starts: Sequence[int]
    """Where in the text each of them starts, and the text ends."""
    loud: Sequence[int]
    """Those that end a sentence or a line, or belong to a box or a tag."""

    @classmethod
    def of(cls, texts: Sequence[str], before: str) -> Ahead:
        """The next tokens of a text, the end of which is `before`."""
        text, starts = "".join(texts), [0, *accumulate(map(len, texts))]
        begun = before[-_BEGUN:]
        ends = [match.end() - len(begun) for match in _LOUD.finditer(begun + text)]
        return cls(texts, text, starts, [bisect_left(starts, end) - 1 for end in ends if end > 0])

    def quiet_until(self, first: int) -> int:
        """From `first` on, the first that may end something, or their number."""
        at = bisect_left(self.loud, first)
        return self.loud[at] if at < len(self.loud) else len(self.texts)

    def text_of(self, first: int, last: int) -> str:
        """The text of some of them."""
        return self.text[self.starts[first] : self.starts[last]]
