"""What every method is told of the request it decides on, in one place: budget, chunks, answers, thinking."""

from __future__ import annotations

from dataclasses import dataclass

from bitcal_tts.halting.answers import FORMATS, AnswerFormat
from bitcal_tts.halting.checks import number, whole


@dataclass(frozen=True, kw_only=True)
class RequestParameters:
    """What all methods share. They are the one owner of it: sessions, engines and replay read it here.

    Attributes:
        name: Of the method.
        bits: Served weight precision.
        budget: Hard cap on new tokens.
        chunk_size: Tokens between decisions; 1 where every token is looked at.
        answers: How the answers are written, by the name of a format.
        opening: The marker that begins the thinking; None where the prompt has opened it.
        close: The marker that ends the thinking; None where the model has none.
    """

    name: str
    bits: float
    budget: int
    chunk_size: int = 1
    answers: str = "gsm8k"
    opening: str | None = None
    close: str | None = None

    def __post_init__(self) -> None:
        for name in ("budget", "chunk_size"):
            whole(name, getattr(self, name), least=1)
        number("bits", self.bits, least=1.0)
        if self.answers not in FORMATS:
            raise ValueError(f"answers must be one of {', '.join(FORMATS)}, got {self.answers!r}")
        for name in ("opening", "close"):
            marker = getattr(self, name)
            if marker is not None and (not isinstance(marker, str) or not marker):
                raise ValueError(f"{name} must be a marker such as <think>, or nothing; got {marker!r}")

    @property
    def format(self) -> AnswerFormat:
        """The answer format."""
        return FORMATS[self.answers]
