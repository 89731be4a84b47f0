from __future__ import annotations

import random
from typing import Any

import pytest

from bitcal_tts.halting.answers import FORMATS, Gsm8k, MarkedText, Released, as_number
from bitcal_tts.halting.exchange import Tokens
from bitcal_tts.halting.methods import build_method
from bitcal_tts.halting.reading import Reading, Stage
from bitcal_tts.halting.session import Session

STRICT = Gsm8k()


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("so 5\n#### 42", "42"),
        ("#### 1 and then #### 2", "2"),
        ("#### $1,234.50", "1234.50"),
        ("#### -7", "-7"),
        ("#### 3/4 of it", "3/4"),
        ("#### **12**", "12"),
        ("#### #### <answer> 45", "45"),
        ("#### 20%", "20"),
        ("no marker 42", None),
        ("cut here ####", None),
        ("#### nothing", None),
        ("#### 5 then ####", None),
    ],
)
def test_strict_reads_the_number_after_the_last_marker(text: str, value: str | None) -> None:
    assert STRICT.value(text) == value


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [("42", "42.0", True), ("1,000", "1000", True), ("0.5", "1/2", True), ("-3", "3", False), ("x", "x", False)],
)
def test_strict_equality_is_exact(one: str, other: str, same: bool) -> None:
    assert STRICT.equal(one, other) is same


@pytest.mark.parametrize(
    ("said", "written"),
    [
        ("4.5", "4.5"),
        ("9/2", "4.5"),
        ("$4.50", "4.5"),
        ("-1/20", "-0.05"),
        ("0.0000001", "0.0000001"),
        ("1/3", "1/3"),
        ("1,000,000,000,000,000,000,000.25", "1000000000000000000000.25"),
        ("7.0", "7"),
    ],
)
def test_a_number_is_told_as_people_write_it(said: str, written: str) -> None:
    number = FORMATS["number"]
    assert number.value(f"So the answer is {said}.") == written
    assert number.equal(written, said)


@pytest.mark.parametrize(
    ("text", "complete"),
    [
        ("#### 27", False),  # the number may go on
        ("#### 27\n", True),
        ("#### 27.", False),  # a decimal may follow
        ("#### 27. ", True),
        ("#### 27,0", False),
        ("#### 27 apples", True),
        ("####", False),
        ("#### #### <", False),
        ("#### $1,234.50.\n", True),
    ],
)
def test_complete_means_nothing_can_change_the_number(text: str, complete: bool) -> None:
    start = STRICT.start(text)
    assert start is not None
    assert (STRICT.complete(text, start) is not None) is complete
    digits = any(c.isdigit() for c in text)
    assert (STRICT.complete(text, start, ended=True) is not None) is digits


def test_start_finds_the_next_marker() -> None:
    text = "#### 1 #### 2"
    assert STRICT.start(text) == 4
    assert STRICT.start(text, 4) == 11
    assert STRICT.start("none") is None


def test_released_takes_the_first_marker_then_any_number() -> None:
    released = Released()
    assert released.value("#### 3 later #### 4") == "3"
    assert released.value("it costs 5 and 1,007") == "1007"
    assert released.value("it costs 4800") == "0"
    assert released.value("nothing") is None


def test_marked_text_is_the_line() -> None:
    marked = MarkedText()
    assert marked.value("x #### [1, 2] \nmore") == "[1, 2]"
    assert marked.complete("#### ab", 4) is None
    assert marked.complete("#### ab\n", 4) == 7
    assert marked.complete("#### ab", 4, ended=True) == 7
    asked_for = {"gsm8k", "released", "marked_text", "boxed", "choice", "code"}
    assert set(FORMATS) == asked_for | {"number", "expression", "option"}


def test_as_number_refuses_what_is_none() -> None:
    assert as_number("1/0") is None
    assert as_number("") is None


def test_released_protocol_reproduces_every_released_prediction(released: list[dict[str, Any]]) -> None:
    """`predicted_answer` of all 1,711 records, as numbers."""
    fmt = Released()
    assert len(released) == 1711
    differing = []
    for row in released:
        value, predicted = fmt.value(row["generated_text"]), row["predicted_answer"]
        if value == predicted or (value is not None and predicted and fmt.equal(value, predicted)):
            continue
        differing.append((value, predicted, row["generated_text"][-60:]))
    assert differing == []


@pytest.mark.parametrize("name", ["number", "expression", "option"])
def test_a_text_that_never_left_its_thinking_answers_only_what_it_gives_outright(name: str) -> None:
    weighed, given = "<think>\nSo the answer is 7. But wait", "<think>\nThus \\boxed{7}, or is it 8? The answer is 9."

    def answer(text: str, close: str | None) -> str | None:
        session = Session(build_method("fixed", bits=16, budget=99, answers=name, opening="<think>", close=close))
        session.feed(Tokens([text]))
        session.end()
        return session.outcome.answer

    assert answer(weighed, "</think>") is None
    assert answer(weighed.replace("<think>", ""), "</think>") is not None, "it never began to think"
    assert answer(weighed + "</think>", "</think>") is not None
    assert answer(given, "</think>") == "7"


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("number", r"\boxed{2\frac{1}{2}}", "2.5"),
        ("number", r"\boxed{2 1/2}", "2.5"),
        ("number", r"\boxed{\frac12}", "0.5"),
        ("number", r"**Answer:** 5 \times 3 = 15", "15"),
        ("number", "\\boxed{1\u202f250}", "1250"),
        ("number", r"\boxed{-\$5}", "-5"),
        ("number", "The answer is \u20135.", "-5"),
        ("number", r"\boxed{1,234.50}", "1234.5"),
        ("number", r"\boxed{12,34,567}", "1234567"),
        ("number", r"\boxed{1,2,3}", None),
        # A derivation's first number is no answer; one that it begins with, or that is bold, is.
        ("number", "Answer: Tom pays $3000 and gets $1000 back. So he is out 2000.", "2000"),
        ("number", "Answer: He earns **$30** in 2 hours and goes home at 6.", "30"),
        ("number", "The answer is 24 of 30.", "24"),
        ("number", "**Answer:** Terry spends **\\$75.00** on yogurt in 30 days.", "75"),
        ("number", "The answer should be $85. The coach spent 9 * $3 = $27", "85"),
        # What is called the answer may be called so again, and better.
        ("option", "So the answer is:\n\nANSWER: 4", "4"),
        ("expression", "So the answer is:\n\n**Answer:** x + 1", "x + 1"),
        # A row of # is a heading as often as not.
        ("number", "#### Step 3: Add them up\nThe total is 42.\n\n**Answer: 42**", "42"),
        ("number", "#### 3. Conclusion\nSo there are 18 of them", "18"),
        ("number", "#### $42 dollars", "42"),
        ("number", "#### The final answer is 42", "42"),
        ("option", "#### 3. Conclusion\nThe answer is B", "B"),
        ("option", "#### (B)", "B"),
        ("expression", "#### Step 2: Simplify\nThe answer is x^2.", "x^2"),
        ("expression", "#### John Smith", "John Smith"),
        # Options in any typography; "a" and "I" are words, too.
        ("option", r"\boxed{\textbf{(B)}}", "B"),
        ("option", r"\boxed{\mathbf{B}}", "B"),
        ("option", r"\boxed{\text{Option B}}", "B"),
        ("option", "The correct option is B", "B"),
        ("option", "answer: (c).", "C"),
        ("option", "Answer: **I**", "I"),
        ("option", "The answer I get is B", None),
        ("option", "The answer is a bit surprising", None),
        ("option", 'Answer: "D"', "D"),
        ("option", "Answer: `D`", "D"),
        ("option", '{"answer": "D"}', "D"),
        ("option", "The answer is <b>D</b>", "D"),
        ("option", "ANSWER\uff1aD", "D"),
        ("option", "Therefore, option B is the correct answer.", "B"),
        ("option", "So B is the answer.", "B"),
        ("option", "The best choice is B.", "B"),
        # What asks for an answer is none.
        ("number", "I will put it in \\boxed{}.\n\nIt is \\boxed{9}", "9"),
        ("number", "I will put it in \\boxed{answer}. It is nine.", None),
        ("expression", "In \\boxed{\\text{your answer}}: \\boxed{x}. As in \\boxed{...}", "x"),
        # Headings in any manner.
        ("number", "#### (1) Find x\nx is 7.", "7"),
        ("number", "#### 1st step\nx is 7.", "7"),
        ("number", "#### 1\\. Find\nx is 7.", "7"),
        ("number", "#### 1 \u2013 find\nx is 7.", "7"),
        ("number", "#### 1 Find x\nx is 7.", "7"),
        ("number", "#### 1.1 Find x\nx is 7.", "7"),
        ("number", "#### 1. $x$ first\nx is 7.", "7"),
        ("number", "#### 5-day plan\nx is 7.", "7"),
        ("expression", "#### Simplify\nThe answer is x.", "x"),
        ("expression", "#### Final answer\n\n$x^2$\n\nAnswer: $x^2$", "x^2"),
        ("expression", "#### Final answer: x^2", "x^2"),
        # Bold, formulas and quotes end where they end.
        ("expression", "The answer is **Yes**.", "Yes"),
        ("expression", "**Answer:** **Yes**.", "Yes"),
        ("expression", "Answer: **Yes**, because 3 > 2", "Yes"),
        ("expression", "The final answer is **$x^2+1$**.", "x^2+1"),
        ("expression", "The final answer is\n\\[\nx^2+1\n\\]", "x^2+1"),
        ("expression", "The final answer is\n$$\nx^2+1\n$$", "x^2+1"),
        ("expression", "The answers are $x = 1$ and $x = 2$.", None),
        ("expression", "Answer: $x = 1$ and $x = 2$.", "x = 1$ and $x = 2"),
        # What is said of an answer is none.
        ("expression", "Final answer: 5.\n\nLet me know if you want a more detailed answer to this question.", "5"),
        ("expression", "The answer is 5. I hope this answer helps!", "5. I hope this answer helps!"),
        ("expression", "Answer: 5\nI hope this answer helps!", "5"),
        ("expression", "Answer: 5\nI believe the answer is correct.", "5"),
        # A line that says the answer outright stands above a box before it; a remark does not.
        ("number", "<answer>3</answer>\n\nBut wait.\n\n**Answer: 4**", "4"),
        ("number", "\\boxed{3}\n\nThe answer is 4 less than 7.", "3"),
        # Of the last sentence what was computed; a sentence of one number is that.
        ("number", "9 * 25 + 2 = 227\n\nIt takes Andy 227 minutes to string all 12 racquets.", "227"),
        ("number", "2.5 * 30 = $75.00\n\nTerry spends $75.00 on yogurt over 30 days.", "75"),
        ("number", "5 + 6 = 11, so there are 12 of them.", "12"),
        # Formulas are computed, or are none.
        ("number", r"\boxed{10^6}", "1000000"),
        ("number", r"\boxed{2^{10}}", "1024"),
        ("number", r"\boxed{1.5 \times 10^6}", "1500000"),
        ("number", r"\boxed{1 000 000}", "1000000"),
        ("number", "The answer is 1\u00bd.", "1.5"),
        ("number", "Answer \u2013 12", "12"),
        ("expression", "<answer>x<5</answer>", "x<5"),
        ("expression", "#### x<5\n", "x<5"),
    ],
)
def test_answers_as_models_write_them(name: str, text: str, value: str | None) -> None:
    assert FORMATS[name].value(text) == value


def test_a_heading_is_no_answer_to_stop_at() -> None:
    for name, heading, answer in (
        ("number", "#### Step 1: Multiply 6 by 7\n", "#### 42\n"),
        ("option", "#### 3. Conclusion\n", "#### 3\n"),
        ("expression", "#### Part 2: the rest\n", "#### x^2\n"),
    ):
        reading = Reading(FORMATS[name], None, "</think>")
        assert reading.stages([f"</think>\n\n{heading}"]) == [Stage.WRITING], name
        assert reading.stages([answer]) == [Stage.OVER], name


def test_what_asks_for_an_answer_gives_none() -> None:
    for name, asks, answer in (
        ("number", "Put it in \\boxed{}.\n", "\\boxed{9}"),
        ("number", "Put it in \\boxed{answer}.\n", "\\boxed{9}"),
        ("boxed", "Put it in \\boxed{}.\n", "\\boxed{x}"),
        ("expression", "Put it in \\boxed{...}.\n", "\\boxed{x}"),
        ("option", "Put it in \\boxed{letter}.\n", "\\boxed{B}"),
        ("number", "#### (1) Find x\n#### 1st step\n#### 1.1 Begin\n", "#### 7\n"),
        ("expression", "#### Simplify\n#### Final answer\n", "#### x\n"),
    ):
        reading = Reading(FORMATS[name], None, None)
        assert reading.stages(list(asks))[-1] is Stage.REASONING, (name, asks)
        assert reading.stages(list(answer))[-1] is Stage.OVER, (name, answer)


@pytest.mark.parametrize("name", ["gsm8k", "choice", "marked_text", "number", "option", "expression", "boxed"])
def test_a_growing_text_gives_an_answer_where_all_of_it_does(name: str) -> None:
    """What is left out while it grows cannot have become an answer."""
    rng = random.Random(0)
    parts = ("####", "##", " 7", "x", "\n", "B", "\\boxed{", "}", "<answer>", "</answer>", " ", "Step", ".", "<")
    given = 0
    for _ in range(400):
        pieces = rng.choices(parts, k=14)
        stages = Reading(FORMATS[name], None, None).stages(pieces)
        whole = [FORMATS[name].given("".join(pieces[: i + 1])) for i in range(len(pieces))]
        first = whole.index(True) if True in whole else len(pieces)
        assert [stage is Stage.OVER for stage in stages] == [i >= first for i in range(len(pieces))], pieces
        given += first < len(pieces)
    assert given > 20


def test_a_list_is_no_number() -> None:
    for one, other, same in (("3,5", "35", False), ("1,2", "12", False), ("1,000", "1000", True), ("x=5", "5", True)):
        assert FORMATS["number"].equal(one, other) == same
        assert FORMATS["expression"].equal(one, other) == (same and "x" not in one)
    assert as_number("3,5") is None and as_number("1,234,567") == 1_234_567
