"""The statement detector: what it finds, what it leaves alone, and where a statement is complete."""

from __future__ import annotations

import random
from typing import Any

import pytest

from bitcal_tts.halting.statements import Statement, StatementDetector

STATEMENTS = (
    "So the answer is {n}.",
    "That gives {n}.",
    "The result is {n}.",
    "I get {n}.",
    "So it comes to {n}.",
    "Therefore the answer is {n}.",
    "Thus we have {n}.",
    "The final value is {n}.",
    "This makes {n}.",
    "Hence the result is {n}.",
    "**Answer:** {n}",
    "So we end up with {n}.",
    "My answer is {n}.",
    "In total that is {n}.",
)
CHECKS = (
    "Let me check.",
    "Let me verify this.",
    "Wait, let me go over it again.",
    "I should double-check.",
    "Checking the work.",
    "Hmm, is that right?",
    "Let me make sure.",
    "Now to confirm it.",
    "Let me look at this once more.",
    "To be safe, I will test it.",
    "Let me review the steps.",
    "But first, a check.",
)
REDOS = (
    "Redo.",
    "Let me redo it.",
    "I made a mistake there.",
    "That step is wrong, so again.",
    "Starting over.",
    "Let me fix that.",
    "No, that is off. Once more.",
    "Correcting this.",
    "So I have to do it again.",
    "An error. Let me repeat the work.",
    "Actually, that was not right. Again.",
    "Back to the start.",
)
CONFIRMATIONS = (
    "All steps hold.",
    "Everything checks out.",
    "That is consistent.",
    "No mistake found.",
    "Good.",
    "It holds.",
    "The steps are right.",
    "That agrees.",
    "Fine.",
    "Yes, it works.",
)


def found(text: str, **options: Any) -> list[tuple[int, Statement]]:
    """Statements with the number of characters after which each was reported, fed character by character."""
    detector = StatementDetector(**options)
    return [(i, s) for i, c in enumerate(text, 1) if (s := detector.feed(c)) is not None]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("So the answer is 42.\n", "42"),
        ("the answer is $1,234.50 in all", "1234.50"),
        ("so x = 42.\n", "42"),
        ("total: $42\n", "42"),
        ("**Final answer:** 42\n", "42"),
        ("#### 42\n", "42"),
        (r"Hence \boxed{\frac{1}{2}} follows", r"\frac{1}{2}"),
        ("Therefore, she makes $18 every day at the market.\n", "18"),
        ("So he has 3 * 4 = 12 apples.\n", "12"),
        ("That gives -7.\n", "-7"),
        ("The result is 3/4.\n", "3/4"),
        ("I get 0.5.\n", "0.5"),
        ("In total that is 27000.\n", "27000"),
    ],
)
def test_statements_are_found_with_their_value(text: str, value: str) -> None:
    assert [s.value for _, s in found(text)] == [value]


@pytest.mark.parametrize(
    "text",
    [
        "She has 42 apples.\n",
        "12 / 3 = 4 ok\n",
        "While Julie is processing 35 orders in a day, Charlotte processes 35 * 4 = 140 orders/day.\n",
        "The answer is not known yet.\n",
        "Let me check the result again.\n",
        "",
    ],
)
def test_ordinary_text_is_left_alone(text: str) -> None:
    assert [s for _, s in found(text) if s.strong] == []


def test_a_number_counts_once_it_can_no_longer_go_on() -> None:
    ((at, statement),) = found("The answer is 27,600.\nMore")
    assert (statement.value, at) == ("27600", len("The answer is 27,600.\n"))
    assert found("The answer is 27") == []
    assert [s.value for _, s in found("the answer is 42 / 6 = 7\n")] != ["42"]


def test_pieces_of_any_size_give_the_same_statements() -> None:
    text = "\n".join(form.format(n=n) for n, form in enumerate(STATEMENTS, 10)) + "\n"
    whole = [s for _, s in found(text)]
    assert [s.value for s in whole] == [str(n) for n in range(10, 10 + len(STATEMENTS))]
    rng = random.Random(1)
    for _ in range(20):
        detector, got, start = StatementDetector(), [], 0
        while start < len(text):
            # A piece of at most one line completes at most one statement.
            end = min(start + rng.randint(1, 6), len(text))
            statement = detector.feed(text[start:end])
            got += [statement] if statement else []
            start = end
        assert got == whole


@pytest.mark.parametrize("line", [*CHECKS, *REDOS, *CONFIRMATIONS])
def test_checks_and_redos_state_nothing(line: str) -> None:
    assert found(line + "\n") == []


def test_a_line_without_end_costs_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    detector = StatementDetector()
    for _ in range(3000):
        detector.feed("so it goes, ")
    assert len(detector._line) <= 412


def test_letters_and_texts_can_be_values() -> None:
    assert [s.value for _, s in found("So the answer is (B).\n", value=r"\(?([A-Z])\)?(?![A-Za-z'])")] == ["B"]


def test_the_released_texts_end_with_a_statement_of_their_answer(released: list[dict[str, Any]]) -> None:
    """Qwen's wording: where a text gives an answer, the detector has found it, and mostly the last one it finds."""
    texts = [r for r in released if r["method"] == "fixed" and r["budget"] >= 512 and r["correct"]]
    recalled = last = 0
    for row in texts:
        cut = row["generated_text"].find("####")
        text = row["generated_text"] if cut < 0 else row["generated_text"][: cut + 40]
        values = [s.value for _, s in found(text + "\n")]
        right = [v for v in values if v.rstrip("0").rstrip(".") == row["predicted_answer"].rstrip("0").rstrip(".")]
        recalled += bool(right)
        last += bool(values) and values[-1] in right
    assert len(texts) > 100
    assert recalled / len(texts) > 0.95
    assert last / len(texts) > 0.9
