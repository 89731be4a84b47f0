"""Where a growing text stands: before its thinking, inside it, past it, with an answer given or not."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate

from bitcal_tts.halting.answers import AnswerFormat
from bitcal_tts.halting.words import Word

_KEPT = 4000  # characters in which an answer must be found


class Stage(Word):
    """Where a text stands."""

    REASONING = "reasoning"
    """No answer has been given; the text is not inside marked thinking."""
    THINKING = "thinking"
    """Inside the thinking."""
    WRITING = "writing"
    """The thinking was closed, and no answer stands yet behind it."""
    OVER = "over"
    """An answer stands outside of any thinking: nothing is left to cut short."""


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

    def still_inside(self, pieces: Sequence[str]) -> int:
        """How many of the next pieces leave a text that is inside its thinking there."""
        assert self._close is not None
        found = (self._tail + "".join(pieces)).find(self._close)
        if found < 0:
            return len(pieces)
        return bisect_left(list(accumulate(map(len, pieces))), found + len(self._close) - len(self._tail))

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


class Reading:
    """The state of one text: its stage, and whether a complete answer stands outside its thinking."""

    __slots__ = ("_buffer", "_format", "_thinking", "_thinks", "answered")

    def __init__(self, format: AnswerFormat, opening: str | None, close: str | None) -> None:
        self._format = format
        self._thinks = close is not None
        self._thinking = ThinkingTracker(opening, close)
        self._buffer = ""
        self.answered = False

    @property
    def stage(self) -> Stage:
        """Where the text stands now."""
        if self.answered:
            return Stage.OVER
        if self._thinks and self._thinking.over:
            return Stage.WRITING
        return Stage.THINKING if self._thinking.inside else Stage.REASONING

    def stages(self, pieces: Sequence[str]) -> list[Stage]:
        """Take the next pieces of text; the stage after each of them."""
        stages: list[Stage] = []
        while (n := len(stages)) < len(pieces):
            quiet = len(pieces) - n if self.answered else 0
            if self._thinking.inside:
                quiet = self._thinking.still_inside(pieces[n:])
                self._thinking.feed("".join(pieces[n : n + quiet]))
            if quiet:
                stages += [self.stage] * quiet
            else:
                self.feed(pieces[n])
                stages.append(self.stage)
        return stages

    def feed(self, piece: str) -> None:
        """Take the next piece of text."""
        outside = self._thinking.feed(piece)
        if self.answered or not outside:
            return
        self._buffer += outside
        closing = self._format.closing
        if closing is None or not set(closing).isdisjoint(outside):
            self.answered = self._format.given(self._buffer)
            self._buffer = self._format.open_part(self._buffer)
        if len(self._buffer) > _KEPT:
            self._buffer = self._buffer[-_KEPT // 2 :]
