r"""Mathematics: the content of the last `\boxed{}`."""

from __future__ import annotations

import re

from bitcal_tts.halting.answers.base import AnswerFormat
from bitcal_tts.halting.answers.numbers import as_number

_BOX = r"\\(?:boxed|fbox)\s*\{"
_OPEN = re.compile(_BOX)
_BRACES = re.compile(rf"(?P<box>{_BOX})|\\(?!{_BOX}).|[{{}}]", re.DOTALL)


class Boxed(AnswerFormat):
    r"""`\boxed{...}` with balanced braces; equality here is textual or numeric, a task may know better."""

    name = "boxed"
    cue = "\\boxed{"
    stated = None
    reserve = 64
    values = "expressions"
    closing = "}"

    def start(self, text: str, at: int = 0) -> int | None:
        """Just inside the first opening brace."""
        found = _OPEN.search(text, at)
        return found.end() if found else None

    def complete(self, text: str, start: int, *, ended: bool = False) -> int | None:
        """At the brace that closes it."""
        return balanced(text, start)

    def value(self, text: str) -> str | None:
        """The content of the last box that is closed and not empty."""
        closed = [(start, end) for start, end in boxes(text) if text[start:end].strip()]
        return text[slice(*max(closed))].strip() if closed else None

    def given(self, text: str) -> bool:
        """Whether a box is closed around something."""
        return any(text[start:end].strip() for start, end in boxes(text))

    def written(self, value: str) -> str:
        """Closes the box."""
        return f"{value}}}"

    def equal(self, one: str, other: str) -> bool:
        """The same text up to spaces and typography, or the same number."""
        left, right = plain_formula(one), plain_formula(other)
        if left == right:
            return True
        number = as_number(left)
        return number is not None and number == as_number(right)


def boxes(text: str) -> list[tuple[int, int]]:
    """Where the contents of boxes that are closed begin and end."""
    return _boxes(text)[0]


def first_open(text: str) -> int:
    """Where the first box begins that is not closed; the text's end where none is open."""
    return min(_boxes(text)[1], default=len(text))


def _boxes(text: str) -> tuple[list[tuple[int, int]], list[int]]:
    """The contents of closed boxes, and where those begin that are open, in one pass over the text."""
    first = _OPEN.search(text)
    within: list[re.Match[str]] = []  # what is open: boxes, and other braces inside them
    closed = []
    for part in _BRACES.finditer(text, first.start()) if first else ():
        if part["box"] or (part[0] == "{" and within):
            within.append(part)
        elif part[0] == "}" and within and (opened := within.pop())["box"]:
            closed.append((opened.end(), part.start()))
    return closed, [part.start() for part in within if part["box"]]


def balanced(text: str, start: int) -> int | None:
    """Behind the brace that closes the one before `start`, or None."""
    depth = 1
    i = start
    while i < len(text):
        if text[i] == "\\":
            i += 2
            continue
        depth += {"{": 1, "}": -1}.get(text[i], 0)
        if depth == 0:
            return i + 1
        i += 1
    return None


def plain_formula(text: str) -> str:
    """A formula without spaces and typography."""
    text = re.sub(r"\\(?:left|right|,|;|!|\s)|\s|\\\$|\$|\\%|%", "", text)
    text = re.sub(r"\\(?:text|mathrm|mbox)\{([^{}]*)\}", r"\1", text)
    text = re.sub(r"\\[dt]?frac\{(-?\d+)\}\{(\d+)\}", r"\1/\2", text)
    return text.replace("\\dfrac", "\\frac").replace("\\tfrac", "\\frac").rstrip(".")
