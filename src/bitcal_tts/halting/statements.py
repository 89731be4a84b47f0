r"""Where a reasoning text has just stated an answer: "so the answer is 42.", "total: $42", `\boxed{42}`, `#### 42`.

Fed token by token, it reports a statement at the token that completes it and not before: a number counts once the
text can no longer continue it, and not at all while it is an operand (`so we need 42 / 6 = 7`). Work and memory a
token are bounded by the length of a line.
"""

from __future__ import annotations

import re
from functools import cache
from typing import NamedTuple

from bitcal_tts.halting.answers.numbers import NUMBER

MAX_LINE = 400
_LEAD = r"(?:[\s$€£*_:=(\\\[\"'`]|<[^<>\n]{0,20}>)*"
_BOXED = re.compile(r"\\boxed\s*\{((?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*)\}")
# A noun that announces an answer, and what may stand between it and the value.
_ANNOUNCING = r"(?:####|\b(?:answer|result|solution|total|sum|value|output|conclusion|choice|option)\b)"
_ANNOUNCES = re.compile(_ANNOUNCING)  # in small letters: found several times faster than where case is not heeded
_LONGEST = 10  # characters of such a noun
_NOUN = (
    rf"{_ANNOUNCING}"
    r"(?:[^\w\n.;]|\b(?:is|are|was|be|would|should|must|that|of|to|comes?|equals?|therefore|thus|then|so|now|simply"
    r"|final|my|the|it|for)\b){0,10}?"
)
_CONCLUSION = r"(?:so|thus|hence|therefore|then|finally|altogether|ok|okay|and|now|in\s+(?:total|all|short|conclusion))"
_SUBJECT = r"(?:i|we|it|that|this|which|there|you|x|y|n)"
_VERB = (
    r"(?:get|gets|got|have|is|are|was|gives?|gave|makes?|made|leaves?|yields?|equals?|find|finds|obtain|comes?\s+(?:out\s+)?"
    r"(?:to|at)|ends?\s+up\s+(?:with|at)|arrives?\s+at|must\s+be|should\s+be|=)"
)
_OPERATOR = re.compile(r"\s*(?:[-+*/×÷=^]|x\s*\d|\\times|\\div)")
_RESULT = re.compile(rf"=\s*{_LEAD}({NUMBER})[^\d=+*/×÷]{{0,30}}$")
_SENTENCE_END = re.compile(r"[.!?](?=\s)|\n")
_CLOSES = re.compile(r"</?\w+>|<\|")


class Statement(NamedTuple):
    """A value just stated. `strong` where the text says that it is the answer, not merely that it follows."""

    value: str
    strong: bool


class StatementDetector:
    """Finds statements in a growing text.

    Args:
        value: What a value looks like: a regular expression with one group. By default values are numbers, which must
            not be operands and may be continued by digits.
    """

    __slots__ = ("_block", "_clear", "_conclusive", "_from", "_line", "_noun", "_numeric", "_weak")

    def __init__(self, value: str | None = None) -> None:
        self._numeric = value is None
        value = value or rf"({NUMBER})"
        self._noun = re.compile(_NOUN + _LEAD + value, re.IGNORECASE)
        opening = rf"^\W*(?:{_CONCLUSION}\b[\s,:]*)*(?:{_SUBJECT}\s+)?(?:now\s+|just\s+|still\s+)?{_VERB}"
        self._conclusive = re.compile(
            rf"(?=\W*(?:{_CONCLUSION}|i|we|it|that|this|which)\b){opening}{_LEAD}{value}[\s*%$€£)]*(?:[a-z]+\W*){{0,3}}$",
            re.IGNORECASE,
        )
        self._weak = re.compile(rf"^\W*{_CONCLUSION}\b.*?{value}[^\d]*$", re.IGNORECASE)
        self._line = self._block = ""
        self._from = 0
        self._clear = 0  # before it no noun begins that announces an answer

    def fresh(self) -> StatementDetector:
        """The same detector for another text."""
        copy = object.__new__(StatementDetector)
        copy._numeric, copy._noun, copy._conclusive, copy._weak = (
            self._numeric, self._noun, self._conclusive, self._weak,
        )  # fmt: skip
        copy._line = copy._block = ""
        copy._from = copy._clear = 0
        return copy

    def skip(self, text: str) -> bool:
        """Take text all at once if no part of it can complete a statement; whether it was taken.

        Args:
            text: With no sentence or line that ends in it, no backslashes and angle brackets.
        """
        line = self._line + text
        small = line.lower()
        begin = max(self._from, self._clear)
        if (
            len(line) > MAX_LINE
            or len(small) != len(line)
            or "\\" in line
            or "<" in line
            or _ANNOUNCES.search(small, begin) is not None
        ):
            return False
        self._line, self._clear = line, max(begin, len(line) - _LONGEST)
        return True

    def skip_words(self, text: str) -> bool:
        """Take text all at once whose pieces end within words and numbers, where nothing is completed; whether it was.

        Args:
            text: Without ends of lines.
        """
        if len(self._line) + len(text) > MAX_LINE:
            return False
        self._line += text
        return True

    def feed(self, piece: str) -> Statement | None:
        """Take the next piece of text; the last statement that it completes, or None."""
        if "\n" not in piece:
            return self._extend(piece) if piece else None
        found = None
        *lines, rest = piece.split("\n")
        for line in lines:
            found = self._extend(line + "\n") or found
            found = self._end_of_work() or found
            self._line, self._from, self._clear = "", 0, 0
        return (self._extend(rest) if rest else None) or found

    def _extend(self, part: str) -> Statement | None:
        """Take more of the line."""
        line = self._line = self._line + part
        found = None if part[-1].isalnum() else self._scan(line)  # within a word or a number nothing is completed
        if len(line) > MAX_LINE and part[-1] != "\n":
            cut = len(line) - MAX_LINE
            self._line, self._from, self._clear = line[cut:], max(0, self._from - cut), max(0, self._clear - cut)
        return found

    def _end_of_work(self) -> Statement | None:
        """A blank line after one that ends in `= value`: the last line of a worked solution."""
        if self._line.strip():
            self._block = self._line.rstrip()[-80:]
            return None
        value = _RESULT.search(self._block) if self._numeric else None
        self._block = ""
        return Statement(clean(value[1]), False) if value else None

    def _scan(self, line: str) -> Statement | None:
        """Look at the current line for something that has just been completed."""
        boxed = _BOXED.search(line, self._from) if "\\boxed" in line else None
        if boxed:
            self._from = boxed.end()
            return Statement(boxed[1].strip(), True) if boxed[1].strip() else None
        strong = self._noun.search(line, self._clear) if self._announces(line) else None
        if strong and self._is_complete(line, strong.end(1)):
            self._from = strong.end(1)
            return Statement(clean(strong[1]), True)
        if _SENTENCE_END.search(line, max(self._from, len(line) - 2)) is None and not (
            "<" in line and _CLOSES.search(line, self._from)
        ):
            return None
        sentence, self._from = line[self._from :].strip(), len(line)
        return self._sentence(sentence.rstrip(".!?"))

    def _announces(self, line: str) -> bool:
        """Whether a noun that announces an answer stands in what is left of the line; none does before `_clear`."""
        small = line.lower()
        begin = max(self._from, self._clear) if len(small) == len(line) else 0
        noun = _ANNOUNCES.search(small, begin)
        if len(small) != len(line):  # a letter that is two small ones: places differ
            self._clear = self._from
        else:
            self._clear = max(begin, len(line) - _LONGEST) if noun is None else noun.start()
        return noun is not None

    def _sentence(self, sentence: str) -> Statement | None:
        """A finished sentence: a conclusion without arithmetic is a strong statement, with arithmetic a weak one."""
        if len(sentence) > MAX_LINE:
            return None
        strong = self._conclusive.match(sentence)
        if strong and not (self._numeric and _OPERATOR.match(sentence, strong.end(1))):
            return Statement(clean(strong[1]), True)
        if not self._numeric:
            return None
        head, equals, last = sentence.rpartition("=")
        if equals:
            value = re.match(rf"{_LEAD}({NUMBER})(?!\d)", last)
            if value and not _OPERATOR.match(last, value.end(1)) and (self._weak.match(sentence) or _total(head)):
                return Statement(clean(value[1]), False)
            return None
        weak = self._weak.match(sentence)
        return Statement(clean(weak[1]), False) if weak and not re.search(r"\d\s*[-+*/×÷]\s*\d", sentence) else None

    def _is_complete(self, line: str, end: int) -> bool:
        if not self._numeric:
            return end < len(line)
        following = line[end:]
        if not following or following[0].isdigit():
            return False
        if following[0] in ",./":
            return len(following) > 1 and not following[1].isdigit() and not _OPERATOR.match(following)
        if following[0] == " " and len(following) == 1:
            return False  # an operator may follow
        return not _OPERATOR.match(following)


@cache
def detector_for(stated: str | None) -> StatementDetector:
    """The detector of an answer format; its expressions are compiled once, `fresh` copies share them."""
    return StatementDetector(stated)


def _total(head: str) -> bool:
    return re.search(r"\b(?:total|altogether|in all|answer|result)\b", head, re.IGNORECASE) is not None


def clean(value: str) -> str:
    """A value without separators, units of currency and emphasis."""
    return re.sub(r"[\s,$€£*_]", "", value).replace("\u2212", "-").rstrip(".")
