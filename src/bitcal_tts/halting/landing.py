"""The soft landing: instead of a cut in mid-sentence, the thinking is closed and the answer is cued."""

from __future__ import annotations

from typing import NamedTuple

from bitcal_tts.halting.answers import AnswerFormat
from bitcal_tts.halting.controller import Probe


class Landing(NamedTuple):
    """What is appended so that the model writes its answer next: the end of the thinking, then a cue."""

    closing: str
    cue: str


def landing(text: str, close: str | None, cue: str) -> Landing:
    """The landing for a text.

    Args:
        text: The text so far, or its end.
        close: The marker that ends the thinking, or None where the text is not inside thinking.
        cue: What announces an answer, such as `####`.
    """
    line = "" if not text or text.endswith("\n") else "\n"
    return Landing(f"{line}{close}\n\n" if close else line, cue)


def fitting(probe: Probe, room: int, format: AnswerFormat) -> tuple[int, str] | None:
    """Tokens and text of a landing that was carried out aside, in the room there is; None where it has none.

    Where the answer does not fit as a whole, nothing of it counts: half a number is no answer.
    """
    if probe.forced_tokens >= room:
        return None
    whole = probe.n_tokens < room or room >= format.reserve
    if not whole and probe.n_tokens == room:
        whole = format.given(format.cue + probe.text)
    return min(probe.n_tokens, room), probe.text if whole else ""


class AnswerWriting:
    """What a model writes after a landing, up to the end of its answer.

    Args:
        format: How answers are written.
        cue: What announced the answer.
        limit: Most tokens it may write.
        text: What it has written already.
        must_end: Whether an answer that the limit cuts counts for nothing.
    """

    __slots__ = ("_cue", "_cut", "_format", "_must_end", "limit", "over", "text", "tokens")

    def __init__(self, format: AnswerFormat, cue: str, limit: int, text: str = "", *, must_end: bool = False) -> None:
        self._format, self._cue, self.limit, self._must_end = format, cue, limit, must_end
        self._cut = False
        self.text = text
        self.tokens = 0
        self.over = limit < 1

    def feed(self, piece: str) -> None:
        """Take the next token's text."""
        self.tokens += 1
        self.text += piece
        given = self._format.given(self._cue + self.text)
        self._cut = self.tokens >= self.limit and not given
        self.over = self._cut or given

    @property
    def answer(self) -> str | None:
        """What was answered."""
        return None if self._cut and self._must_end else self._format.value(self._cue + self.text)
