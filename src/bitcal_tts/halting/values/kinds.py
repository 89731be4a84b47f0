"""What values look like: numbers, expressions, the options of a multiple choice."""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any, Protocol

from bitcal_tts.halting.answers.boxed import plain_formula
from bitcal_tts.halting.answers.numbers import in_digits, number_in
from bitcal_tts.halting.values.asking import Asking
from bitcal_tts.halting.values.numbers import Mention, mentions, plain

_BOXED = re.compile(r"\\(?:boxed|fbox)\s*\{((?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*)\}")
_FORMULA = re.compile(r"(?:\\\(|\\\[|\$\$?)(.+?)(?:\\\)|\\\]|\$\$?)")
_CALLED = re.compile(
    r"\b(?:answer|option|choice)\b\W{0,40}(?:(?:is|are|should be|would be|must be|number)\b)?\W{0,40}"
    r"((?-i:[A-HJ])|[1-9]|[A-J](?=\s*(?:[])}.,:;*$\\]|$)))(?!\w)"
    r"|<answer>\s*([A-J]|[1-9])|\(([A-J])\)|^\W*([A-J])\W*$",
    re.IGNORECASE,
)


class ValueKind(Protocol):
    """Finds values in a sentence."""

    def mentions(self, sentence: str, asking: Asking) -> Sequence[Mention]:
        """Values where they stand, with what they are there."""
        ...

    def boxed(self, sentence: str) -> list[Hashable]:
        r"""Values in a `\boxed{}`."""
        ...

    def text(self, value: Hashable) -> str:
        """A value as an answer is written."""
        ...


class Numbers:
    """Exact numbers."""

    def mentions(self, sentence: str, asking: Asking) -> Sequence[Mention]:
        """Numbers in digits or words, in running text or formulas."""
        return _numbers(sentence)

    def boxed(self, sentence: str) -> list[Hashable]:
        """Boxed numbers; units beside them do not matter."""
        found = map(number_in, _boxes(sentence))
        return [value for value in found if value is not None]

    def text(self, value: Hashable) -> str:
        """In digits, as a decimal where it has an end."""
        assert isinstance(value, (int, Fraction))
        return in_digits(value)


class Expressions(Numbers):
    """Numbers, and formulas that come out or are boxed, as text without typography."""

    def mentions(self, sentence: str, asking: Asking) -> Sequence[Mention]:
        """Numbers, and what stands behind the last `=` of a formula."""
        found = list(_numbers(sentence))
        for formula in _FORMULA.findall(sentence):
            _, equals, result = formula.rpartition("=")
            value = _formula(result) if equals else None
            if isinstance(value, str):
                found.append(Mention(value, value, result=True, computed=True))
        return found

    def boxed(self, sentence: str) -> list[Hashable]:
        """Whatever is boxed; a number as a number."""
        found = map(_formula, _boxes(sentence))
        return [value for value in found if value is not None]

    def text(self, value: Hashable) -> str:
        """As it was found."""
        return value if isinstance(value, str) else super().text(value)


class Options:
    """Labels of a multiple choice, named by themselves or by the text behind them."""

    def mentions(self, sentence: str, asking: Asking) -> Sequence[Mention]:
        """Options that are called by their label or said in full."""
        found = []
        for match in _CALLED.finditer(sentence):
            label = next(group for group in match.groups() if group).upper()
            found.append(Mention(label, label, result=True))
        low = " ".join(re.findall(r"\w+", sentence.lower()))
        for label, text in asking.options.items():
            if text and text in low:
                found.append(Mention(label, label, result=True, computed=True))
        return found

    def boxed(self, sentence: str) -> list[Hashable]:
        """Boxed labels."""
        found = (
            re.match(r"\W*(?:(?:text|math)(?:bf|rm|it|sf)?\W*)*([A-J]|[1-9])(?!\w)", box) for box in _boxes(sentence)
        )
        return [match[1] for match in found if match]

    def text(self, value: Hashable) -> str:
        """The label."""
        return str(value)


KINDS: dict[str, ValueKind] = {"numbers": Numbers(), "expressions": Expressions(), "options": Options()}
"""By the name that answer formats have for them."""


def as_text(value: Any, kind: ValueKind | None) -> str:
    """A value as an answer is written."""
    text: str = value if kind is None or isinstance(value, str) else kind.text(value)
    return text


def _boxes(sentence: str) -> list[str]:
    r"""What stands in a `\boxed{}`; most sentences have none, which is quickly seen."""
    return _BOXED.findall(sentence) if "\\" in sentence else []


@lru_cache(maxsize=4096)  # sentences come again
def _numbers(sentence: str) -> tuple[Mention, ...]:
    return tuple(mentions(plain(sentence)))


@lru_cache(maxsize=4096)
def _formula(text: str) -> Hashable:
    """A formula as a number or as plain text; None where it is empty or no value."""
    bare = plain_formula(text).strip(",;:")
    if not bare or len(bare) > 80:
        return None
    number = number_in(bare) if re.fullmatch(r"[-+]?[\d,./]+", bare) else None
    return bare if number is None else number
