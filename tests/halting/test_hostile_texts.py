"""Texts that no reader of ours may stumble over: rulers, rows of spaces, boxes that are never closed, huge numbers."""

from __future__ import annotations

import subprocess
import sys
from fractions import Fraction

import pytest

from bitcal_tts.halting.answers import FORMATS
from bitcal_tts.halting.answers.numbers import as_number
from bitcal_tts.halting.values.kinds import KINDS
from bitcal_tts.halting.values.numbers import mentions

DEGENERATE = (
    "#" * 4000, "#" * 200 + " x", "#### " + "#" * 200 + " x", "the answer" + "\n" * 20_000,
    "the answer is " + "*" * 20_000,
    "\\boxed{" * 2500, "\\boxed{1e999999999}", "#### 1e999999999", "answer " + "-" * 20_000,
    "#### " * 20_000, "#### x " * 3000, "\\boxed{1e9_9_9_9_9_9_9_9}",
)  # fmt: skip
READ_ALL = """
import sys
from bitcal_tts.halting.answers import FORMATS
from bitcal_tts.halting.reading import Reading
from bitcal_tts.halting.values.asking import Asking
from bitcal_tts.halting.values.kinds import KINDS
for text in {texts!r}:
    for format in FORMATS.values():
        format.value(text), format.given(text), format.unfinished(text), format.equal(text, "1")
    for kind in KINDS.values():
        kind.mentions(text, Asking("How many?")), kind.boxed(text)
for piece in ("#### ", "#### x "):
    for format in FORMATS.values():
        reading = Reading(format, None, None)
        for _ in range(4000):
            reading.feed(piece)
"""


def test_every_reader_comes_to_the_end_of_them() -> None:
    """In another process: what splits a ruler in every way there is does not end, and could not be ended here."""
    script = READ_ALL.format(texts=DEGENERATE)
    done = subprocess.run([sys.executable, "-"], input=script, text=True, timeout=300, check=False)
    assert done.returncode == 0


def test_a_ruler_is_no_answer_and_hides_none() -> None:
    for name in ("gsm8k", "number", "marked_text", "option", "choice"):
        assert not FORMATS[name].given("So.\n" + "#" * 40 + "\n")
    for name, answer in (("gsm8k", "7"), ("number", "7"), ("expression", "7"), ("marked_text", "7")):
        assert FORMATS[name].value("So.\n######## 7\n") == answer


def test_a_box_is_read_wherever_it_stands() -> None:
    texts = {
        "\\boxed{7}": "7", "\\boxed{\\frac{1}{2}}": "\\frac{1}{2}", "\\boxed{a \\boxed{3} b}": "3",
        "\\boxed{a \\boxed{3} b": "3", "} { \\fbox {5} \\boxed{}": "5", "\\\\boxed{7}": "7",
        "\\boxed{\\{1, 2\\}}": "\\{1, 2\\}", "\\boxed{1} and \\boxed{2": "1", "\\boxed{": None, "{7}": None,
    }  # fmt: skip
    for text, content in texts.items():
        assert FORMATS["boxed"].value(text) == content, text
        assert FORMATS["boxed"].given(text) == (content is not None), text


def test_huge_numbers_are_none() -> None:
    assert as_number("1e5") == 100_000 and as_number("-2.5E-3") == Fraction(-1, 400)
    for text in ("1e999999999", "1e-1000000", "1E+0001000", "7" * 5000, "1e9_9_9_9_9_9_9_9"):
        assert as_number(text) is None, text
    assert FORMATS["number"].unfinished("\\boxed{" + "7" * 5000 + "}") is None
    assert KINDS["numbers"].text(Fraction(10**400 + 1, 3)) == f"{10**400 + 1}/3"
    assert KINDS["numbers"].text(Fraction(1, 4)) == "0.25"


@pytest.mark.parametrize("text", ["-5/0 is undefined", "so -12/0 = 3", "-1/0/0"])
def test_nothing_is_divided_by_nought(text: str) -> None:
    assert all(mention.value is not None for mention in mentions(text))


def test_deep_json_is_text() -> None:
    assert FORMATS["code"].equal("[" * 100_000, "[" * 100_000)
    assert not FORMATS["code"].equal("[" * 100_000, "[]")
