"""What a text answers: as it stands, or if it were stopped somewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bitcal_tts.halting.answers import AnswerFormat
from bitcal_tts.halting.controller import Probe
from bitcal_tts.halting.exchange import WouldBe
from bitcal_tts.halting.landing import fitting
from bitcal_tts.halting.reading import ThinkingTracker


def answer_of(text: str, p: Any) -> str | None:
    """What a text answers that nobody landed; of one that never left its thinking, only what it gives outright.

    Args:
        text: As it stands.
        p: Parameters of the method that it was written under: answer format and think markers.
    """
    thinking = ThinkingTracker(p.opening, p.close)
    thinking.feed(text)
    format: AnswerFormat = p.format
    return format.unfinished(text) if thinking.inside else format.value(text)


def stopped(where: WouldBe, text: Callable[[], str], probe: Callable[[], Probe], p: Any) -> tuple[int, str | None]:
    """Tokens and answer of a request that is stopped somewhere.

    Args:
        where: The stop.
        text: Up to there.
        probe: What the model writes after a landing there; asked for where one is needed.
        p: Parameters of the method.
    """
    if where.landing is not None:
        written = fitting(probe(), where.room, p.format)
        if written is not None:
            tokens, answer = written
            return where.at + tokens, p.format.value(p.format.cue + answer)
    return where.at, answer_of(text(), p)
