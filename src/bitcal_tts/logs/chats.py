"""Chats and completions, wherever a log keeps them: what was asked, what was answered, what was thought apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

THINK = ("<think>\n", "\n</think>\n\n")
"""Put around reasoning that a log keeps apart from the answer."""
REASONING = ("reasoning_content", "reasoning", "thinking", "thoughts", "reasoning_trace")
"""What logs call reasoning that they keep apart."""
_THOUGHT = ("thinking", "reasoning")
"""Parts of a message that were not said."""
_MODEL = ("assistant", "gpt", "model", "bot")
_CHOICES = ("choices", "response.choices", "response.body.choices", "body.choices", "output.choices", "outputs")
"""Where a completion's choices are."""
_ANSWERS = ("message", "response.message", "response", "response.body", "body", "output")
"""Where a log has the one message that answers."""
_CONVERSATIONS = (
    "messages", "request.messages", "request.body.messages", "body.messages", "conversation", "conversations", "prompt",
)  # fmt: skip
_OF_A_SERVER = frozenset({"message", "finish_reason", "stop_reason", "index", "logprobs"})


def inside(values: Any, name: str) -> Any:
    """A value by its name, dots leading inside."""
    if isinstance(values, Mapping) and name in values:
        return values[name]
    for part in name.split("."):
        if isinstance(values, list) and part.lstrip("-").isdigit() and -len(values) <= int(part) < len(values):
            values = values[int(part)]
        elif isinstance(values, Mapping) and part in values:
            values = values[part]
        else:
            return None
    return values


def choices_of(values: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The choices of a completion, wherever a log keeps them; none where it has none.

    The choices of a question have texts too, but nothing that only a server writes.
    """
    for place in _CHOICES:
        choices = inside(values, place)
        if isinstance(choices, list) and choices and all(isinstance(choice, Mapping) for choice in choices):
            first = choices[0]
            if (
                first.keys() & _OF_A_SERVER
                or first.keys() >= {"text", "token_ids"}
                or [*first] == ["text"] == [*choices[-1]]
            ):
                return choices
    for message in (values, *(inside(values, place) for place in _ANSWERS)):
        if isinstance(message, Mapping) and message.get("role") in _MODEL and _content(message):
            return [{"message": message, "finish_reason": message.get("stop_reason")}]
    return []


def messages_of(values: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """What was said, in order; a prompt and its completion may come as messages, too."""
    for place in _CONVERSATIONS:
        messages = inside(values, place)
        if isinstance(messages, list) and messages and all(isinstance(message, Mapping) for message in messages):
            followed = inside(values, "completion") if place == "prompt" else None
            return (
                [*messages, *(part for part in followed if isinstance(part, Mapping))]
                if isinstance(followed, list)
                else messages
            )
    return []


def _role(message: Mapping[str, Any]) -> Any:
    return message.get("role") or message.get("from")


def asked(messages: Sequence[Mapping[str, Any]]) -> str | None:
    """What the user said last."""
    said = [_content(message) for message in messages if _role(message) in ("user", "human")]
    return said[-1] if said else None


def answered(choice: Mapping[str, Any], messages: Sequence[Mapping[str, Any]]) -> str | None:
    """What the model said: of a completion, or as the last message."""
    if isinstance(choice.get("text"), str):
        return str(choice["text"])
    message = choice.get("message")
    if not isinstance(message, Mapping) and messages and _role(messages[-1]) in _MODEL:
        message = messages[-1]
    if not isinstance(message, Mapping):
        return None
    apart = (message[k] for k in REASONING if isinstance(message.get(k), str) and message[k])
    reasoning = next(apart, None) or _thought(message)
    content = _content(message)
    return joined(reasoning, content or "") if reasoning else content


def joined(reasoning: str, content: str) -> str:
    """Reasoning that came apart, and the answer behind it, as one text."""
    return f"{THINK[0]}{reasoning.strip()}{THINK[1]}{content.strip()}"


def _content(message: Mapping[str, Any]) -> str | None:
    content = message.get("content", message.get("value"))
    if isinstance(content, list):
        said = (part.get("text") for part in content if isinstance(part, Mapping) and not _is_thought(part))
        content = "".join(text for text in said if isinstance(text, str))
    return content if isinstance(content, str) and content.strip() else None


def _thought(message: Mapping[str, Any]) -> str | None:
    """What the parts of a message hold that were thought, not said."""
    content = message.get("content")
    parts = [part for part in content if _is_thought(part)] if isinstance(content, list) else []
    texts = (next((text for k in (*_THOUGHT, "text") if (text := _plain(part.get(k)))), "") for part in parts)
    return "".join(texts) or None


def _plain(value: Any) -> str:
    """A text, or texts in parts, as one."""
    if isinstance(value, list):
        return "".join(
            part["text"] for part in value if isinstance(part, Mapping) and isinstance(part.get("text"), str)
        )
    return value if isinstance(value, str) else ""


def _is_thought(part: Any) -> bool:
    return isinstance(part, Mapping) and part.get("type") in _THOUGHT
