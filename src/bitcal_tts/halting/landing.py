"""The soft landing: instead of a cut in mid-sentence, the thinking is closed and the answer is cued."""

from __future__ import annotations

from typing import NamedTuple


class Landing(NamedTuple):
    """What an engine appends so that the model writes its answer next: the end of the thinking, then a cue."""

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


class ThinkingTracker:
    """Whether a growing text is inside its thinking: from the start, or its opening marker, to the closing one.

    Args:
        opening: The marker that begins the thinking; None where the prompt has opened it already.
        close: The marker that ends it; None where the model has no thinking.
    """

    __slots__ = ("_close", "_opening", "_tail", "inside", "over")

    def __init__(self, opening: str | None, close: str | None) -> None:
        self._opening, self._close = opening, close
        self._tail = ""
        self.inside = close is not None and opening is None
        self.over = close is None

    def feed(self, piece: str) -> str:
        """Take the next piece of text; what of it stands outside the thinking."""
        if self.over:
            return piece
        assert self._close is not None
        window = self._tail + piece
        outside = piece
        if not self.inside and self._opening is not None and self._opening in window:
            self.inside = True
            window = window.partition(self._opening)[2]
        if self.inside:
            outside = ""
            if self._close in window:
                self.inside, self.over = False, True
                outside = window.partition(self._close)[2]
        keep = max(len(self._close), len(self._opening or "")) - 1
        self._tail = window[-keep:] if keep else ""
        return outside
