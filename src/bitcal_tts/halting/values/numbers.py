"""Numbers in a sentence, and what each of them is there: a result, an operand, a price, a share."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from bitcal_tts.halting.answers.numbers import as_number
from bitcal_tts.halting.words import words_of

_UNITS = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen"
_SPELT: dict[str, str] = {word: str(i) for i, word in enumerate((_UNITS + " seventeen eighteen nineteen").split())}
_SPELT |= {
    word: str(10 * i)
    for i, word in enumerate(["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"], 2)
}
_SPELT |= {"hundred": "100", "dozen": "12", "half": "1/2", "quarter": "1/4"}
_SPELT |= dict.fromkeys(("twice", "double", "doubles", "doubled"), "2") | dict.fromkeys(("thrice", "triple"), "3")
_SPELT_OUT = re.compile(rf"\b(?:{'|'.join(_SPELT)})\b", re.IGNORECASE)
_SPELT_LOW = re.compile(_SPELT_OUT.pattern)
_TYPOGRAPHY = re.compile(r"[\\×÷·∗⋅*−–≈⇒→`&]")
_PLAIN = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"\\[dt]?frac\s*\{([^{}]*)\}\s*\{([^{}]*)\}", r" \1/\2 "),
        (r"\\(?:text|mathrm|textbf|mathbf|mbox|operatorname)\s*\{([^{}]*)\}", r" \1 "),
        (r"\\(?:times|cdot|ast)|[×·∗⋅]", "*"),
        (r"\\div|÷", "/"),
        (r"\\approx|≈|\\Rightarrow|\\implies|⇒|→", "="),
        (r"[−–]", "-"),
        (r"\{,\}(?=\d)|,\\!", ","),
        (r"\\[,;! ]|\\quad", ""),
        (r"\\\$", "$"),
        (r"\\%", "%"),
        (r"\\[()\[\]]|\*\*|`|\\left|\\right|&", " "),
    )
)
_BEFORE = 14
_OPERATIONS = {
    "+": "+", "plus": "+", "added": "+", "-": "-", "minus": "-", "subtract": "-", "subtracted": "-",
    "subtracting": "-", "*": "*", "x": "*", "times": "*", "multiplied": "*", "of": "*", "/": "/", "divided": "/",
    "over": "/", "^": "^",
}  # fmt: skip
_ORDINALS = ("st", "nd", "rd", "th")
_NUMBERED = words_of("step option part equation plan method case approach question problem example")
_DIGIT = re.compile(r"\d")
_PARTS = re.compile(
    r"(?P<number>(?<![\w.])(?:\d[\d,]*(?:\.\d+)?|\.\d+)(?!\d))"
    r"|(?P<operator>[-+*/^]|(?<=\d)\s*x\s*(?=\d)"
    r"|\b(?:times|plus|minus|multiplied by|divided by|added to|over|subtract(?:ed|ing)?)\b)"
    r"|(?P<equals>=|\b(?:is|are|was|be|equals?|gives?|makes?|gets?|totals?|leaves?|yields?|comes? (?:out )?to"
    r"|results? in|have|has|had|becomes?|means?|total of|needs?|earns?|spends?|costs?|pays?|left|sum of)\b)"
    r"|(?P<currency>[$€£])|(?P<word>[A-Za-z]+)|(?P<percent>%)|(?P<punctuation>[.,;:!?(){}\[\]])"
)


@dataclass(slots=True)
class Mention:
    """A number where it stands.

    Attributes:
        value: The number; where values are no numbers, their text.
        worth: What it comes to in a sum: a hundredth of it for a percentage.
        result: Whether it is said to come out.
        computed: Whether it comes out of arithmetic in the same sentence.
        operation: By which it comes out, the last of several: `+`, `-`, `*`, `/`; empty where it is not computed.
        operand: Whether something is computed with it.
        currency: Whether it has a currency sign.
        percent: Whether it is a percentage.
        coefficient: Whether it is glued to what follows: `2x`, `3(`.
        parents: What the numbers are worth that stand before a result.
        before: Words before it, since the last result.
        after: The first words behind it.
    """

    value: Any
    worth: Any
    result: bool = False
    computed: bool = False
    operation: str = ""
    operand: bool = False
    currency: bool = False
    percent: bool = False
    coefficient: bool = False
    parents: tuple[Any, ...] = ()
    before: list[str] = field(default_factory=list)
    after: list[str] = field(default_factory=list)

    def as_percentage(self) -> None:
        """It was a percentage, as what follows it says."""
        self.percent, self.worth = True, exact(Fraction(self.value) / 100)


def exact(value: Fraction) -> int | Fraction:
    """A whole number as an int: equal to the fraction, and looked up several times faster."""
    return value.numerator if value.denominator == 1 else value


def plain(sentence: str) -> str:
    """A sentence with its formulas typed as on a keyboard and its numbers in digits."""
    if _TYPOGRAPHY.search(sentence):
        for pattern, replacement in _PLAIN:
            sentence = pattern.sub(replacement, sentence)
    if _SPELT_LOW.search(sentence.lower()) is None:
        return sentence
    return _SPELT_OUT.sub(lambda match: _SPELT[match[0].lower()], sentence)


def mentions(sentence: str) -> list[Mention]:
    """The numbers of a plain sentence, in order, with what they are there."""
    if _DIGIT.search(sentence) is None:
        return []
    reader = _Sentence(sentence)
    for part in _PARTS.finditer(sentence):
        getattr(reader, part.lastgroup or "")(part)
    return reader.found


class _Sentence:
    """What has been read of a sentence; one method for each kind of part."""

    __slots__ = (
        "_after_equals", "_after_operator", "_behind", "_between", "_currency", "_first", "_negative", "_numbered",
        "_operation", "_operators", "_slash", "_text", "_words", "found",
    )  # fmt: skip

    def __init__(self, text: str) -> None:
        self._text = text
        self.found: list[Mention] = []
        self._after_equals = self._after_operator = self._slash = False
        self._currency = self._negative = self._numbered = False
        self._operators = 0  # since the last result
        self._operation = ""  # the last of them
        self._first = 0  # of the numbers that a result is computed from
        self._between = 0  # parts since the last number, operators apart
        self._behind = 9  # words noted behind the last number
        self._words: list[str] = []

    def number(self, part: re.Match[str]) -> None:
        read = as_number(part[0])
        following = self._text[part.end() : part.end() + 2]
        if read is None or following in _ORDINALS or self._numbered:
            self._numbered = False
            return
        value = exact(read)
        if self._slash and self._between == 0 and self._is_fraction(value):
            self.found[-1].value = self.found[-1].worth = exact(self.found[-1].value / read)
            self._slash = self._after_operator = False
            self._behind = 0
            return
        value = -value if self._negative else value
        mention = Mention(
            value, value, operand=self._after_operator, currency=self._currency, before=self._words[-_BEFORE:]
        )
        mention.coefficient = following[:1].isalpha() or following[:1] == "("
        if self._after_equals and not self._after_operator and not mention.coefficient:
            mention.result, mention.computed = True, self._operators > 0
            mention.operation = self._operation if mention.computed else ""
            mention.parents = tuple(other.worth for other in self.found[self._first :])
            self._words = []
        self.found.append(mention)
        self._negative = self._currency = self._slash = self._after_operator = self._after_equals = False
        self._between = self._behind = 0

    def _is_fraction(self, denominator: int | Fraction) -> bool:
        """Whether `a/b` is one number: a small proper fraction, not a division."""
        last = self.found[-1] if self.found else None
        whole = last is not None and last.value.denominator == denominator.denominator == 1
        proper = last is not None and whole and last.value < denominator <= 12
        return bool(last is not None and proper and not last.result and denominator != 0)

    def _is_share(self) -> bool:
        """Whether the last part was a share: `25% of 12` and `half of 12` are products."""
        return bool(self.found and self._between == 0 and (self.found[-1].percent or 0 < self.found[-1].value < 1))

    def operator(self, part: re.Match[str]) -> None:
        self._slash = part[0] == "/"
        apart = not self.found or self._between > 0
        if part[0] == "-" and (apart or self._after_operator or self._after_equals):
            before, following = self._text[part.start() - 1 : part.start()], self._text[part.end() : part.end() + 1]
            if following.isdigit() and before in ("", " ", "(", "$", "="):
                self._negative = True
                return
            if apart:
                return  # a dash
        self._operators += 1
        self._operation = _OPERATIONS.get(part[0].strip().lower().partition(" ")[0], "")
        if self.found and self._behind <= 3:
            self.found[-1].operand = True
            if self._behind == 0:
                self.found[-1].result = False
        self._after_operator, self._after_equals = True, False

    def equals(self, part: re.Match[str]) -> None:
        if self.found and self.found[-1].result and self.found[-1].computed:
            self._first = len(self.found) - 1
        if part[0] != "=":
            self._words.append(part[0])
            if self.found and self._behind < 3:
                self.found[-1].after.append(part[0])
                self._behind += 1
        self._after_equals, self._after_operator = True, False
        self._between += 1

    def currency(self, part: re.Match[str]) -> None:
        self._currency = True

    def percent(self, part: re.Match[str]) -> None:
        if self.found:
            self.found[-1].as_percentage()

    def word(self, part: re.Match[str]) -> None:
        if part[0].lower() == "of" and self._is_share():
            self.operator(part)
            return
        self._numbered = part[0].lower() in _NUMBERED
        self._between += 1
        self._words.append(part[0])
        if self.found and self._behind < 4:
            if self._behind == 0 and self._between == 1 and part[0].lower() in ("percent", "percentage"):
                self.found[-1].as_percentage()
            self.found[-1].after.append(part[0])
            self._behind += 1
        self._after_equals = self._after_equals and self._between <= 6
        self._after_operator = self._after_operator and self._between <= 3

    def punctuation(self, part: re.Match[str]) -> None:
        self._numbered = False
        if part[0] in ",;:.!?":
            if self.found and self.found[-1].result:
                self._first, self._operators = len(self.found) - 1, 0
            if part[0] in ".!?;":
                self._after_equals = self._after_operator = False
            self._between += 1
