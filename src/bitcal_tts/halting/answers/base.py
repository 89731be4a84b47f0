"""What an answer format is, and the simplest one."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod

MARKER = "####"
_SOMETHING = re.compile(r"\S")


def behind_marker(text: str) -> str:
    """What stands behind the last marker, or all of it where there is none."""
    return text.rpartition(MARKER)[2].strip()


class AnswerFormat(ABC):
    """How a task's answers are written.

    Attributes:
        name: In the registry.
        cue: What makes a model write its answer next, for a soft landing.
        stated: What a value looks like in running text, a regular expression with one group; None is a number.
        reserve: Tokens that writing an answer may take.
        values: What kind of values its answers are, by the name in `halting.values`; None where they are any text.
        closing: Characters without one of which no answer becomes complete; None where any may do that.
    """

    name: str
    cue: str = MARKER
    stated: str | None = r"[\"'`]?([^\n.;\"'`]{1,80})"
    reserve: int = 32
    values: str | None = None
    closing: str | None = None

    @abstractmethod
    def start(self, text: str, at: int = 0) -> int | None:
        """Where the first answer announced at or after `at` starts, or None."""

    @abstractmethod
    def complete(self, text: str, start: int, *, ended: bool = False) -> int | None:
        """Where the answer that starts at `start` ends, or None while more text could still change it.

        Args:
            text: The text so far.
            start: As `start` returned it.
            ended: Whether the text is final, so that nothing can follow.
        """

    @abstractmethod
    def value(self, text: str) -> str | None:
        """The answer that a finished text gives, or None."""

    def unfinished(self, text: str) -> str | None:
        """The answer of a text that ends inside its thinking: what it gives outright, not what it weighs."""
        return self.value(text)

    def given(self, text: str) -> bool:
        """Whether a text holds a complete answer, so that nothing need be added."""
        at = self.start(text)
        while at is not None:
            if self.complete(text, at) is not None:
                return True
            at = self.start(text, self.behind(text, at))
        return False

    def behind(self, text: str, at: int) -> int:
        """From where on another announcement may tell what the one at `at` does not."""
        return at

    def open_part(self, text: str) -> str:
        """What of a text without a complete answer may still become one."""
        return text

    def written(self, value: str) -> str:
        """What a model writes after the cue to answer with a value."""
        return f" {value}\n"

    def equal(self, one: str, other: str) -> bool:
        """Whether two values are the same answer."""
        return one.strip() == other.strip()

    def keeps(self, answer: str | None, final: str | None) -> bool:
        """Whether an answer is the one that the whole text ends with; where that has none, nothing can be lost."""
        return final is None or (answer is not None and self.equal(answer, final))


class MarkedText(AnswerFormat):
    """Whatever stands on the line after the last marker."""

    name = "marked_text"

    def __init__(self, marker: str = MARKER) -> None:
        self.marker = marker

    def start(self, text: str, at: int = 0) -> int | None:
        """Just after the first marker, or the last of those in a row."""
        found = text.find(self.marker, at)
        if found < 0:
            return None
        while text.startswith(self.marker, found):
            found += len(self.marker)
        return found

    def complete(self, text: str, start: int, *, ended: bool = False) -> int | None:
        """At the end of the first line that says something."""
        begun = _SOMETHING.search(text, start)
        if begun is None:
            return None
        end = text.find("\n", begun.start())
        return end if end >= 0 else len(text) if ended else None

    def behind(self, text: str, at: int) -> int:
        """At the end: where the first marker has no whole line behind it, no other one has."""
        return len(text)

    def from_last_marker(self, text: str) -> str:
        """What stands from the last marker on; of a ruler of them, as much as changes what stands behind it."""
        at = max(text.rfind(self.marker), 0)
        ruler = at - len(text[:at].rstrip("#")) if set(self.marker) == {"#"} else 0
        return text[at - ruler % len(self.marker) :]

    def value(self, text: str) -> str | None:
        """The line after the last marker."""
        _, marker, rest = text.rpartition(self.marker)
        return (rest.strip().partition("\n")[0].strip() or None) if marker else None
