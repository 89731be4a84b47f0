"""Multiple choice: a letter."""

from __future__ import annotations

import re

from bitcal_tts.halting.answers.base import MarkedText

# What stands before the letter is looked ahead for and taken as a whole: a text may go on with markers for long.
_LETTER = re.compile(
    r"(?=(?P<before>[\s*_:=($\[{\\#]*))(?P=before)(?:(?:boxed|text|option|choice|answer)\b[\s*_:({]*)?"
    r"(?P<letter>[A-Za-z])(?![A-Za-z])",
    re.I,
)
_BEFORE = re.compile(r"[\s*_:=($\[{\\#]*")


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
            best = match["letter"].upper() if match else best
            at = self.start(text, self.behind(text, at))
        return best

    def behind(self, text: str, at: int) -> int:
        """Behind the marker again, and whatever else may stand before a letter."""
        before = _BEFORE.match(text, at)
        return at if before is None else before.end()

    def open_part(self, text: str) -> str:
        """From the last marker on: what completes an answer behind an earlier one completes that one's, too."""
        return self.from_last_marker(text)

    def equal(self, one: str, other: str) -> bool:
        """The same letter."""
        return one.strip(" ().").upper() == other.strip(" ().").upper()
