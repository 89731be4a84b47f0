"""Tokens taken all at once leave the features where tokens taken one by one leave them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bitcal_tts.halting.features import Features
from bitcal_tts.halting.statements import detector_for

QUESTION = "Ann has 3 bags of 14 apples and gives 5 away. How many apples are left?"
PIECES = [
    " so", " the", " answer", " is", " ", "4", "2", ".", "\n", ",", " total", ":", " 37", "!", '"', ")", " wait", " =",
    " 3", " *", " 14", "?", "<think>", "</think>", "\\boxed{", "7", "}", "$", " apples", " İ", " and", " Ann", " redo",
    "*", "**", " mistake", "x" * 150,
]  # fmt: skip


PHRASES = [
    [" 3", " *", " 14", " =", " ", "4", "2"], [" so", " the", " answer", " is", " ", "4", "2"], ["."],
    ["<", "/", "think", ">"], [" So", " we", " get", " ", "3", "7"], [" and", " then"], ["."], ["\n", "\n"],
    [" Ann", " has", " 37", " apples"],
]  # fmt: skip
TEXTS = st.lists(st.one_of(st.sampled_from(PHRASES), st.sampled_from(PIECES).map(lambda piece: [piece])), max_size=30)


@settings(max_examples=500, deadline=None)
@given(TEXTS, st.data(), st.booleans(), st.sampled_from(["all", "none", "some"]))
def test_many_at_once_are_as_one_by_one(phrases: list[list[str]], data: st.DataObject, asked: bool, known: str) -> None:
    texts = [piece for phrase in phrases for piece in phrase]
    question = QUESTION if asked else None
    one, many = (
        Features(detector_for(None), bits=4, budget=512, question=question, values="numbers" if asked else None)
        for _ in range(2)
    )
    rng = np.random.default_rng(len(texts))
    signals = rng.random((len(texts), 3)) * [3, -14, 9]
    columns = [None if known == "none" or (known == "some" and i == 1) else signals[:, i].tolist() for i in range(3)]
    statements = [one.update(text, *_of(columns, i)) for i, text in enumerate(texts)]
    begin = 0
    while begin < len(texts):
        # Some tokens come together, and are taken in parts.
        end = begin + data.draw(st.integers(1, 12))
        together = texts[begin:end]
        part = [None if column is None else column[begin:end] for column in columns]
        at = 0
        while at < len(together):
            entropies, logprobs, margins = part
            most = data.draw(st.integers(1, 12))
            skipped = many.skip(together, entropies, logprobs, margins, at, most)
            assert statements[begin + at : begin + at + skipped] == [None] * skipped
            at += skipped
            if at < len(together):
                assert many.update(together[at], *_of(part, at)) == statements[begin + at]
                at += 1
        begin = end
    assert many.tokens == one.tokens
    assert many.at_sentence_end == one.at_sentence_end
    for at_statement in (False, True):
        first, second = (features.look(at_statement=at_statement) for features in (one, many))
        assert list(first.values) == list(second.values)
        assert np.array_equal(first.rows, second.rows, equal_nan=True)


def _of(columns: list[list[float] | None], i: int) -> list[float | None]:
    return [None if column is None else column[i] for column in columns]


def test_a_space_after_a_full_stop_ends_a_sentence_that_may_state_something() -> None:
    features = Features(detector_for(None), bits=4, budget=512)
    for piece in (" So", " we", " get", " ", "3", "7", "."):
        assert features.update(piece, None, None, None) is None
    assert features.skip([" ", "ok"], None, None, None) == 0
    assert features.update(" ", None, None, None) is not None


@pytest.mark.parametrize("closing", ["", '"', "**", '")*'])
def test_a_space_behind_what_closes_a_sentence_ends_it(closing: str) -> None:
    features = Features(detector_for(None), bits=4, budget=512, question=QUESTION, values="numbers")
    for piece in (" That", " is", " 3", " *", " 14", " =", " 42", ".", *closing):
        features.update(piece, None, None, None)
    assert not features.at_sentence_end and features.skip([" so", " on"], None, None, None) == 0
    features.update(" so", None, None, None)
    assert features.at_sentence_end


@pytest.mark.parametrize("text", ["one two three", "nothing ends here at all"])
def test_a_quiet_text_is_taken_whole(text: str) -> None:
    features = Features(detector_for(None), bits=4, budget=512, question=QUESTION, values="numbers")
    words = [f" {word}" for word in text.split()]
    assert features.skip(words, None, None, None) == len(words)
