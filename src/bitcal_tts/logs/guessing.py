"""What the texts of a log tell of how they were written: the markers of their thinking, the format of their answers."""

from __future__ import annotations

import re
from collections.abc import Sequence

from bitcal_tts.halting.answers import FORMATS
from bitcal_tts.halting.markers import FAMILIES, HARMONY
from bitcal_tts.logs.texts import LoggedText

_MARKS: dict[str, str | None] = {
    **{close: opening for opening, close in FAMILIES if close != HARMONY[1]},
    "</thought>": "<thought>",
    "<|channel|>final<|message|>": HARMONY[0],
    "<|channel|>final <|message|>": "<|channel|>analysis <|message|>",
    "<|im_start|>answer\n": "<|im_start|>think\n",  # s1
    "\nanswer\n": None,  # the same without special tokens
}
"""How models end their thinking in logs, and how they begin it."""


def opening_of(responses: Sequence[str], close: str | None) -> str | None:
    """The marker that begins the thinking, where the texts that end one have it: texts without it do not think.

    None where they have not begun it: the prompt has, and a text is inside it from the start. One that merely speaks of
    the marker says nothing.
    """
    opening = _MARKS.get(close or "")
    if opening is None or close is None:
        return None
    begun = [opening in text.partition(close)[0] for text in responses if close in text]
    return opening if begun and sum(begun) >= 0.9 * len(begun) else None


def closing_of(responses: Sequence[str]) -> str | None:
    """The marker that ends the thinking in a fair share of texts, or None where they do not think aloud."""
    shares = {mark: sum(mark in text for text in responses) / max(1, len(responses)) for mark in _MARKS}
    best = max(_MARKS, key=lambda mark: shares[mark])
    return best if shares[best] >= 0.2 else None


def format_of(texts: Sequence[LoggedText]) -> str:
    """The answer format that gold answers, else responses, tell."""
    options = sum(
        len(re.findall(r"^[ \t]*\(?(?:[A-J]|[1-9])[.):]\s+\S", text.question, re.MULTILINE)) > 2 for text in texts
    )
    answers = [text.answer for text in texts if text.answer is not None]
    if options > 0.8 * len(texts) and all(FORMATS["option"].value(f"#### {answer}\n") for answer in answers):
        return "option"
    if not answers:
        found = [FORMATS["expression"].value(text.response) for text in texts]
        answers = [value for value in found if value is not None]
    numbers = sum(_is_number(answer) for answer in answers)
    return "number" if numbers >= 0.9 * len(answers) else "expression"


def _is_number(text: str) -> bool:
    return FORMATS["number"].equal(text, text)
