"""Multiple choice: a letter."""

from __future__ import annotations

import re

from bitcal_tts.halting.answers.base import MarkedText

_LETTER = re.compile(
    r"[\s*_:=($\[{\\#]*(?:(?:boxed|text|option|choice|answer)\b[\s*_:({]*)?([A-Za-z])(?![A-Za-z])", re.I
)


class Choice(MarkedText):
    """The letter after the last marker; letter case does not matter."""

    name = "choice"
    stated = r"\(?([A-Z])\)?(?![A-Za-z'])"
    reserve = 24
    values = "options"

    def complete(self, text: str, start: int, *, ended: bool = False) -> int | None:
        """After a letter that no other letter follows."""
        match = _LETTER.match(text, start)
        if match is None:
            return None
        return match.end() if ended or len(text) > match.end() else None

    def value(self, text: str) -> str | None:
        """The letter after the last marker that has one."""
        best = None
        at = self.start(text)
        while at is not None:
            match = _LETTER.match(text, at)
            best = match[1].upper() if match else best
            at = self.start(text, at)
        return best

    def equal(self, one: str, other: str) -> bool:
        """The same letter."""
        return one.strip(" ().").upper() == other.strip(" ().").upper()
