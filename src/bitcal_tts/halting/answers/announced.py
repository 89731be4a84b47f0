r"""Answers as models write them unasked: boxed, tagged, behind a marker, or merely called the answer.

For texts that were written for somebody else's prompt. An answer is *given*, so that nothing need be added, only where
it is announced in a way that cannot be meant otherwise: `\boxed{7}`, `#### 7`, `<answer>7</answer>`.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from bisect import bisect_left
from fractions import Fraction

from bitcal_tts.halting.answers.base import AnswerFormat
from bitcal_tts.halting.answers.boxed import Boxed, balanced, boxes, first_open
from bitcal_tts.halting.answers.numbers import NUMBER, as_number, in_digits, number_in

_OPEN = re.compile(r"\\(?:boxed|fbox)\s*\{|#{4,}(?:\s*#{2,})*|<answer>", re.IGNORECASE)
# What stands before the answer is looked ahead for and taken as a whole: a text may end in thousands of spaces.
# So is what follows: it may call something the answer again, and better.
_CALLED = re.compile(
    r"\b(?:answer|(?:correct|right|best) (?:option|choice))\b(?=(?P<before>[\"`*]*\s*"
    r"(?P<copula>(?:is|are|should be|would be|must be|will be)\b|[:=\uff1a])?\s*(?:option|choice)?"
    r"(?:[\s:*\"`\uff1a]|\\[\[(]|\$\$|</?(?:b|strong|em|i)>)*))(?P=before)(?=(?P<said>[^\n]{1,200}))",
    re.IGNORECASE,
)
_AFTERWARDS = re.compile(r"^\W*(?:the )?(?:final )?(?=answer\W*[:=])", re.IGNORECASE | re.MULTILINE)
_END = re.compile(r"</?[A-Za-z]\w*\s*/?>|\n")
_LABEL = re.compile(
    r"(?=(?P<typography>(?:[\s*_:=($\[{\\#]|(?:(?:text|math)(?:bf|rm|it|sf)?|option|choice)\b)*))(?P=typography)"
    r"(?P<label>(?-i:[A-HJ1-9])|[A-J](?=\s*(?:[])}.,:;*$\\]|$)))(?!\w)",  # "a" and "I" are words, too
    re.IGNORECASE,
)
# Behind a row of # stands an answer, or a heading: "#### Step 3: Add", "#### 3. Conclusion".
_NUMBERED = re.compile(
    r"[\s*_(]*\d{1,3}(?:\.\d{1,2})*(?:(?:st|nd|rd|th)\b|-[A-Za-z]|\s*(?:\\?[.):]|[-\u2013\u2014]|\ufe0f?\u20e3)"
    r"[\s*_$\\(]*[^\W\d_]|\s+(?-i:[A-Z])[a-z])"
)
_HEADED = re.compile(
    r"\W*(?:(?:step|part|case|method|approach|solution|conclusion|explanation|verification|problem|question|analysis|"
    r"understand\w*|simplif\w*|solv\w*|find\w*|calculat\w*|comput\w*|determin\w*|check\w*|verify\w*|substitut\w*|"
    r"evaluat\w*|combin\w*|expand\w*|apply\w*|defin\w*|identify\w*|summary|setup|given|reasoning|thinking)\b"
    r"|(?:the )?(?:final )?(?:answer|result)\W*$)",
    re.IGNORECASE,
)
# What stands where an answer is to be put: "in \\boxed{}", "\\boxed{answer}".
_PLACEHOLDER = re.compile(
    r"(?:\W|_|text|math(?:rm|bf)|your|the|final|correct|answer|letter|option|number|result|choice|value|here)*",
    re.IGNORECASE,
)
_PREFIX = re.compile(r"\A\W{0,4}(?:the )?(?:final )?answer\W*?(?:\bis\b|[:=])\s*", re.IGNORECASE)
_BOLD_END = re.compile(r"(?<=[^\s*])\*\*(?![\w(*])")
_OPINION = re.compile(r"\W*(?:not|in|correct|incorrect|right|wrong|as follows|above|below|given)\b", re.IGNORECASE)
_FORMULA = re.compile(r"[\^_]|\\(?:sqrt|pi|times|cdot|frac\s*\{\s*\\)")
_POWER = re.compile(
    r"\W*(?:(?P<factor>\d+(?:\.\d+)?)\s*(?:\\times|\\cdot|\u00d7|\*)\s*)?(?P<base>\d{1,6})\s*\^\s*\{?\s*(?P<power>-?\d{1,2})\s*\}?"
    r"\s*[.$*)\\]*"
)
_SPACED = re.compile(r"(?<![\d.,])\d{1,3}(?: \d{3})+(?![\d,])")
_VULGAR = str.maketrans({"\u00bd": " 1/2", "\u00bc": " 1/4", "\u00be": " 3/4", "\u2153": " 1/3", "\u2154": " 2/3"})
_STARTS_WITH_NUMBER = re.compile(
    r"[\s*_:=($\[{\\]*(?:(?:the\s+)?(?:final\s+)?answer\b\W*(?:is\b\W*)?)?[-+\u2212\u2013]?[\s$€£*_({\\]*"
    r"(?:\.?\d|[dt]?frac(?![a-z]))",
    re.IGNORECASE,
)
_FIRST_NUMBER = re.compile(r"[-\u2212]?\$?\d[\d,]*(?:\.\d+)?(?:/\d+)?")
_BOLD_NUMBER = re.compile(r"\*\*[\s$€£\\]*(?P<number>[-\u2212]?\d[^*\n]{0,40})\*\*")
_LAST_NUMBER = re.compile(rf"(?<![\w.]){NUMBER}")
_RESULT = re.compile(rf"=\s*(?:\\?[$€£]|\\text\s*\{{[^{{}}]{{0,40}}\}}|\s)*({NUMBER})")
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")
_CHOSEN = re.compile(
    r"(?:option|choice)\s*[*(]*(?P<named>(?-i:[A-J])|[1-9])[*)]*\s+(?:is|would be)\s+(?:the\s+)?"
    r"(?:correct|right|best|answer)"
    r"|(?<![\w'])[*(]*(?P<bare>(?-i:[A-J]))[*)]*\s+is\s+(?:the\s+)?(?:correct|right|best)?\s*(?:answer|option|choice)\b",
    re.IGNORECASE,
)
_BOXED = Boxed()
_TAIL = 1200
_CLOSE_BY = 400
_LINE = 1000
_BEGINNING = 16
_ENOUGH = 20_000


def _is_line(text: str, at: int) -> bool:
    """Whether a line says at a place what the answer is, and nothing before."""
    begun = _AFTERWARDS.match(text, text.rfind("\n", 0, at) + 1)
    return begun is not None and begun.end() == at


class Announced(AnswerFormat):
    """What all of them share: where an answer is announced, and in which order announcements are believed."""

    cue = "\\boxed{"
    closing = "}\n>"

    @abstractmethod
    def read(self, announced: str) -> str | None:
        """The value at the beginning of what was announced, or None."""

    @abstractmethod
    def is_heading(self, line: str) -> bool:
        """Whether what stands behind a row of # is no answer."""

    def read_called(self, said: str, copula: str | None) -> str | None:
        """The value that is called the answer, by a word or a sign that says so or by none; the sentence may go on."""
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
        announced, end = self._announced(text)
        for called in reversed(list(_CALLED.finditer(text, end))):
            # Behind a box or a tag only a line counts that says outright what the answer is, after all.
            if announced is not None and not _is_line(text, called.start()):
                continue
            value = self.read_called(called["said"], called["copula"])
            if value is not None:
                return value
        return announced if announced is not None else self.last_resort(text.rstrip()[-_TAIL:])

    def unfinished(self, text: str) -> str | None:
        """The last announced value."""
        return self._announced(text[-_ENOUGH:])[0]

    def _announced(self, text: str) -> tuple[str | None, int]:
        """The last announced value, and where it ends."""
        closed = dict(boxes(text))
        for found in reversed(list(_OPEN.finditer(text))):
            at = found.end()
            end = closed.get(at) if text[at - 1] == "{" else self.complete(text, at, ended=True)
            if end is None or (text[at - 1] == "#" and self.is_heading(text[at:end])):
                continue
            value = self.read(text[at:end] if text[at - 1] == "{" else text[at : min(end, at + _LINE)])
            if value is not None:
                return value, end
        return None, 0

    def given(self, text: str) -> bool:
        """Whether a box is closed around an answer, or a tagged or marked answer is complete."""
        if _OPEN.search(text) is None:
            return False
        for start, end in boxes(text):
            content = text[start : min(end, start + _LINE)]
            if "\\boxed" not in content and self.read(content) is not None:
                return True
        ends = [found.start() for found in _END.finditer(text)]
        for found in _OPEN.finditer(text):
            at = found.end()
            following = bisect_left(ends, at)
            if text[at - 1] == "{" or following == len(ends):
                continue
            line = text[at : min(ends[following], at + _LINE)]
            if not (text[at - 1] == "#" and self.is_heading(line)) and self.read(line) is not None:
                return True
        return False

    def open_part(self, text: str) -> str:
        """From the first box, tag or marker on that nothing has ended; and what may become the beginning of one."""
        opened = min(first_open(text), max(0, len(text) - _BEGINNING))
        ended = max((found.end() for found in _END.finditer(text)), default=0)
        marks = (found for found in _OPEN.finditer(text) if not found[0].endswith("{") and found.end() >= ended)
        first = next(marks, None)
        if first is None or first.start() >= opened:
            return text[opened:]
        # A ruler says no more than a row of four.
        return f"####{text[first.end() :]}" if first[0][0] == "#" and first.end() <= opened else text[first.start() :]

    def written(self, value: str) -> str:
        """Closes the box."""
        return f"{value}}}"


class Number(Announced):
    """A number, whatever stands around it: a unit, a currency, a derivation."""

    name = "number"
    stated = None
    values = "numbers"

    def read(self, announced: str) -> str | None:
        """The only number, or the first of several that make no formula."""
        announced = _SPACED.sub(lambda found: found[0].replace(" ", ""), announced.translate(_VULGAR).rstrip(". "))
        number = number_in(announced)
        if number is None:
            power = _POWER.fullmatch(announced)
            if power is not None and (power["base"] == "10" or not power["factor"]):
                number = Fraction(power["factor"] or 1) * Fraction(power["base"]) ** int(power["power"])
        if number is None and not _FORMULA.search(announced):
            first = _FIRST_NUMBER.search(announced)
            number = as_number(first[0]) if first else None
        return None if number is None else in_digits(number)

    def read_called(self, said: str, copula: str | None) -> str | None:
        """The number that it begins with, or the only one, or the one in bold; a derivation's first is no answer."""
        if _STARTS_WITH_NUMBER.match(said) or number_in(said) is not None:
            return self.read(said)
        bold = _BOLD_NUMBER.search(said)
        return None if bold is None else self.read(bold["number"])

    def is_heading(self, line: str) -> bool:
        """Whether it does not begin with a number, or with that of a heading."""
        return _STARTS_WITH_NUMBER.match(line) is None or _NUMBERED.match(line) is not None

    def last_resort(self, tail: str) -> str | None:
        """The last sentence's number that was computed last; else the last number."""
        last = _SENTENCE.split(tail)[-1][-_CLOSE_BY:]
        said = [as_number(number) for number in _LAST_NUMBER.findall(last)]
        if "=" not in last and "**" not in last:
            for result in reversed(_RESULT.findall(tail[: -len(last)] if last else tail)):
                if (number := as_number(result)) is not None and number in said:
                    return in_digits(number)
        found = _LAST_NUMBER.findall(tail[-_CLOSE_BY:])
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
        """All of it, without the full stop; of what begins in bold or as a formula, what stands between its marks."""
        text = _PREFIX.sub("", announced.strip(), count=1).strip()
        for mark in ("**", "$$", "$"):
            if text.startswith(mark) and text.count(mark) == 2:
                text = text[len(mark) :].partition(mark)[0].strip()
        if (closed := _BOLD_END.search(text)) is not None:  # it began before what is read
            text = text[: closed.start()]
        text = text.strip("*$ ").removesuffix(".").strip("*$ ")
        return text if text and not _PLACEHOLDER.fullmatch(text) else None

    def read_called(self, said: str, copula: str | None) -> str | None:
        """What is said to be the answer; not what is said of it."""
        return None if copula is None or _OPINION.match(said) else self.read(said.removesuffix("</b>"))

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

    def last_resort(self, tail: str) -> str | None:
        """The option that is said to be the right one."""
        found = list(_CHOSEN.finditer(tail[-_CLOSE_BY:]))
        return (found[-1]["named"] or found[-1]["bare"]) if found else None

    def equal(self, one: str, other: str) -> bool:
        """The same label."""
        left, right = self.read(one), self.read(other)
        return left is not None and left == right
