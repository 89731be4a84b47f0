"""Texts as traces: what they stand for takes the place of what a model would have answered."""

from __future__ import annotations

from typing import Any

import pytest

from bitcal_tts import TEXT_ONLY, build_method
from bitcal_tts.halting.answers import FORMATS
from bitcal_tts.halting.counting import approximate
from bitcal_tts.halting.exchange import Token
from bitcal_tts.halting.signals import Signals
from bitcal_tts.logs import LoggedText
from bitcal_tts.tasks.registry import restore_task
from bitcal_tts.traces.replay import LANDING_TOKENS, outcomes, replay, stand_in
from bitcal_tts.traces.texts import complete_signals, trace_of
from bitcal_tts.traces.trace import TraceError

TEXT = "So 3 + 4 = 7.\nThe answer is 7.\nWait, 3 + 5 = 8.\nThe answer is 8.\n</think>\nIt is \\boxed{8}. Done and over."


def trace(text: str = TEXT, gold: str = "8") -> Any:
    return trace_of(LoggedText(3, "a", "What is 3 + 5?", text, gold, truncated=True), 0, approximate)


def method(name: str, **options: Any) -> Any:
    return build_method(name, bits=16, budget=1000, answers="number", close="</think>", **options)


def test_a_trace_of_a_text() -> None:
    made = trace()
    assert made.text == TEXT and made.signals == TEXT_ONLY and made.entropies is None
    assert made.item.extra == {"truncated": True, "line": 3}


def test_stated_answers_with_what_was_stated_at_a_stated_cost() -> None:
    assert LANDING_TOKENS == 20
    first, third = (replay(trace(), method("stated", threshold=float(k), reserve=0)).outcome for k in (1, 2))
    assert first.answer == "7" and first.reason == "exit"
    assert first.tokens == len(approximate(TEXT[: TEXT.index("The answer is 7.") + 17])) + LANDING_TOKENS
    assert third.answer == "8" and third.finish == "eos"  # nothing was stated twice in a row
    late = replay(trace(), method("stated", after=25, reserve=0)).outcome
    assert late.answer == "8" and late.finish == "halted"
    task = restore_task("texts", "number")
    assert [o.correct for o in outcomes([trace()], method("stated", reserve=0), task)] == [False]


def test_what_cannot_be_known_is_refused() -> None:
    with pytest.raises(
        TraceError, match="truncate ends the thinking after 16 tokens of item 'a', and these traces are"
    ):
        replay(trace(), method("truncate", threshold=16.0, reserve=0))


def test_complete_stops_at_a_box_behind_the_thinking() -> None:
    done = replay(trace(), method("complete")).outcome
    assert done.answer == "8" and done.text.endswith("\\boxed{8}.") and done.landing_tokens == 0
    inside = trace("<think>\\boxed{7} and so on</think> so \\boxed{8}.")
    assert replay(inside, method("complete")).outcome.answer == "8"


@pytest.mark.parametrize("name", ["gsm8k", "number", "boxed", "expression", "choice", "option"])
def test_an_answer_that_is_written_is_read_again(name: str) -> None:
    value = {"choice": "B", "option": "3"}.get(name, "12.5")
    format = FORMATS[name]
    assert format.equal(format.value(format.cue + stand_in(format, value).text) or "", value)
    assert stand_in(format, None).text == ""


def test_truncated_log_probabilities_are_kept() -> None:
    tokens = [Token(t, 0.3, -0.1, 2.0, -4.0, 0.01) for t in ("a ", "b")]
    text = LoggedText(1, "a", "q?", "a b", "1", tokens=tokens)
    made = trace_of(text, 0, approximate, signals=Signals("top", k=20))
    assert (
        made.logprobs is not None
        and made.logprobs.tolist() == pytest.approx([-0.1, -0.1])
        and made.token_texts == ["a ", "b"]
    )
    assert complete_signals(text) and not complete_signals(LoggedText(1, "a", "q?", "a b", tokens=[Token("a b")]))
