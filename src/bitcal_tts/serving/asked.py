"""What a client asks for, and whether it can be controlled; what cannot is passed on as it is, and told why."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bitcal_tts.engines.base import Decoding
from bitcal_tts.halting.words import words_of

CONTROLLED = words_of(
    "model messages prompt max_tokens max_completion_tokens temperature top_p top_k min_p seed stream stream_options n "
    "user bitcal chat_template_kwargs store metadata"
)
"""Keys that a request may have and be controlled all the same; any other one asks for what is not controlled here."""
KEYS = ("method", "budget", "profile", "off", "trace")
"""What a request may say under `bitcal`."""
_PLAIN = {"frequency_penalty": 0, "presence_penalty": 0, "logprobs": False, "n": 1, "echo": False, "best_of": 1}
"""Values that ask for nothing."""


class BadRequestError(ValueError):
    """A request that is wrong; the message says what."""


@dataclass(frozen=True)
class Asked:
    """A request that may be controlled.

    Attributes:
        chat: Whether it is a conversation, or a text to go on with.
        messages: The conversation.
        prompt: The text.
        question: What was asked last.
        options: Of the chat template.
        cap: Most tokens, thinking and answer together; None where the client does not say.
        decoding: How tokens are chosen.
        seed: Of this request.
        stream: Whether the answer comes piece by piece.
        usage: Whether a stream ends with its usage.
        method: By name; None is the sidecar's own.
        profile: By name.
        trace: Whether a stream tells what is seen of each token, and the scores.
    """

    chat: bool
    messages: tuple[dict[str, str], ...]
    prompt: str
    question: str
    options: dict[str, Any]
    cap: int | None
    decoding: Decoding
    seed: int
    stream: bool
    usage: bool
    method: str | None = None
    profile: str | None = None
    trace: bool = False

    @property
    def before(self) -> str | None:
        """What the model is told before the question: nothing, a system prompt, or that there is more than that."""
        told = self.messages[:-1]
        if not told:
            return None
        return told[0]["content"] if [one["role"] for one in told] == ["system"] else f"{len(told)} earlier messages"


def read_asked(body: Mapping[str, Any], *, chat: bool, temperature: float) -> Asked | str:
    """What a body asks for; or, in words, why it is not controlled.

    Args:
        body: As it came.
        chat: Which of the two APIs.
        temperature: Where the client does not say.
    """
    ours = _ours(body.get("bitcal"))
    if ours.get("off"):
        return "the request says so"
    for key, value in body.items():
        if key not in CONTROLLED | _PLAIN.keys() and value not in (None, [], {}, ""):
            return f"it has {key}"
        if key in _PLAIN and value not in (None, _PLAIN[key]):
            return f"it has {key}={value!r}"
    messages: tuple[dict[str, str], ...] = ()
    prompt = ""
    if chat:
        said = _messages(body.get("messages"))
        if isinstance(said, str):
            return said
        messages, question = said, said[-1]["content"]
    else:
        if not isinstance(body.get("prompt"), str):
            return "its prompt is not one text"
        prompt = question = body["prompt"]
    caps = [_whole(body.get(key), key) for key in ("max_tokens", "max_completion_tokens")]
    known = [cap for cap in (*caps, ours.get("budget")) if cap is not None]
    try:
        decoding = Decoding(
            _number(body, "temperature", temperature),
            0,
            _number(body, "top_p", 1.0),
            max(0, _whole(body.get("top_k"), "top_k", least=-1) or 0),
            _number(body, "min_p", 0.0),
        )
    except ValueError as error:
        raise BadRequestError(str(error)) from None
    seed = _whole(body.get("seed"), "seed", least=-(2**63))
    options = body.get("stream_options") or {}
    template = body.get("chat_template_kwargs") or {}
    if not isinstance(options, dict) or not isinstance(template, dict):
        raise BadRequestError("stream_options and chat_template_kwargs must be objects")
    return Asked(
        chat=chat,
        messages=messages,
        prompt=prompt,
        question=question,
        options=template,
        cap=min(known, default=None),
        decoding=decoding,
        seed=random.getrandbits(31) if seed is None else seed % 2**31,
        stream=bool(body.get("stream")),
        usage=bool(options.get("include_usage")),
        method=ours.get("method"),
        profile=ours.get("profile"),
        trace=bool(ours.get("trace")),
    )


def capped(body: Mapping[str, Any]) -> dict[str, int]:
    """The cap that a request names under `bitcal`, as all servers know it; nothing where it names none."""
    cap = (body.get("bitcal") or {}).get("budget")
    if cap is None:
        return {}
    key = "max_completion_tokens" if body.get("max_completion_tokens") is not None else "max_tokens"
    theirs = body.get(key)
    return {key: min(cap, theirs) if isinstance(theirs, int) and theirs > 0 else cap}


def _ours(told: Any) -> dict[str, Any]:
    if told is None:
        return {}
    if not isinstance(told, dict):
        raise BadRequestError(f"bitcal must be an object with {', '.join(KEYS)}")
    unknown = sorted(set(told) - set(KEYS))
    if unknown:
        raise BadRequestError(f"bitcal knows {', '.join(KEYS)}; not {', '.join(unknown)}")
    for key in ("method", "profile"):
        if told.get(key) is not None and not isinstance(told[key], str):
            raise BadRequestError(f"bitcal.{key} must be a name")
    _whole(told.get("budget"), "bitcal.budget")
    return told


def _messages(told: Any) -> tuple[dict[str, str], ...] | str:
    """Messages of plain text, of which the user's is the last; or why they are not that."""
    if not isinstance(told, list) or not told:
        raise BadRequestError("messages must be a list with at least one message")
    plain = []
    for message in told:
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise BadRequestError("a message is an object with role and content")
        if set(message) - {"role", "content", "name"}:
            return f"a message has {', '.join(sorted(set(message) - {'role', 'content', 'name'}))}"
        content = message.get("content")
        if isinstance(content, list) and all(isinstance(p, dict) and isinstance(p.get("text"), str) for p in content):
            content = "".join(part["text"] for part in content)
        if not isinstance(content, str):
            return "a message is not plain text"
        plain.append({"role": message["role"], "content": content})
    if plain[-1]["role"] != "user":
        return "its last message is not the user's"
    return tuple(plain)


def _whole(value: Any, name: str, least: int = 1) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise BadRequestError(f"{name} must be a whole number of at least {least}, got {value!r}")
    return value


def _number(body: Mapping[str, Any], name: str, usual: float) -> float:
    value = body.get(name)
    if value is None:
        return usual
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadRequestError(f"{name} must be a number, got {value!r}")
    try:
        return float(value)
    except OverflowError:
        raise BadRequestError(f"{name} is too large a number") from None
