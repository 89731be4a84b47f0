from __future__ import annotations

import itertools
import random
import re
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bitcal_tts.halting.answers import Gsm8k, as_number
from bitcal_tts.halting.statements import StatementDetector
from bitcal_tts.tiny import corpus, wording
from bitcal_tts.tiny.equations import Equation, break_one, equations, misread_one, parse, render
from bitcal_tts.tiny.sums import running_totals

EQUATION = re.compile(r"(-?\d[\d.]*(?: [-+*/] \d[\d.]*)+) = (-?\d[\d.]*\d|-?\d)(?![\d.]*\d)")


def written(text: str) -> list[Equation]:
    """Every equation in a text, read back independently of how it was written."""
    found = []
    for left, result in EQUATION.findall(text):
        parts = left.split(" ")
        found.append(Equation(tuple(parts[::2]), tuple(parts[1::2]), result))
    return found


def backwards(slip: Equation | None) -> set[str]:
    """A false step is false when it is checked backwards as well."""
    if slip is None or len(slip.operators) != 1:
        return set()
    return {f"{slip.result} {corpus._INVERSE[slip.operators[0]]} {slip.operands[1]} = {slip.operands[0]}"}


def drawn(style: str, count: int, seed: int = 4, **more: Any) -> list[corpus.Document]:
    return list(itertools.islice(corpus.documents("train", seed, style, **more), count))


@pytest.mark.parametrize("style", corpus.STYLES)
@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_every_equation_is_right_but_the_slip(style: str, seed: int) -> None:
    for document in drawn(style, 12, seed):
        wrong = {str(e) for e in written(document.response) if not e.holds}
        slips = {str(document.slip)} if document.slip else set()
        assert slips <= wrong <= slips | backwards(document.slip), document.response
        if document.slip:
            assert f"{document.slip.left} is not {document.slip.result} but" in document.response


@pytest.mark.parametrize("style", corpus.STYLES)
def test_a_text_ends_with_what_it_says_it_ends_with(style: str) -> None:
    answers = Gsm8k()
    for document in drawn(style, 400):
        value = answers.value(document.response)
        assert value is not None and Fraction(value) == Fraction(document.final)
        if style == "instruct":
            first = re.search(r"#### (\S+)", document.response)
            assert first is not None and Fraction(first[1]) == Fraction(document.first)
            assert document.final == document.answer
        else:
            assert document.response.startswith("<think>\n")
            assert document.response.count("####") == 1


def test_the_answer_is_the_tasks() -> None:
    sources = [source("train", 4) for source, _, _ in corpus.SOURCES.values()]
    gold = {p.question: p.answer for source in sources for p in itertools.islice(source, 500)}
    known = [(d, gold[d.prompt.rsplit("\n", 1)[0]]) for d in drawn("thinking", 400)]
    assert all(Fraction(document.answer) == Fraction(answer) for document, answer in known)


def test_first_conclusions_are_wrong_in_a_third_and_some_right_ones_are_spoilt() -> None:
    """As a model that learnt the corpus perfectly would sample it at temperature 0.6."""
    documents = drawn("thinking", 1500, temperature=0.6)
    wrong_first = sum(d.first != d.answer for d in documents) / len(documents)
    spoilt = sum(d.first == d.answer != d.final for d in documents) / len(documents)
    assert 0.28 < wrong_first < 0.42
    assert 0.002 < spoilt < 0.05
    found = [d.final == d.answer for d in documents if d.first != d.answer]
    assert sum(found) / len(found) > 0.97  # what is wrong at first is found; a doubt spoils few of those again


def test_intermediate_totals_and_answers_are_announced_in_the_same_words() -> None:
    """Among all strong statements as many are of other values as in real texts: a fifth to a quarter."""
    right = total = 0
    for document in drawn("thinking", 500, temperature=0.6):
        detector = StatementDetector()
        for character in document.response.split("</think>")[0]:
            statement = detector.feed(character)
            if statement is not None and statement.strong:
                total += 1
                right += as_number(statement.value) == as_number(document.answer)
    assert 0.74 < right / total < 0.86


def test_documents_and_rounds_are_functions_of_the_seed_and_the_problem() -> None:
    assert drawn("thinking", 50, 8) == drawn("thinking", 50, 8)
    assert drawn("thinking", 50, 8) != drawn("thinking", 50, 9)

    def rounds(solution: str) -> int:
        return corpus.rounds(corpus.Work(parse(solution), "0"))

    assert rounds("1 + 1 = 2") == 2
    assert rounds("5 + 5 = 10, 1 + 1 = 2") == 4
    assert rounds("10 * 100 = 1000, 1000 + 1 = 1001, 1001 + 1 = 1002, 1002 + 1 = 1003") == corpus.MAX_ROUNDS - 1


def test_a_temperature_makes_rare_choices_rarer() -> None:
    hot, cold = (corpus.Dice("x", t) for t in (1.0, 0.6))
    assert 0.17 < sum(hot.chance(0.2) for _ in range(4000)) / 4000 < 0.23
    assert 0.07 < sum(cold.chance(0.2) for _ in range(4000)) / 4000 < 0.11  # 0.2^(5/3) : 0.8^(5/3)
    assert sum(cold.chance(0.2, ways=8) for _ in range(4000)) < sum(cold.chance(0.2) for _ in range(4000)) / 2


def test_a_misread_operator_leaves_all_arithmetic_true() -> None:
    solution = parse("First 2 * 3 = 6 pears.\nThen 6 + 10 = 16 in all.\nShe has 16.")
    for seed in range(20):
        other = misread_one(solution, "16", random.Random(seed))
        assert other is not None
        pieces, answer, spot = other
        assert all(e.holds for e in equations(pieces))
        assert answer != "16" and equations(pieces)[spot].operators != equations(solution)[spot].operators
        assert render(pieces).endswith(f"She has {answer}.")


@pytest.mark.parametrize("rule", sorted(wording.RULES))
def test_every_rule_of_the_grammar_can_be_said(rule: str) -> None:
    values = dict.fromkeys(("n", "a", "b", "r", "e", "good", "bad", "quote"), "7")
    said = {wording.say(random.Random(i), rule, **values) for i in range(60)}
    assert len(said) > 1 or len(wording.RULES[rule]) == 1
    assert not any("{" in text or "}" in text for text in said)


def test_running_totals() -> None:
    assert running_totals("4 + 3 - 2") == ["4 + 3 = 7", "7 - 2 = 5"]
    assert running_totals("4 - 7") is None


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
