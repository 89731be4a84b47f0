"""Questions, responses and answers under whatever names; chat logs; log-probabilities."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest

from bitcal_tts.halting.counting import approximate
from bitcal_tts.logs import Columns, Fault, LogError, LoggedText, read_texts
from bitcal_tts.logs.counting import splitter
from bitcal_tts.logs.guessing import closing_of, format_of, opening_of
from bitcal_tts.logs.texts import gold_of

SHARED = Path(__file__).parents[3] / "shared"


def texts(tmp_path: Path, *rows: Any, columns: Columns | None = None, gold: bool = True) -> list[Any]:
    path = tmp_path / "log.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return list(read_texts(path, columns, gold=gold))


@pytest.mark.parametrize(
    "row",
    [
        {"question": "q?", "response": "r", "gold": 7},
        {"Problem": "q?", "completion": "r", "answer": "7"},
        {"prompt": "q?", "generated_text": ["r"], "target": "x = 4\n#### 7"},
        {"input": "q?", "output": "r", "solution": "so \\boxed{7}."},
        {"question": "q?", "gold": "7", "model_answer": "r", "answer": "7"},
    ],
)
def test_columns_are_found(tmp_path: Path, row: dict[str, Any]) -> None:
    (text,) = texts(tmp_path, row)
    assert (text.question, text.response, text.answer) == ("q?", "r", "7")


def said(role: str, content: Any) -> dict[str, Any]:
    return {"role": role, "content": content}


THOUGHT: list[Any] = [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": "r"}]


@pytest.mark.parametrize(
    "row",
    [
        {"conversations": [{"from": "human", "value": "q?"}, {"from": "gpt", "value": "<think>hm</think>r"}]},
        {"conversations": [said("user", "q?"), said("assistant", "<think>hm</think>r")]},
        {"prompt": [said("user", "q?")], "completion": [said("assistant", "<think>hm</think>r")]},
        {"prompt": [said("user", "q?")], "response": "<think>hm</think>r"},
        {"messages": [said("user", "q?"), said("assistant", THOUGHT)]},
        {"request": {"messages": [said("user", "q?")]}, "response": said("assistant", THOUGHT)},
        {"messages": [said("user", "q?")], "role": "assistant", "content": THOUGHT},
        {"messages": [said("user", "q?")], "message": said("assistant", "r") | {"thinking": "hm"}},
        {"doc": {"question": "q?"}, "resps": [["<think>hm</think>r"]]},
        {"prompt": "q?", "outputs": [{"index": 0, "text": "<think>hm</think>r", "finish_reason": "stop"}]},
        {"prompt": "q?", "content": "<think>hm</think>r", "tokens_predicted": 9},
    ],
)
def test_chats_of_all_kinds(tmp_path: Path, row: dict[str, Any]) -> None:
    (text,) = texts(tmp_path, {**row, "reward_model": {"ground_truth": "7"}})
    assert (text.question, re.sub(r"\s", "", text.response), text.answer) == ("q?", "<think>hm</think>r", "7")


def test_several_texts_about_one_question_are_texts_of_their_own(tmp_path: Path) -> None:
    choices = [{"index": i, "message": said("assistant", f"r{i}"), "finish_reason": "stop"} for i in range(2)]
    talk = [said("user", "q?"), said("assistant", "r0")]
    for row in (
        {"messages": [said("user", "q?")], "choices": choices},
        {"question": "q?", "generations": ["r0", "r1"], "messages": talk},
        {"prompt": "q?", "completions": ["r0", "r1"]},
    ):
        found = texts(tmp_path, {"id": "a", "gold": "7", **row})
        assert [(text.id, text.question, text.response) for text in found] == [("a/0", "q?", "r0"), ("a/1", "q?", "r1")]


def test_an_instruction_is_asked_with_what_it_is_about(tmp_path: Path) -> None:
    rows = [{"instruction": "Solve.", "input": text, "output": "r", "gold": "7"} for text in ("1 + 1?", "", "2 + 2?")]
    assert [text.question for text in texts(tmp_path, *rows)] == ["Solve.\n\n1 + 1?", "Solve.", "Solve.\n\n2 + 2?"]


def test_a_gold_answer_that_counts_the_choices_is_their_letter(tmp_path: Path) -> None:
    row = {"question": "Which?\nA. x\nB. y", "choices": ["x", "y"], "response": "r", "answer": 1}
    assert [text.answer for text in texts(tmp_path, row, {**row, "question": "Which?\n1. x\n2. y"})] == ["B", "1"]


def test_columns_can_be_told_and_lie_inside(tmp_path: Path) -> None:
    row = {"meta": {"ask": ["x", "q?"]}, "a": {"b": "r"}, "g": 7, "finish_reason": "length"}
    columns = Columns(question="meta.ask.1", response="a.b", answer="g")
    (text,) = texts(tmp_path, row, columns=columns)
    assert (text.question, text.response, text.answer, text.truncated) == ("q?", "r", "7", True)
    with pytest.raises(LogError, match="has no column 'nope': it has meta, a, g, finish_reason"):
        texts(tmp_path, row, columns=Columns(question="nope"))
    with pytest.raises(LogError, match="no column that looks like a question or a response: it has x; say which with"):
        texts(tmp_path, {"x": 1})


def test_chat_logs(tmp_path: Path) -> None:
    messages = [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": [{"type": "text", "text": "q?"}]},
    ]
    choice = {"message": {"role": "assistant", "reasoning_content": "hm", "content": "r"}, "finish_reason": "stop"}
    rows = [
        {"messages": [*messages, {"role": "assistant", "content": "<think>hm</think>r"}], "gold": "7"},
        {"messages": messages, "choices": [choice], "gold": "7"},
        {
            "custom_id": "a",
            "request": {"body": {"messages": messages}},
            "response": {"body": {"choices": [choice]}},
            "gold": "7",
        },
        {"prompt": "q?", "choices": [{"text": "r", "index": 0}], "gold": "7"},
    ]
    found = texts(tmp_path, *rows)
    assert [text.question for text in found] == ["q?"] * 4
    assert found[1].response == found[2].response == "<think>\nhm\n</think>\n\nr"
    assert (found[0].response, found[3].response) == ("<think>hm</think>r", "r")
    assert found[1].truncated is False and found[2].id == "a"


def test_the_choices_of_a_question_are_no_completion(tmp_path: Path) -> None:
    choices = [{"label": "A", "text": "6"}, {"label": "B", "text": "7"}]
    (text,) = texts(tmp_path, {"question": "3 + 4?", "choices": choices, "response": "It is B.", "gold": "B"})
    assert text.response == "It is B."
    (text,) = texts(tmp_path, {"prompt": "3 + 4?", "choices": [{"text": "It is 7."}], "gold": "7"})
    assert text.response == "It is 7."


def test_parts_of_a_message(tmp_path: Path) -> None:
    """Parquet fills in what a part does not have; what was thought is apart from what was said."""
    asked = {"role": "user", "content": [{"type": "image", "text": None}, {"type": "text", "text": "q?"}]}
    parts = [{"type": "thinking", "thinking": "hm", "text": None}, {"type": "text", "text": "r", "thinking": None}]
    (text,) = texts(tmp_path, {"messages": [asked, {"role": "assistant", "content": parts}], "gold": "7"})
    assert (text.question, text.response) == ("q?", "<think>\nhm\n</think>\n\nr")


def test_tokens_that_are_not_all_of_a_response_are_not_taken_for_it(tmp_path: Path) -> None:
    messages = [{"role": "user", "content": "q?"}]
    message = {"role": "assistant", "reasoning_content": "So 3 + 4 = 7.", "content": "It is 7."}

    def tokens(*pieces: str) -> Any:
        logged = {"content": [{"token": piece, "logprob": -0.1, "top_logprobs": []} for piece in pieces]}
        choice = {"message": message, "logprobs": logged}
        (text,) = texts(tmp_path, {"messages": messages, "choices": [choice], "gold": "7"})
        assert text.response == "<think>\nSo 3 + 4 = 7.\n</think>\n\nIt is 7."
        return text.tokens

    assert tokens("It is", " 7.") is None and tokens() is None
    assert len(tokens("So 3 + 4", " = 7.", "\n</think>\n\n", "It is", " 7.")) == 5


def test_a_gold_answer_that_is_none_is_missing(tmp_path: Path) -> None:
    (fault,) = texts(tmp_path, {"question": "q?", "response": "r", "answer": "3 + 4 = 7 ####"})
    assert isinstance(fault, Fault) and "has no gold answer" in fault.why


def test_log_probabilities_of_chats_completions_and_llama_cpp(tmp_path: Path) -> None:
    def top(*logprobs: float) -> list[dict[str, Any]]:
        return [{"token": str(i), "logprob": value} for i, value in enumerate(logprobs)]

    entries = [
        {"token": "a", "logprob": -0.1, "top_logprobs": top(-0.1, -3.0)},
        {"token": "b", "logprob": -0.5, "top_logprobs": top(-0.5, -1.0)},
    ]
    tops = [{"a": -0.1, "c": -3.0}, {"b": -0.5, "c": -1.0}]
    chat = {"message": {"role": "assistant", "content": "ab"}, "logprobs": {"content": entries}}
    logged = {"tokens": ["a", "b"], "token_logprobs": [-0.1, -0.5], "top_logprobs": tops}
    completion = {"text": "ab", "logprobs": logged}
    llama = {"completion_probabilities": entries, "content": "ab"}
    asked = {"prompt": "q?", "gold": "7"}
    found = texts(tmp_path, {**asked, "choices": [chat]}, {**asked, "choices": [completion]}, {**asked, **llama},
                  columns=Columns(response="content"), gold=False)  # fmt: skip
    for text in found:
        assert [token.text for token in text.tokens] == ["a", "b"]
        assert [token.logprob for token in text.tokens] == [-0.1, -0.5]
        assert text.tokens[0].margin == pytest.approx(2.9)
        assert text.tokens[0].missing == pytest.approx(1 - math.exp(-0.1) - math.exp(-3.0))


def test_what_a_record_lacks_is_named(tmp_path: Path) -> None:
    good = {"question": "q?", "response": "r", "gold": "7"}
    found = texts(tmp_path, good, {**good, "response": " "}, {**good, "question": None}, {**good, "gold": None},
                  {**good, "response": "\ud800"}, {**good, "model": "\ud800"})  # fmt: skip
    assert [fault.why for fault in found[1:]] == [
        "has no response",
        "has no question",
        "has no gold answer (--answer NAME says which column it is in; --label final needs none)",
        "holds half a surrogate pair, which is no text",
        "holds half a surrogate pair, which is no text",
    ]
    without = texts(tmp_path, good, {**good, "gold": None}, gold=False)
    assert [text.answer for text in without] == ["7", None]


def text(question: str = "q?", response: str = "r", answer: str | None = None) -> LoggedText:
    return LoggedText(1, "a", question, response, answer)


def test_format_and_closing_are_found() -> None:
    assert format_of([text(answer="7"), text(answer="$1,200")]) == "number"
    assert format_of([text(answer="7"), text(answer="x^2")]) == "expression"
    options = "Which?\n1. a\n2. b\n3. c"
    assert format_of([text(options, answer="2")]) == "option"
    assert format_of([text("Which?\nA) a\nB) b\nC) c", answer="B")]) == "option"
    assert format_of([text(response="so \\boxed{7}")]) == "number"
    assert closing_of(["a</think>b", "c"]) == "</think>"
    assert closing_of(["think\nx\nanswer\nAnswer: 3"]) == "\nanswer\n"
    assert closing_of(["<|channel>thought\nx<channel|>3"]) == "<channel|>"
    assert closing_of(["<|channel|>analysis<|message|>x<|end|><|start|>assistant<|channel|>final<|message|>3"]) == (
        "<|channel|>final<|message|>"
    )
    assert closing_of(["plain"]) is closing_of([]) is None
    assert gold_of("a #### 5 ") == "5" and gold_of(" x ") == "x"


def test_an_opening_is_known_where_every_thinking_text_has_it() -> None:
    begun, unbegun = "<think>\nhm</think>7", "hm</think>7"
    assert opening_of([begun, "just 7", begun], "</think>") == "<think>"
    assert opening_of([begun, unbegun], "</think>") is None and opening_of(["7"], "</think>") is None
    assert opening_of(["think\nhm\nanswer\n7"], "\nanswer\n") is None and opening_of(["7"], None) is None


def test_tokens_are_the_text(tmp_path: Path) -> None:
    sample = "Okay, so 1234 × 5 = 6,170.\n\n\tThe *extraordinarily* long — \\frac{1}{2} 你好 🙂 </think>"
    assert "".join(approximate(sample)) == sample
    assert approximate("") == []
    with pytest.raises(LogError, match="there is no tokenizer"):
        splitter(str(tmp_path / "nowhere.json"))
    (tmp_path / "broken.json").write_text("{")
    with pytest.raises(LogError, match="cannot load the tokenizer"):
        splitter(str(tmp_path / "broken.json"))


@pytest.mark.skipif(not SHARED.exists(), reason="the shared texts are not here")
def test_the_approximation_is_near_a_tokenizer() -> None:
    """Within 12 % of Qwen2.5's on average, for every file of real texts; docs/audit.md tells the figures."""
    split = splitter(str(SHARED / "tokenizers/qwen2_5"))
    for path in sorted((SHARED / "real_texts").glob("*.xz")):
        some = [t for t, _ in zip(read_texts(path), range(20), strict=False) if isinstance(t, LoggedText)]
        counted = [len(split(t.response)) for t in some]
        assert all("".join(split(t.response)) == t.response for t in some)
        assert sum(len(approximate(t.response)) for t in some) / sum(counted) == pytest.approx(1.0, abs=0.12), path.name


@pytest.mark.skipif(not SHARED.exists(), reason="the shared texts are not here")
def test_every_shared_file_is_read() -> None:
    for path in sorted((SHARED / "real_texts").glob("*.xz")):
        found = list(read_texts(path))
        assert sum(isinstance(one, Fault) for one in found) <= 1, path.name
