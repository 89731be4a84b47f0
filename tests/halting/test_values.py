"""What a text stands for: sentences, numbers and their roles, candidates."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitcal_tts.halting.values import COLUMNS, KINDS, Asking, Candidates, Sentences
from bitcal_tts.halting.values.asking import stem
from bitcal_tts.halting.values.candidates import KEPT, MAX_VALUES
from bitcal_tts.halting.values.cues import CUES
from bitcal_tts.halting.values.numbers import mentions, plain
from bitcal_tts.halting.values.relevance import Relevance
from bitcal_tts.halting.values.sentences import MAX_LENGTH

QUESTION = "Tom has 3 bags with 4 apples each. He sells 25% of the apples. How many apples does Tom have left?"


def read(*sentences: str, question: str = QUESTION, kind: str = "numbers", writing_from: int = 99) -> Candidates:
    """Candidates after sentences of ten tokens each."""
    candidates = Candidates(Asking(question), KINDS[kind])
    for i, sentence in enumerate(sentences, 1):
        candidates.feed(sentence, 10 * i, writing=i > writing_from)
    return candidates


def told(candidates: Candidates, value: Any) -> dict[str, float]:
    look = candidates.look()
    return dict(zip(COLUMNS, [*look.own[look.values.index(value)], *look.shared], strict=True))


@given(st.lists(st.text(alphabet="ab.!?\n \"')", max_size=12), max_size=12))
def test_sentences_do_not_depend_on_the_pieces(pieces: list[str]) -> None:
    one, other = Sentences(), Sentences()
    whole = list(one.feed("".join(pieces)))
    assert [sentence for piece in pieces for sentence in other.feed(piece)] == whole


def test_a_sentence_ends_when_the_next_begins() -> None:
    sentences = Sentences()
    assert list(sentences.feed("It costs 3.")) == []  # it may become 3.5
    assert list(sentences.feed("5 dollars. So")) == ["It costs 3.5 dollars."]
    assert list(sentences.feed(" be it\nNext")) == ["So be it"]
    assert list(sentences.feed("!\n\n\n")) == ["Next!"]
    assert all(len(part) <= MAX_LENGTH for part in Sentences().feed("word " * 1000))


@pytest.mark.parametrize(
    ("sentence", "results", "operands"),
    [
        ("So 3 * 4 = 12 apples.", [12], [3, 4]),
        ("3 times 4 is 12, and 12 - 3 is 9.", [12, 9], [3, 4, 12, 3]),
        ("That gives a total of $1,250.50.", [Fraction("1250.5")], []),
        ("So \\(2s = 80\\), and dividing by 2 results in \\( s = 40 \\).", [80, 40], []),
        ("The sum is \\frac{30}{4} = 7.5", [Fraction("7.5")], [30, 4]),
        ("-48 + 21 + (-3) equals -30 degrees.", [-30], [-48, 21, -3]),
        ("Step 2: the 3rd bag has twelve apples.", [12], []),
        ("x = 5", [5], []),
        ("25% of 12 is 3, and half of 12 is 6.", [3, 6], [25, 12, Fraction(1, 2), 12]),
    ],
)
def test_numbers_and_what_they_are(sentence: str, results: list[Any], operands: list[Any]) -> None:
    found = mentions(plain(sentence))
    assert [m.value for m in found if m.result] == results
    assert [m.value for m in found if m.operand] == operands


def test_a_share_is_worth_a_hundredth_and_a_fraction_is_one_number() -> None:
    percent, of = mentions(plain("25% of 12"))
    assert (percent.value, percent.worth, percent.percent) == (25, Fraction(1, 4), True)
    assert (of.value, of.worth) == (12, 12)
    (spelt,) = mentions(plain("20 percent"))
    assert spelt.worth == Fraction(1, 5)
    assert [m.value for m in mentions(plain("3/4 of it"))] == [Fraction(3, 4)]
    assert [m.value for m in mentions(plain("80/2"))] == [80, 2]  # a division
    assert [m.value for m in mentions("the 2 1/2.")] == [2, Fraction(1, 2)]


def test_a_computed_result_knows_what_it_was_made_of() -> None:
    (three, four, twelve) = mentions("3 * 4 = 12")
    assert twelve.computed and twelve.parents == (three.worth, four.worth)
    assert not mentions("Tom has 12 apples.")[0].computed


def test_the_question_taken_apart() -> None:
    asking = Asking(QUESTION)
    assert list(asking.given) == [3, 4, Fraction(1, 4)]
    assert asking.unit >= {"appl"} and not asking.money and asking.names == asking.asked_names == {"Tom"}
    assert asking.given_by(Fraction(3, 4)) == asking.given_by(Fraction(1, 4)) == asking.last_given  # what 25 % leaves
    assert asking.given_by(Fraction(99)) == 0
    assert Asking("How much did she pay in dollars?").money
    assert Asking("Choose:\n1. It is red.\n2. It is blue").options == {"1": "it is red", "2": "it is blue"}
    assert Asking("").given == {}
    for one, other in (
        ("Apples", "apple"),
        ("cookies", "cookie"),
        ("berry", "berries"),
        ("selling", "sell"),
        ("class", "class"),
    ):
        assert stem(one) == stem(other)


def test_a_value_gathers_what_speaks_for_it() -> None:
    candidates = read(
        "So there are 3 * 4 = 12 apples.", "He sells 25% of 12 = 3.", "So Tom has 12 - 3 = 9 apples left."
    )
    nine, twelve = told(candidates, Fraction(9)), told(candidates, Fraction(12))
    assert nine["coverage"] == 1.0 and nine["covers_last"] == 1.0
    assert twelve["coverage"] == pytest.approx(2 / 3) and twelve["covers_last"] == 0.0
    assert twelve["carried_on"] > 0 == nine["carried_on"]  # 9 was made of 12
    assert nine["depth"] > twelve["depth"] and nine["ancestors"] > twelve["ancestors"]
    assert nine["relevance_max"] > twelve["relevance_max"]  # "left" is asked for
    assert nine["latest"] == 1.0 and twelve["latest"] == 0.0
    assert nine["since_result"] == 0.0 < twelve["since_result"]


def test_every_column_counted_along_by_hand() -> None:
    candidates = read(
        "So there are 3 * 4 = 12 apples.",
        "He sells 25% of 12 = 3.",
        "Wait, each bag has 4, so check: 12 is right.",
        "So Tom has 12 - 3 = 9 apples left.",
        "The answer is \\boxed{9}.",
        writing_from=4,
    )
    log = math.log1p
    twelve, none = told(candidates, 12), dict.fromkeys(CUES, 0.0)
    expected = {
        "mentions": log(4), "results": log(1), "computed": log(1), "said": 0, "closes_sentence": log(1),
        "operand": log(2), "carried_on": log(1), "checked_back": log(1), "called": 0, "boxed": 0, "concluded": log(1),
        # The asking sentence has apples, left and Tom, of which only "left" stands nowhere else.
        "overlap_max": 1, "overlap_last": 1, "overlap_mean": (1 / 6 + 0 + 0 + 1) / 4, "overlap_of_result": 1 / 6,
        "in_question": 0, "since_mention": log(50 - 40), "since_result": log(50 - 10), "since_first": log(50 - 10),
        "since_first_result": log(50 - 10), "results_since": log(5 - 1), "last_to_come_out": 0, "latest": 0,
        "share_of_closings": 1 / 2, "share_called": 0, "share_of_results": 1 / 5, "rival_results": 3 / (1 + 1),
        "operand_share": 2 / 4, "carried_share": 1, "per_share": 1 / 4, "supposed_share": 0, "coverage": 2 / 3,
        "coverage_gap": 3 - 2, "covers_last": 0, "covers_asked": -1, "depth": 1, "ways": 1, "unit_share": 1 / 4,
        "currency_share": 0, "percent_share": 0, "currency_gap": 0, "unit_gap": 0, "newer_results": 4 - 1,
        "ancestors": 2, "just_said": 0, "closed_the_thinking": 0, "named_share": 0, "misnamed_share": 0,
        **{f"{cue}_since_first_result": value for cue, value in {
            **none, "check": log(1), "wait": log(1), "conclude": log(2), "so": log(2), "answer": log(1)}.items()},
        "question_used": 1, "told_used_least": 2 / 3, "told_used_last": 1, "told_used": (2 / 3 + 1 + 1) / 3,
        "overlap": 0, "weighted_overlap": 0, "since_new_value": log(50 - 40), "since_new_result": log(50 - 40),
        "answers_named": log(1), "since_conclusion": 0, "writing": 1, "thinking_closed": 1, "per": 0, "supposed": 0,
        "asks": 0,
        **{f"{cue}_count": value for cue, value in {
            **none, "check": log(1), "wait": log(1), "conclude": log(2), "so": log(3), "answer": log(1)}.items()},
        **{f"{cue}_here": value for cue, value in {**none, "conclude": 2, "answer": 1}.items()},
        **{f"{cue}_before": value for cue, value in {**none, "so": 1}.items()},
        **{f"since_{cue}": value for cue, value in {
            **dict.fromkeys(CUES, -1), "check": log(20), "wait": log(20), "conclude": 0, "so": log(10),
            "answer": 0}.items()},
    }  # fmt: skip
    apart = {name for name in COLUMNS if name.startswith("relevance_")}
    assert set(expected) == set(COLUMNS) - apart
    assert {name: twelve[name] for name in expected} == pytest.approx(expected)
    assert twelve["relevance_max"] == twelve["relevance_last"] == twelve["relevance_mean"] < -1
    nine = told(candidates, 9)  # said to come out twice, the second time in a box alone
    assert nine["relevance_gap"] == 0 and nine["relevance_mean"] == pytest.approx(
        (nine["relevance_max"] + nine["relevance_last"]) / 2
    )
    assert twelve["relevance_gap"] == pytest.approx(twelve["relevance_max"] - nine["relevance_max"])
    assert (nine["share_called"], nine["named_share"], nine["closed_the_thinking"], nine["boxed"]) == (1, 1, 1, 1)
    assert (nine["since_first"], nine["results_since"], nine["rival_results"]) == (log(10), 0, 1 / 4)


def test_a_check_is_not_a_step_on() -> None:
    """70 - 30 gives back what 70 was made of: that does not make 70 an intermediate value."""
    on = read("So 40 + 30 = 70.", "Then 70 * 2 = 140.", question="What is it?")
    back = read("So 40 + 30 = 70.", "Then 70 - 30 = 40.", question="What is it?")
    assert told(on, Fraction(70))["carried_on"] > 0 == told(on, Fraction(70))["checked_back"]
    assert told(back, Fraction(70))["checked_back"] > 0 == told(back, Fraction(70))["carried_on"]


def test_called_boxed_and_closing_the_thinking() -> None:
    candidates = read("It is 5.", "So the answer is 7.", "We have 8.", "\\boxed{8}", "The total is 7.", writing_from=3)
    seven, eight = told(candidates, Fraction(7)), told(candidates, Fraction(8))
    assert seven["called"] > 0 == eight["called"]
    assert (eight["boxed"], seven["boxed"]) == (1.0, 0.0)
    assert (eight["closed_the_thinking"], seven["closed_the_thinking"]) == (1.0, 0.0)
    assert seven["writing"] == seven["thinking_closed"] == 1.0


def test_cues_are_counted_since_a_value_came_out() -> None:
    candidates = read("So it is 5.", "Wait, let me check.", "Yes, it is 6.", "Hmm.")
    five, six = told(candidates, Fraction(5)), told(candidates, Fraction(6))
    assert five["check_since_first_result"] > 0 == six["check_since_first_result"]
    assert five["wait_count"] == six["wait_count"] > 0
    assert five["since_check"] > five["since_wait"] == 0.0
    assert len(COLUMNS) == len(set(COLUMNS)) and len(CUES) == 13


def test_nothing_is_looked_at_before_a_value_comes_out() -> None:
    candidates = Candidates(Asking(QUESTION), KINDS["numbers"])
    assert not candidates.feed("Tom sells apples.", 5, writing=False) and not candidates.stand
    assert not candidates.feed("1.", 6, writing=False) and not candidates.feed("***", 7, writing=False)
    assert candidates.feed("So he has 9.", 12, writing=False) and candidates.stand


def test_work_is_bounded() -> None:
    candidates = Candidates(Asking(QUESTION), KINDS["numbers"])
    for i in range(1000):
        candidates.feed(f"So {i} + 1 = {i + 1000000}.", i, writing=False)
    assert len(candidates._values) <= MAX_VALUES
    chain = Candidates(Asking(QUESTION), KINDS["numbers"])
    for i in range(1000):  # each is made of all before it
        chain.feed(f"So {i} + 1 = {i + 1}.", i, writing=False)
    assert max(len(value.ancestors) for value in chain._values.values()) <= MAX_VALUES
    look = candidates.look()
    assert len(look.values) <= KEPT and len(look.own) == len(look.values)
    assert all(len(row) + len(look.shared) == len(COLUMNS) for row in look.own)


@given(st.text(max_size=400))
def test_any_text_can_be_read(text: str) -> None:
    for kind in KINDS:
        candidates = Candidates(Asking(text[:100]), KINDS[kind])
        for sentence in Sentences().feed(text + "\n"):
            if candidates.feed(sentence, 3, writing=False):
                look = candidates.look()
                assert all(isinstance(KINDS[kind].text(value), str) for value in look.values)


def test_options_are_named_by_label_or_text() -> None:
    question = "Who is it?\n1. Ann is Bob's aunt.\n2. Ann is Bob's mother.\n3. None of these."
    candidates = read("So Ann is Bob's mother.", "Maybe option 3.", question=question, kind="options")
    assert set(candidates.look().values) == {"2", "3"}
    called = read("The answer is (C).", question="A) x\nB) y\nC) z", kind="options")
    assert called.look().values == ["C"]


def test_expressions_keep_their_text() -> None:
    candidates = read("So \\(x = 2\\sqrt{3}\\).", "Then \\boxed{\\dfrac{1}{2}}.", kind="expressions")
    kind = KINDS["expressions"]
    assert {kind.text(value) for value in candidates.look().values} >= {"2\\sqrt{3}", "0.5"}


def test_relevance_reads_what_is_asked() -> None:
    asking = Asking("Tom sold 4 cups on Monday and 5 on Sunday. How many cups did Tom sell altogether?")
    (on_the_way,) = [m for m in mentions("He sold 4 cups on Monday is 4.") if m.result]
    final = [m for m in mentions("So Tom sold 4 + 5 = 9 cups altogether.") if m.result][-1]
    tom = frozenset({"Tom"})
    relevance = Relevance(asking)
    assert relevance(final, tom, 3) > relevance(on_the_way, tom, 1)
    assert relevance(final, tom, 3) > relevance(final, tom, 1)  # a number of the question is missing


class Ordered(set[str]):
    """A set that is walked along in a given order."""

    def __init__(self, order: list[str]) -> None:
        super().__init__(order)
        self._order = order

    def __iter__(self) -> Iterator[str]:
        return iter(self._order)


def test_of_two_names_at_one_place_the_longer_is_meant() -> None:
    """A set of names has no order: without a rule the features would differ from one process to the next."""
    names = ["Ann", "Anna", "Annabel"]
    asking = Asking("Ann, Anna and Annabel bake. How many cakes does Annabel bake?")
    for order in (names, names[::-1]):
        candidates = Candidates(asking, KINDS["numbers"])
        asking.names = Ordered(order)
        candidates.feed("Annabel bakes in the morning.", 10, writing=False)
        candidates.feed("That makes 2 + 3 = 5 cakes.", 20, writing=False)
        assert told(candidates, 5)["named_share"] == 1
        assert told(candidates, 5)["misnamed_share"] == 0
