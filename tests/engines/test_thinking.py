"""Think markers from tokenizer and chat template alone, for the families whose templates are known."""

from __future__ import annotations

from typing import Any

import pytest

from bitcal_tts.engines.thinking import ThinkMarkers, find_markers, parse_markers

QWEN3 = "{% if enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}"
HARMONY = "<|start|>assistant{% if x %}<|channel|>analysis<|message|>{% endif %}"


class Tokenizer:
    """What finding needs of one: its added tokens and its template."""

    def __init__(self, added: list[str], template: str | None) -> None:
        self._added = added
        self.chat_template = template

    def get_added_vocab(self) -> dict[str, int]:
        return {token: i for i, token in enumerate(self._added)}


@pytest.mark.parametrize(
    ("added", "template", "prompt", "markers"),
    [
        # Qwen3 and SmolLM3: the model opens the block itself, unless the template has closed an empty one.
        (["<think>", "</think>"], QWEN3, "<|im_start|>assistant\n", ("<think>", "</think>")),
        (["<think>", "</think>"], QWEN3, "<|im_start|>assistant\n<think>\n\n</think>\n\n", None),
        # DeepSeek-R1 and Qwen3-Thinking-2507: the template opens it.
        (["<think>", "</think>"], "...<think>\\n", "<｜Assistant｜><think>\n", (None, "</think>")),
        # A model that was only taught by its template.
        ([], "x</think>y", "<|assistant|>", ("<think>", "</think>")),
        # gpt-oss: channels of harmony.
        (
            ["<|channel|>", "<|message|>", "<|start|>", "<|end|>"], HARMONY, "<|start|>assistant",
            ("<|channel|>analysis<|message|>", "<|end|><|start|>assistant<|channel|>final<|message|>"),
        ),
        # Qwen2.5 and others: no thinking.
        (["<|im_start|>"], "plain", "<|im_start|>assistant\n", None),
        ([], None, "raw", None),
    ],
)  # fmt: skip
def test_families(added: list[str], template: str | None, prompt: str, markers: Any) -> None:
    found = find_markers(Tokenizer(added, template), prompt)
    assert found == (None if markers is None else ThinkMarkers(*markers))


def test_the_model_in_the_box(engine: Any, thinking_engine: Any) -> None:
    assert engine.thinking is None  # its template closes an empty block
    assert thinking_engine.thinking == ThinkMarkers("<think>", "</think>")
    assert thinking_engine.describe()["thinking"] == ["<think>", "</think>"]


def test_markers_by_hand() -> None:
    assert parse_markers("<a>,</a>") == ThinkMarkers("<a>", "</a>")
    assert parse_markers(",</a>") == ThinkMarkers(None, "</a>")
    assert parse_markers("none") is None
    with pytest.raises(ValueError, match="think markers are OPEN,CLOSE"):
        parse_markers("<a>")
