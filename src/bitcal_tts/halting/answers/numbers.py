"""Numbers after a marker: the paper's protocol, and that of its released records."""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache

from bitcal_tts.halting.answers.base import MarkedText

NUMBER = r"[-\u2212]?\d[\d,]*(?:\.\d+)?(?:/\d+)?"
"""A number as running text has it."""
_NUMBER = r"[-\u2212]?\d[\d,]*(?:\.\d+)?(?:\s?/\s?\d+)?"
# What models put between the marker and the number: currency, emphasis, the marker again, a tag. It is looked ahead for
# and taken as a whole, and a row of # is one part of it: there are more ways to split it than there is time for.
_DECORATION = r"(?=(?P<decoration>(?:[\s$€£*_:=\\(]|#{2,}(?!#)|<[^<>\n]{0,20}>)*))(?P=decoration)"
_DECORATED = re.compile(_DECORATION)
_ANNOUNCED = re.compile(rf"{_DECORATION}(?P<number>{_NUMBER})")
_HUGE = re.compile(r"[eE][-+]?0*[1-9]\d{3}|_")  # Python reads underscores in a number, and people write none
_LIST = re.compile(r"\d,(?!\d{3}(?!\d)|\d\d,)\d")  # a comma that parts no thousands
_TYPOGRAPHY = re.compile(r"\\[,;! ]|\{,\}|(?<=\d)[\u00a0\u2009\u202f~](?=\d{3}(?!\d))")
_SIGN = re.compile(r"([-+])\s*\\?([$€£])")
_FRACTION = re.compile(
    r"(?:(?P<whole>\d{1,12})\s{0,9})?\\[dt]?frac\s*(?:\{(?P<top>[^{}]*)\}\s*\{(?P<bottom>[^{}]*)\}|(?P<a>\d)\s*(?P<b>\d))"
)
_WORDS = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{2}")
_MIXED = re.compile(r"(?<![\d.,/])(?P<whole>\d{1,12})\s+(?P<top>\d{1,6})/(?P<bottom>\d{1,6})(?![\d.,/])")
_LONGEST = 1000  # characters of a number
_MOST_DECIMALS = 18
_RELEASED_MARKED = re.compile(r"####\s*([-\d,.]+)")
_RELEASED_ANYWHERE = re.compile(r"-?\d{1,3}(?:,\d{3})*(?:\.\d+)?")


class Gsm8k(MarkedText):
    """The number after the last `####`: the paper's protocol, strictly."""

    name = "gsm8k"
    stated = None
    values = "numbers"

    def complete(self, text: str, start: int, *, ended: bool = False) -> int | None:
        """After a number that the text can no longer continue."""
        match = _ANNOUNCED.match(text, start)
        if match is None:
            return None
        return match.end() if ended or _cannot_continue(text, match.end()) else None

    def value(self, text: str) -> str | None:
        """The number after the last marker."""
        _, marker, rest = text.rpartition(self.marker)
        match = _ANNOUNCED.match(rest) if marker else None
        return _clean(match["number"]) if match else None

    def behind(self, text: str, at: int) -> int:
        """Behind the marker again, and whatever else may stand before a number."""
        decorated = _DECORATED.match(text, at)
        return at if decorated is None else decorated.end()

    def open_part(self, text: str) -> str:
        """From the last marker on: what completes an answer behind an earlier one completes that one's, too."""
        return self.from_last_marker(text)

    def equal(self, one: str, other: str) -> bool:
        """Equal as exact numbers."""
        left, right = as_number(one), as_number(other)
        return left is not None and left == right


class Released(Gsm8k):
    """The protocol of the paper's released records, slips included.

    The first marker that a number follows, else the last number anywhere; and there `4800` is read as
    `480` and `0`, because only three digits may stand together without a comma.
    """

    name = "released"

    def value(self, text: str) -> str | None:
        """The first marked number, else the last number in the text."""
        match = _RELEASED_MARKED.search(text)
        numbers = [match[1]] if match else _RELEASED_ANYWHERE.findall(text)
        return numbers[-1].replace(",", "").rstrip(".") if numbers else None


@lru_cache(maxsize=65536)
def as_number(text: str) -> Fraction | None:
    """An exact number from `1,234.50`, `$5`, `-3/4` or `20%`, or None."""
    plain = re.sub(r"[\s,$€£%]", "", text).replace("\u2212", "-").rstrip(".")
    if len(plain) > _LONGEST or _HUGE.search(plain) or _LIST.search(text):
        return None
    try:
        return Fraction(plain)
    except (ValueError, ZeroDivisionError):
        return None


def in_digits(number: Fraction | int) -> str:
    """A number as people write it: as a decimal where that has an end, else as a fraction."""
    for places in range(_MOST_DECIMALS + 1):
        if 10**places % number.denominator == 0:
            whole = abs(number * 10**places)
            digits = str(int(whole)).zfill(places + 1)
            sign, cut = "-" if number < 0 else "", len(digits) - places
            return f"{sign}{digits[:cut]}.{digits[cut:]}" if places else f"{sign}{digits}"
    return f"{number.numerator}/{number.denominator}"


def number_in(text: str) -> Fraction | None:
    r"""The number that a short text comes to, units and typography apart: `\$1,200 \text{ a year}`, `2\frac{1}{2}`."""
    plain = re.sub(r"\\(?:text|mathrm|mbox)\s*\{[^{}]*\}", " ", text)
    plain = _MIXED.sub(_improper, _FRACTION.sub(_improper, plain)).replace("\u2212", "-")
    plain = re.sub(r"\u2013(?=[\d.$])", "-", plain)  # before a number; elsewhere it is a dash
    plain = _SIGN.sub(r"\2\1", _TYPOGRAPHY.sub("", plain))
    left, _, right = plain.rpartition("=")
    if "," not in plain and not _WORDS.search(left):
        plain = right
    if re.search(r"[\^_=]|\\(?:sqrt|pi)|[A-Za-z]\d|\d[A-Za-z]", plain):
        return None  # a formula
    numbers = re.findall(r"[-+]?\s?\d[\d,]*(?:\.\d+)?(?:\s?/\s?\d+)?|[-+]?\.\d+", plain)
    return as_number(numbers[0].replace("+", "")) if len(numbers) == 1 else None


def _improper(match: re.Match[str]) -> str:
    """A fraction in one line, with what stands before it where that makes a mixed number of it."""
    found = match.groupdict()
    top, bottom = found["top"] or found.get("a") or "", found["bottom"] or found.get("b") or ""
    whole = found["whole"]
    if whole is None:
        return f"{top}/{bottom}"
    if not (top.isdecimal() and bottom.isdecimal()) or len(top + bottom) > _LONGEST:
        return f"{whole} {top}/{bottom}"
    return f"{int(whole) * int(bottom) + int(top)}/{bottom}"


def _clean(number: str) -> str:
    return number.replace(",", "").replace(" ", "").replace("\u2212", "-")


def _cannot_continue(text: str, end: int) -> bool:
    """A digit, a separator before a digit, or nothing yet may continue a number; anything else may not."""
    following = text[end : end + 2]
    if not following:
        return False
    if following[0] in ",./":
        return len(following) == 2 and not following[1].isdigit()
    return not following[0].isdigit()
