"""Method `complete`, on what real models write."""

from __future__ import annotations

from typing import Any

import pytest

from bitcal_tts import Action, Step, build_method
from bitcal_tts.halting.answers import FORMATS


def stop_at(text: str, size: int = 1, **options: Any) -> str | None:
    """The text at which `complete` stops, fed in pieces of `size` characters; None where it does not."""
    method = build_method("complete", bits=4, budget=4096, chunk_size=size, **options)
    for end in range(size, len(text) + 1, size):
        decision = method.observe(Step(text=text[end - size : end], n_tokens=size, entropy=0.1))
        if decision.action is Action.STOP:
            assert decision.reason == "answer_complete"
            return text[:end]
    return None


@pytest.mark.parametrize(
    ("text", "stopped", "value"),
    [
        ("So #### 45\nLet me check", "So #### 45\n", "45"),
        ("#### #### <answer> 45 is it", "#### #### <answer> 45 ", "45"),
        ("#### $1,234.50 dollars", "#### $1,234.50 ", "1234.50"),
        ("#### -3 apples", "#### -3 ", "-3"),
        ("#### 3/4 of it", "#### 3/4 ", "3/4"),
        ("#### 20% off", "#### 20%", "20"),
        ("#### **276000**", "#### **276000*", "276000"),
        ("I end with #### and the answer.\n#### 7\n", "I end with #### and the answer.\n#### 7\n", "7"),
        ("#### 5\nWrong. #### 6\n", "#### 5\n", "5"),
        ("#### 12. Next", "#### 12. ", "12"),
    ],
)
def test_it_stops_when_the_number_is_complete(text: str, stopped: str, value: str) -> None:
    assert stop_at(text) == stopped
    assert FORMATS["gsm8k"].value(stopped) == value


@pytest.mark.parametrize("text", ["#### 27", "#### 27,", "#### 2.", "####", "#### ####", "no marker 42 ", "#### <"])
def test_it_waits_while_the_number_may_go_on(text: str) -> None:
    assert stop_at(text) is None


def test_a_chunk_edge_inside_the_number_does_not_cut_it() -> None:
    text = "The work is done, so #### 276000\n" + " " * 31
    assert stop_at(text, size=16) == text[:48]


def test_what_stands_in_the_thinking_is_no_answer() -> None:
    thinking: dict[str, Any] = {"opening": "<think>", "close": "</think>"}
    text = "<think>\n#### 5\nmaybe\n</think>\n\n#### 6\n"
    assert stop_at(text, **thinking) == text
    assert stop_at("#### 5\nrest", **thinking) == "#### 5\n"
    assert stop_at("#### 5\n</think>#### 6 .", opening=None, close="</think>") == "#### 5\n</think>#### 6 "


@pytest.mark.parametrize(
    ("answers", "text", "stopped"),
    [
        ("boxed", r"thus \boxed{\frac{1}{2}} as", r"thus \boxed{\frac{1}{2}}"),
        ("boxed", r"\boxed{", None),
        ("choice", "#### (B) since", "#### (B)"),
        ("choice", "#### Because", None),
        ("code", "so\n```json\n[1, 2]\n```\nrest", "so\n```json\n[1, 2]\n```"),
        ("code", "```\n[1", None),
        ("marked_text", "#### [1, 2]\nmore", "#### [1, 2]\n"),
    ],
)
def test_every_format_has_its_notion_of_complete(answers: str, text: str, stopped: str | None) -> None:
    assert stop_at(text, answers=answers) == stopped


def test_values_and_equality_of_the_other_formats() -> None:
    boxed, choice, code = FORMATS["boxed"], FORMATS["choice"], FORMATS["code"]
    assert boxed.value(r"\boxed{1} then \boxed{\text{no}} and \boxed{2") == r"\text{no}"
    assert boxed.equal(r"\dfrac{1}{2}", "1/2") and boxed.equal("0.50", "1/2") and not boxed.equal("x", "y")
    assert choice.value("#### b) and later #### (C).") == "C"
    assert choice.equal("(c)", "C")
    assert code.value("```\n1\n```\ntext\n```py\nprint(2)\n```") == "print(2)"
    assert code.equal('{"a": 1}', '{ "a":1 }') and not code.equal("[1]", "[2]") and code.equal("a b", "a b ")
    assert code.value("no block") is None and boxed.value("none") is None and choice.value("####") is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"budget": 0}, "budget must be a whole number"),
        ({"bits": 0}, "bits must be a finite number"),
        ({"answers": "roman"}, "answers must be one of gsm8k"),
        ({"min_tokens": 5}, "unknown parameter 'min_tokens' of method 'complete'"),
    ],
)
def test_bad_values_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build_method("complete", **{"bits": 4, "budget": 512, **options})


def test_released_texts_lose_nothing(shared: Any) -> None:
    """FINDINGS section 4: the released fixed texts, cut at the first complete answer, with Qwen's own tokens."""
    from tokenizers import Tokenizer

    from bitcal_tts.evaluation.released import read_released

    tokenizer = Tokenizer.from_file(str(shared / "tokenizers" / "qwen2_5" / "tokenizer.json"))
    goals = {
        ("exp_Qwen_Qwen2.5-7B-Instruct_1775428350.jsonl", 512): (0.907, 300),
        ("exp_Qwen_Qwen2.5-14B-Instruct_1775412134.jsonl", 1024): (0.912, 245),
    }
    for (name, budget), (accuracy, most) in goals.items():
        rows = [
            r
            for r in read_released(shared / "released_results" / name)
            if (r["method"], r["budget"]) == ("fixed", budget)
        ]
        right = tokens = 0
        for row in rows:
            ids = tokenizer.encode(row["generated_text"], add_special_tokens=False).ids
            method = build_method("complete", bits=4, budget=budget)
            used, text = len(ids), row["generated_text"]
            before = ""
            for i in range(1, len(ids) + 1):
                now = tokenizer.decode(ids[:i]) if i % 8 == 0 or "####" in before[-40:] else before
                if method.observe(Step(text=now[len(before) :], n_tokens=1, entropy=0.0)).halts:
                    used, text = i, now
                    break
                before = now
            tokens += used
            value = FORMATS["released"].value(text)
            right += value is not None and FORMATS["gsm8k"].equal(value, str(row["gold_answer"]))
        assert right / len(rows) >= accuracy - 0.0005, name
        assert tokens / len(rows) <= most, name
