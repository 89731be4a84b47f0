r"""Answers as models write them unasked: boxed, tagged, behind a marker, or merely called the answer.

For texts that were written for somebody else's prompt. An answer is *given*, so that nothing need be added, only where
it is announced in a way that cannot be meant otherwise: `\boxed{7}`, `#### 7`, `<answer>7</answer>`.
"""

from __future__ import annotations

import re
from abc import abstractmethod

from bitcal_tts.halting.answers.base import AnswerFormat
from bitcal_tts.halting.answers.boxed import Boxed, balanced, boxes
from bitcal_tts.halting.answers.numbers import NUMBER, as_number, in_digits, number_in

_OPEN = re.compile(r"\\(?:boxed|fbox)\s*\{|#{4,}|<answer>", re.IGNORECASE)
# What stands before the answer is looked ahead for and taken as a whole: a text may end in thousands of spaces.
_CALLED = re.compile(
    r"\banswer\b(?=(?P<before>\**\s*(?:(?:is|are|should be|would be|must be|will be)\b|[:=])?\s*(?:option|choice)?"
    r"[\s:*]*))(?P=before)(?P<said>[^\n]{1,200})",
    re.IGNORECASE,
)
_END = re.compile(r"</?\w|\n")
_LABEL = re.compile(r"[\s*_:=($\[{\\#]*(?:(?:text|mathrm|option|choice)\b[\s*_:({]*)?([A-Ja-j]|[1-9])(?!\w)")
_LAST_NUMBER = re.compile(rf"(?<![\w.]){NUMBER}")
_BOXED = Boxed()
_TAIL = 400
_ENOUGH = 20_000


class Announced(AnswerFormat):
    """What all of them share: where an answer is announced, and in which order announcements are believed."""

    cue = "\\boxed{"

    @abstractmethod
    def read(self, announced: str) -> str | None:
        """The value at the beginning of what was announced, or None."""

    def last_resort(self, tail: str) -> str | None:
        """The value that the end of a text holds where none is announced, or None."""
        return None

    def start(self, text: str, at: int = 0) -> int | None:
        """Just behind the first announcement."""
        found = _OPEN.search(text, at)
        return found.end() if found else None

    def complete(self, text: str, start: int, *, ended: bool = False) -> int | None:
        """At the brace that closes it, at the next tag, or at the end of the line."""
        if text[start - 1] == "{":
            return balanced(text, start)
        end = _END.search(text, start)
        if end is not None and text[start : end.start()].strip():
            return end.start()
        return len(text) if ended and text[start:].strip() else None

    def value(self, text: str) -> str | None:
        """The last announced value; else what is called the answer last; else what the end holds."""
        text = text[-_ENOUGH:]
        announced = self.unfinished(text)
        if announced is not None:
            return announced
        for called in reversed(list(_CALLED.finditer(text))):
            value = self.read(called["said"])
            if value is not None:
                return value
        return self.last_resort(text.rstrip()[-_TAIL:])

    def unfinished(self, text: str) -> str | None:
        """The last announced value."""
        text = text[-_ENOUGH:]
        closed = dict(boxes(text))
        for found in reversed(list(_OPEN.finditer(text))):
            at = found.end()
            end = closed.get(at) if text[at - 1] == "{" else self.complete(text, at, ended=True)
            value = None if end is None else self.read(text[at:end])
            if value is not None:
                return value
        return None

    def given(self, text: str) -> bool:
        """Whether a box is closed, or a tagged or marked answer is complete."""
        others = (found.end() for found in _OPEN.finditer(text) if not found[0].endswith("{"))
        return any(boxes(text)) or any(self.complete(text, at) is not None for at in others)

    def written(self, value: str) -> str:
        """Closes the box."""
        return f"{value}}}"


class Number(Announced):
    """A number, whatever stands around it: a unit, a currency, a derivation."""

    name = "number"
    stated = None
    values = "numbers"

    def read(self, announced: str) -> str | None:
        """The only number, or the first of several."""
        number = number_in(announced)
        if number is None:
            first = re.search(r"[-\u2212]?\$?\d[\d,]*(?:\.\d+)?(?:/\d+)?", announced)
            number = as_number(first[0]) if first else None
        return None if number is None else in_digits(number)

    def last_resort(self, tail: str) -> str | None:
        """The last number."""
        found = _LAST_NUMBER.findall(tail)
        number = as_number(found[-1]) if found else None
        return None if number is None else in_digits(number)

    def equal(self, one: str, other: str) -> bool:
        """Equal as exact numbers."""
        left, right = number_in(one), number_in(other)
        return left is not None and left == right


class Expression(Announced):
    """An expression; equality here is textual or numeric, a task may know better."""

    name = "expression"
    stated = None
    reserve = 64
    values = "expressions"

    def read(self, announced: str) -> str | None:
        """All of it, without the full stop."""
        return announced.strip().strip("*$").rstrip(".").strip() or None

    def equal(self, one: str, other: str) -> bool:
        """The same text up to spaces and typography, or the same number."""
        return _BOXED.equal(one, other)


class Option(Announced):
    """One of several choices, by its letter or its number."""

    name = "option"
    stated = r"\(?([A-J]|[1-9])\)?(?![\w'])"
    reserve = 24
    values = "options"

    def read(self, announced: str) -> str | None:
        """The label that it begins with."""
        label = _LABEL.match(announced)
        return label[1].upper() if label else None

    def equal(self, one: str, other: str) -> bool:
        """The same label."""
        left, right = self.read(one), self.read(other)
        return left is not None and left == right
