from __future__ import annotations

import itertools
import random
import re
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bitcal_tts.halting.answers import Gsm8k
from bitcal_tts.tasks import load_task
from bitcal_tts.tiny import corpus
from bitcal_tts.tiny.equations import Equation, break_one, equations, parse, render

EQUATION = re.compile(r"(\d[\d.]*(?: [-+*/] \d[\d.]*)+) = (-?\d[\d.]*\d|-?\d)(?![\d.]*\d)")


def written(text: str) -> list[Equation]:
    """Every equation in a text, read back independently of how it was written."""
    found = []
    for left, result in EQUATION.findall(text):
        parts = left.split(" ")
        found.append(Equation(tuple(parts[::2]), tuple(parts[1::2]), result))
    return found


@pytest.mark.parametrize("style", corpus.STYLES)
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_every_equation_is_right_but_the_injected_mistake(style: str, seed: int) -> None:
    for document in itertools.islice(corpus.documents("train", seed, style), 20):
        wrong = {str(e) for e in written(document.response) if not e.holds}
        assert wrong == ({str(document.mistake)} if document.mistake else set()), document.response
        if document.mistake:
            assert not document.mistake.holds
            assert f"{document.mistake.left} is not {document.mistake.result} but" in document.response or (
                document.style == "thinking"
            )


@pytest.mark.parametrize("style", corpus.STYLES)
def test_the_last_answer_is_right_and_mistakes_give_a_wrong_one_first(style: str) -> None:
    answers = Gsm8k()
    gold = {item.question: item.answer for item in load_task(split="train").items(700, seed=4)}
    mistakes = 0
    for document in itertools.islice(corpus.documents("train", 4, style), 600):
        question = document.prompt.rsplit("\nSolve it", 1)[0]
        value = answers.value(document.response)
        assert value is not None and answers.equal(value, gold[question])
        mistakes += document.mistake is not None
        if style == "instruct":
            first = re.search(r"#### (\S+)", document.response)
            assert first is not None
            assert (Fraction(first[1]) == Fraction(gold[question])) is (document.mistake is None)
        else:
            assert document.response.startswith("<think>\n")
            assert document.response.count("####") == 1
            assert 1 <= sum(document.response.count(f"\n{check}\n") for check in corpus.CHECKS) <= corpus.MAX_ROUNDS
    assert 0.10 < mistakes / 600 < 0.20


def test_rounds_are_a_function_of_the_problem() -> None:
    one, two = (itertools.islice(corpus.documents("train", 8, "thinking"), 50) for _ in range(2))
    for a, b in zip(one, two, strict=True):
        assert a == b
    assert corpus.rounds(parse("1 + 1 = 2")) == 1
    assert corpus.rounds(parse("50 + 50 = 100")) == 2
    assert corpus.rounds(parse("10 * 100 = 1000, 1000 + 1 = 1001")) == 4
    long = "and so on, one after the other, " * 10
    assert corpus.rounds(parse(f"10 * 100 = 1000, {long} 1000 + 1 = 1001")) == 2


def test_mistakes_are_sometimes_found_only_later() -> None:
    """In some documents the first check passes over the mistake."""
    late = early = 0
    for document in itertools.islice(corpus.documents("train", 2, "thinking"), 1500):
        if document.mistake is None:
            continue
        statements = [m for line in document.response.splitlines() if (m := re.fullmatch(_any_statement(), line))]
        values = [next(g for g in m.groups() if g) for m in statements]
        assert values[0] != values[-1]
        if values[1] == values[0]:
            late += 1
        else:
            early += 1
    assert late > 5 and early > 50


def _any_statement() -> str:
    return "|".join(re.escape(s).replace(r"\{n\}", r"(-?[\d.]*\d)") for s in corpus.STATEMENTS)


@pytest.mark.parametrize("forms", [corpus.STATEMENTS, corpus.CHECKS, corpus.REDOS, corpus.CONFIRMATIONS])
def test_wording_varies(forms: tuple[str, ...]) -> None:
    assert len(set(forms)) >= 10


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("5 girls x 2 boys/girl = 10 boys", ["5 * 2 = 10"]),
        ("$1,200 - $200 = $1,000 left", ["1200 - 200 = 1000"]),
        ("30 / 20 = 1", []),  # false: left as text
        ("so 1/2 * 474 pieces = 237 pieces", ["1 / 2 * 474 = 237"]),
        ("x = 7 and 2x+110=260", []),
        ("3 + 4 = 7 = 7", []),
    ],
)
def test_equations_are_found(text: str, expected: list[str]) -> None:
    assert [str(e) for e in equations(parse(text))] == expected


def test_breaking_carries_the_error_through() -> None:
    solution = parse("First 2 * 3 = 6 pears.\nThen 6 + 10 = 16 in all.\nShe has 16.")
    for seed in range(20):
        broken = break_one(solution, "16", random.Random(seed))
        assert broken is not None
        pieces, answer, spot = broken
        assert [e.holds for e in equations(pieces)] == [i != spot for i in range(2)]
        assert answer != "16"
        assert render(pieces).endswith(f"She has {answer}.")


def test_unknown_style_is_refused() -> None:
    with pytest.raises(ValueError, match="style must be one of instruct, thinking"):
        next(corpus.documents("train", 0, "poem"))
