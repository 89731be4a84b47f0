"""What a question gives and what it asks for."""

from __future__ import annotations

import re
from collections.abc import Hashable, Set
from fractions import Fraction
from functools import cached_property, lru_cache

from bitcal_tts.halting.values.numbers import mentions, plain
from bitcal_tts.halting.words import words_of

MAX_GIVEN = 60
_SENTENCES = re.compile(r"(?<=[.?!])\s+")
_WORD = re.compile(r"[A-Za-z]+")
_COMMON = words_of(
    "the a an of to is are was were in on and or for it that this he she they his her their its with by at as "
    "be will have has had how many much what does do did each if so then we i you there from which would can "
    "now let me my total number"
)
_NO_NAMES = words_of(
    "After Before When While Each Every All Some Then Next During Because Since Together Her His Their My Our "
    "Your On In At For From With By To Of And But So It There These Those This That One Two Three Four Five "
    "Six Seven Eight Nine Ten Half Twice Last First Another Both Only Also Once However Today Yesterday "
    "Tomorrow Monday Tuesday Wednesday Thursday Friday Saturday Sunday January February March April May June "
    "July August September October November December Let Find Calculate Given As An Mr Mrs Ms How If What I"
)
_OPTION = re.compile(r"^\s*\(?([A-Ja-j]|[1-9])[.):]\s+(\S.*)$", re.MULTILINE)
_ENDINGS = (("ies", "i"), ("ing", ""), ("es", ""), ("ed", ""), ("s", ""), ("e", ""), ("y", "i"))
_UNIT = re.compile(r"how (?:many|much)(?: more| fewer| less| total| of the)?((?: [a-z\-]+){1,3})")
_MONEY = re.compile(
    r"how much (?:money|do|does|did|will|would|should|is|are|was|more|less|in|change|profit|total)|cost|price|dollar"
    r"|[$€£]|earn|spend|pay|profit|revenue"
)


@lru_cache(maxsize=1 << 16)  # words come again
def stem(word: str) -> str:
    """A word without its commonest endings."""
    word = word.lower()
    if word.endswith("ss"):
        return word
    for ending, instead in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word[: -len(ending)] + instead
    return word


def content_words(text: str) -> set[str]:
    """Stems of the words that are not in every sentence."""
    return {stem(word) for word in _WORD.findall(text) if word.lower() not in _COMMON}


class Asking:
    """A question, taken apart once a request.

    Attributes:
        given: Its numbers, each with a bit of its own; a percentage is what it comes to in a sum.
        asked: Stems of the sentence that asks.
        special: Those of them that stand nowhere else in the question.
        unit: Stems of what is counted: `apples` of "how many apples".
        options: The choices that it offers, by label, as plain words.
        money: Whether it asks for money.
        percent: Whether it asks for a percentage.
        last_given: The bit of its last number.
        asked_given: The bits of the numbers in the sentence that asks.
        told: The words of each of its sentences.
        names: Names in it.
        asked_names: Those that the asking sentence names.
    """

    def __init__(self, question: str) -> None:
        sentences = [part for part in _SENTENCES.split(question) if part.strip()] or [question]
        asking = " ".join(part for part in sentences if "?" in part) or sentences[-1]
        rest = " ".join(part for part in sentences if part not in asking)
        self._asking, self._question = asking, question
        self.asked = content_words(asking)
        self.special = self.asked - content_words(rest)
        self.given: dict[int | Fraction, int] = {}
        for mention in mentions(plain(question)):
            if len(self.given) < MAX_GIVEN:
                self.given.setdefault(mention.worth, 1 << len(self.given))
        self.last_given = 1 << len(self.given) >> 1
        asked_numbers = {mention.worth for mention in mentions(plain(asking))}
        self.asked_given = sum(self.given.get(number, 0) for number in asked_numbers)
        made_of = ((alias, bit) for number, bit in self.given.items() for alias in _aliases(number))
        self._aliases: dict[int | Fraction, int] = dict(made_of)
        self.told = [words for part in sentences if (words := content_words(part))]
        lower = asking.lower()
        counted = _UNIT.search(lower)
        self.unit = {stem(word) for word in (counted[1].split() if counted else ()) if word not in _COMMON}
        self.money = _MONEY.search(lower) is not None
        self.percent = "percent" in lower or "%" in lower
        self.options = {match[1].upper(): _plain_words(match[2]) for match in _OPTION.finditer(question)}
        self.names = _names(question)
        self.asked_names = {name for name in self.names if re.search(rf"\b{name}\b", asking)}

    def given_by(self, number: Hashable) -> int:
        """The bit of the question's number that a number is, or is made of: 0.75 and 75 % where 25 % is given."""
        if not isinstance(number, (int, Fraction)):
            return 0
        return self.given.get(number) or self._aliases.get(number, 0)

    def overlap(self, words: Set[str]) -> float:
        """How much of the asking sentence stands in a sentence; what stands only there counts double."""
        share = len(words & self.asked) / max(1, len(self.asked))
        special = len(words & self.special) / len(self.special) if self.special else share
        return (share + special) / 2

    @cached_property
    def asked_stems(self) -> frozenset[str]:
        """Stems of the asking sentence, the names apart."""
        names = {stem(name) for name in self.names}
        return frozenset({stem(word) for word in _WORD.findall(self._asking)} - names)

    @cached_property
    def all_stems(self) -> frozenset[str]:
        """Stems of the whole question."""
        return frozenset(stem(word) for word in _WORD.findall(self._question))


def _aliases(number: int | Fraction) -> list[Fraction]:
    """Other numbers by which a share enters a sum: what it leaves, what it adds up to, what it divides by."""
    if not isinstance(number, Fraction) or not 0 < number < 1:
        return []
    aliases = [1 - number, 1 + number, 100 * (1 - number)]
    return [*aliases, 1 / number] if number.numerator == 1 else aliases


def _plain_words(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.lower()))


def _names(question: str) -> set[str]:
    """Words that are written with a capital, not only because they begin a sentence."""
    starts = {match[1] for match in re.finditer(r"(?:^|[.?!]\s+)([A-Z][a-z]+)", question)}
    inside = {match[1] for match in re.finditer(r"(?<![.?!])\s([A-Z][a-z]+)", " " + question)}
    lower = set(re.findall(r"\b[a-z]+\b", question))
    starts = {word for word in starts if word.lower() not in lower and word.lower() not in _COMMON}
    return (starts | inside) - _NO_NAMES
