"""Think markers, found from the tokenizer and the chat template without configuration."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from bitcal_tts.halting.markers import FAMILIES, HARMONY


class ThinkMarkers(NamedTuple):
    """How a model marks its thinking; `opening` is None where the prompt has opened it already."""

    opening: str | None
    close: str


def style_of(markers: ThinkMarkers | None) -> str:
    """`thinking`, or `instruct` where a model does not think."""
    return "instruct" if markers is None else "thinking"


def marker_tokens(encode: Callable[[str], Sequence[int]]) -> list[str]:
    """The markers of all families that are one token each, by a model's own tokenizer."""
    markers = {marker for family in FAMILIES for marker in family if len(marker) < 30}
    return [marker for marker in sorted(markers) if len(encode(marker)) == 1]


def find_markers(tokenizer: Any, prompt: str) -> ThinkMarkers | None:
    """The markers of a model, or None where it does not think.

    A family is recognised by its tokens in the vocabulary or its strings in the chat template. Then the rendered
    prompt decides: a block it leaves open is the model's to close, an empty block it closes means that thinking is
    switched off.

    Args:
        tokenizer: The model's.
        prompt: A prompt as the model reads it.
    """
    template = tokenizer.chat_template or ""
    if isinstance(template, dict):
        template = "\n".join(template.values())
    added = {str(token) for token in tokenizer.get_added_vocab()}
    for opening, close in FAMILIES:
        if not _known(opening, close, added, template):
            continue
        opened, closed = prompt.rfind(opening), prompt.rfind(close)
        if opened > closed:
            return ThinkMarkers(None, close)
        if closed >= 0 and not prompt[closed + len(close) :].strip():
            return None
        return ThinkMarkers(opening, close)
    return None


def _known(opening: str, close: str, added: set[str], template: str) -> bool:
    if opening == HARMONY[0]:  # several tokens; the template writes them apart
        return {"<|channel|>", "<|message|>", "<|start|>", "<|end|>"} <= added and "analysis" in template
    return {opening, close} <= added or close in template


def parse_markers(text: str) -> ThinkMarkers | None:
    """Markers given by hand: `<think>,</think>`, `,</think>` where the prompt opens the block, or `none`."""
    if text == "none":
        return None
    opening, comma, close = text.partition(",")
    if not comma or not close:
        raise ValueError(f"think markers are OPEN,CLOSE such as <think>,</think>, or none; got {text!r}")
    return ThinkMarkers(opening or None, close)
