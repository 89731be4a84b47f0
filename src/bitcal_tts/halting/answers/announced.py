r"""Answers as models write them unasked: boxed, tagged, behind a marker, or merely called the answer.

For texts that were written for somebody else's prompt. An answer is *given*, so that nothing need be added, only where
it is announced in a way that cannot be meant otherwise: `\boxed{7}`, `#### 7`, `<answer>7</answer>`.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from bisect import bisect_left

from bitcal_tts.halting.answers.base import AnswerFormat
from bitcal_tts.halting.answers.boxed import Boxed, balanced, boxes
from bitcal_tts.halting.answers.numbers import NUMBER, as_number, in_digits, number_in

_OPEN = re.compile(r"\\(?:boxed|fbox)\s*\{|#{4,}(?:\s*#{2,})*|<answer>", re.IGNORECASE)
# What stands before the answer is looked ahead for and taken as a whole: a text may end in thousands of spaces.
# So is what follows: it may call something the answer again, and better.
_CALLED = re.compile(
    r"\b(?:answer|correct option|correct choice)\b(?=(?P<before>\**\s*"
    r"(?:(?:is|are|should be|would be|must be|will be)\b|[:=])?\s*(?:option|choice)?[\s:*]*))(?P=before)"
    r"(?=(?P<said>[^\n]{1,200}))",
    re.IGNORECASE,
)
_END = re.compile(r"</?\w|\n")
_LABEL = re.compile(
    r"(?=(?P<typography>(?:[\s*_:=($\[{\\#]|(?:(?:text|math)(?:bf|rm|it|sf)?|option|choice)\b)*))(?P=typography)"
    r"(?P<label>(?-i:[A-HJ1-9])|[A-J](?=\s*(?:[])}.,:;*$\\]|$)))(?!\w)",  # "a" and "I" are words, too
    re.IGNORECASE,
)
# Behind a row of # stands an answer, or a heading: "#### Step 3: Add", "#### 3. Conclusion".
_NUMBERED = re.compile(r"[\s*_]*\d{1,3}\s*[.):]\s*\**\s*[^\W\d_]")
_HEADED = re.compile(
    r"\W*(?:step|part|case|method|approach|solution|conclusion|explanation|verification)\b", re.IGNORECASE
)
_STARTS_WITH_NUMBER = re.compile(
    r"[\s*_:=($\[{\\]*(?:(?:the\s+)?(?:final\s+)?answer\b\W*(?:is\b\W*)?)?[-+\u2212\u2013]?[\s$€£*_({\\]*"
    r"(?:\.?\d|[dt]?frac(?![a-z]))",
    re.IGNORECASE,
)
_FIRST_NUMBER = re.compile(r"[-\u2212]?\$?\d[\d,]*(?:\.\d+)?(?:/\d+)?")
_BOLD_NUMBER = re.compile(r"\*\*[\s$€£\\]*(?P<number>[-\u2212]?\d[^*\n]{0,40})\*\*")
_LAST_NUMBER = re.compile(rf"(?<![\w.]){NUMBER}")
_BOXED = Boxed()
_TAIL = 400
_LINE = 1000
_ENOUGH = 20_000


class Announced(AnswerFormat):
    """What all of them share: where an answer is announced, and in which order announcements are believed."""

    cue = "\\boxed{"

    @abstractmethod
    def read(self, announced: str) -> str | None:
        """The value at the beginning of what was announced, or None."""

    @abstractmethod
    def is_heading(self, line: str) -> bool:
        """Whether what stands behind a row of # is no answer."""

    def read_called(self, said: str) -> str | None:
        """The value that is called the answer, or None; the sentence may go on."""
        return self.read(said)

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
            value = self.read_called(called["said"])
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
            if end is None or (text[at - 1] == "#" and self.is_heading(text[at:end])):
                continue
            value = self.read(text[at:end] if text[at - 1] == "{" else text[at : min(end, at + _LINE)])
            if value is not None:
                return value
        return None

    def given(self, text: str) -> bool:
        """Whether a box is closed, or a tagged or marked answer is complete."""
        if any(boxes(text)):
            return True
        ends = [found.start() for found in _END.finditer(text)]
        for found in _OPEN.finditer(text):
            at = found.end()
            following = bisect_left(ends, at)
            if text[at - 1] == "{" or following == len(ends):
                continue
            line = text[at : ends[following]]
            if line.strip() and not (text[at - 1] == "#" and self.is_heading(line)):
                return True
        return False

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
            first = _FIRST_NUMBER.search(announced)
            number = as_number(first[0]) if first else None
        return None if number is None else in_digits(number)

    def read_called(self, said: str) -> str | None:
        """The number that it begins with, or the only one, or the one in bold; a derivation's first is no answer."""
        if _STARTS_WITH_NUMBER.match(said) or number_in(said) is not None:
            return self.read(said)
        bold = _BOLD_NUMBER.search(said)
        return None if bold is None else self.read(bold["number"])

    def is_heading(self, line: str) -> bool:
        """Whether it does not begin with a number, or with that of a heading."""
        return _STARTS_WITH_NUMBER.match(line) is None or _NUMBERED.match(line) is not None

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

    def is_heading(self, line: str) -> bool:
        """Whether it begins as headings do."""
        return _HEADED.match(line) is not None or _NUMBERED.match(line) is not None

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
        return label["label"].upper() if label else None

    def is_heading(self, line: str) -> bool:
        """Whether there is more than a label."""
        label = _LABEL.match(line)
        return label is None or re.search(r"\w", line[label.end() :]) is not None

    def equal(self, one: str, other: str) -> bool:
        """The same label."""
        left, right = self.read(one), self.read(other)
        return left is not None and left == right
