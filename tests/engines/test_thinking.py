"""Think markers from tokenizer and chat template alone, for the families whose templates are known."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast

from bitcal_tts.engines.thinking import ThinkMarkers, find_markers, parse_markers
from bitcal_tts.halting.markers import HARMONY

QWEN3 = "{% if enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}"
HARMONY_TEMPLATE = "<|start|>assistant{% if x %}<|channel|>analysis<|message|>{% endif %}"


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
            ["<|channel|>", "<|message|>", "<|start|>", "<|end|>"], HARMONY_TEMPLATE, "<|start|>assistant",
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


CLOSED = {"enable_thinking": False}
OPENED = {"enable_thinking": True}
HARMONY_TOKENS = ["<|channel|>", "<|message|>", "<|start|>", "<|end|>"]


@pytest.mark.parametrize(
    ("name", "options", "markers"),
    [
        ("Qwen-Qwen3-0.6B", {}, ("<think>", "</think>")),
        ("Qwen-Qwen3-0.6B", CLOSED, None),
        ("Qwen3.5-4B", {}, (None, "</think>")),
        ("Qwen-QwQ-32B", OPENED, (None, "</think>")),
        ("deepseek-ai-DeepSeek-R1-Distill-Llama-8B", {}, (None, "</think>")),
        ("deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", OPENED, (None, "</think>")),
        ("HuggingFaceTB-SmolLM3-3B", {}, ("<think>", "</think>")),
        ("HuggingFaceTB-SmolLM3-3B", CLOSED, None),
        ("openai-gpt-oss-120b", {}, HARMONY),
        ("mistralai-Ministral-3-14B-Reasoning-2512", {}, ("[THINK]", "[/THINK]")),
        ("google-gemma-4-31B-it", OPENED, ("<|channel>thought\n", "<channel|>")),
        ("google-gemma-4-31B-it", CLOSED, None),
        ("CohereForAI-c4ai-command-r7b-12-2024-tool_use", {}, None),
        ("Cohere2MoE", OPENED, (None, "<|END_THINKING|>")),
        ("Qwen-Qwen2.5-7B-Instruct", {}, None),
        ("Qwen3-Coder", {}, None),
        ("meta-llama-Llama-3.1-8B-Instruct", {}, None),
        ("microsoft-Phi-3.5-mini-instruct", {}, None),
    ],
)
def test_published_templates(name: str, options: dict[str, bool], markers: Any) -> None:
    folder = os.environ.get("LLAMA_CPP_TEMPLATES")
    if not folder:
        pytest.skip("LLAMA_CPP_TEMPLATES is not set: the folder models/templates of llama.cpp's source")
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=tokenizers.Tokenizer(WordLevel()))
    tokenizer.chat_template = (Path(folder) / f"{name}.jinja").read_text(encoding="utf-8")
    if "gpt-oss" in name:
        tokenizer.add_tokens(HARMONY_TOKENS, special_tokens=True)
    messages = [{"role": "user", "content": "What is 2+2?"}]
    prompt = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True, **options)
    found = find_markers(tokenizer, prompt)
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
