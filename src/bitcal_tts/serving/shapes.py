"""Answers as OpenAI's clients expect them: whole or piece by piece, with the thinking apart."""

from __future__ import annotations

import secrets
import time
from typing import Any

from bitcal_tts.engines.thinking import ThinkMarkers
from bitcal_tts.serving.asked import Asked
from bitcal_tts.serving.generation import Generation, account


class Apart:
    """Splits a growing text into what is thought and what is said; the markers belong to neither.

    Args:
        markers: How the model marks its thinking; None where it does not, and all of it is said.
    """

    def __init__(self, markers: ThinkMarkers | None) -> None:
        self._opening = None if markers is None else markers.opening
        self._close = None if markers is None else markers.close
        self._stage = "said" if markers is None else "thought" if markers.opening is None else "before"
        self._held = ""
        self._fresh = False

    def feed(self, text: str) -> list[tuple[str, str]]:
        """What a piece adds, as (`thought` or `said`, text); the beginning of a marker is held back."""
        self._held += text
        found: list[tuple[str, str]] = []
        while True:
            markers = self._next_markers()
            places = [(at, marker) for marker in markers if (at := self._held.find(marker)) >= 0]
            if not places:
                held_back = max((_overlap(self._held, marker) for marker in markers), default=0)
                return found + self._released(len(self._held) - held_back)
            at, marker = min(places)
            found += self._released(at)
            self._held, self._fresh = self._held[len(marker) :], True
            self._stage = "thought" if marker == self._opening else "said"

    def rest(self) -> list[tuple[str, str]]:
        """What was held back, at the end."""
        return self._released(len(self._held))

    def _next_markers(self) -> list[str]:
        """Those that may come now; a model may end a thinking that it never began, and all of it was said then."""
        if self._stage == "said":
            return []
        expected = (self._opening, self._close) if self._stage == "before" else (self._close,)
        return [marker for marker in expected if marker is not None]

    def _released(self, n: int) -> list[tuple[str, str]]:
        text, self._held = self._held[:n], self._held[n:]
        if self._fresh:  # the lines between a marker and what follows it belong to neither
            text = text.lstrip("\n")
            self._fresh = not text
        return [("thought" if self._stage == "thought" else "said", text)] if text else []


def _overlap(text: str, marker: str) -> int:
    """How many of the last characters may be the beginning of a marker."""
    return next((n for n in range(min(len(text), len(marker) - 1), 0, -1) if marker.startswith(text[-n:])), 0)


class Answer:
    """The answer to one request, in the shape of its API.

    Args:
        asked: The request.
        model: As the upstream calls it.
        markers: How it marks its thinking, where that is to be told apart.
    """

    def __init__(self, asked: Asked, model: str, markers: ThinkMarkers | None) -> None:
        self._asked, self._apart = asked, Apart(markers if asked.chat else None)
        kind = "chatcmpl" if asked.chat else "cmpl"
        self._head = {"id": f"{kind}-{secrets.token_hex(12)}", "created": int(time.time()), "model": model}
        self._said = {"thought": "", "said": ""}

    def begin(self) -> list[dict[str, Any]]:
        """The first event of a stream."""
        return [self._event({"role": "assistant", "content": ""})] if self._asked.chat else []

    def feed(self, text: str) -> list[dict[str, Any]]:
        """Events for a piece of text."""
        return self._events(self._apart.feed(text))

    def told(self, seen: dict[str, Any]) -> dict[str, Any]:
        """An event that adds no text, for one who wants to see what is seen."""
        return {**self._event({}), "choices": [], "bitcal": seen}

    def end(self, generation: Generation) -> list[dict[str, Any]]:
        """The last events of a stream: the rest, the reason, the account, the usage."""
        events = self._events(self._apart.rest())
        last = self._event({}, finish=_finish(generation))
        last["bitcal"] = account(generation)
        events.append(last)
        if self._asked.usage:
            events.append({**last, "choices": [], "usage": usage(generation)})
        return events

    def whole(self, generation: Generation) -> dict[str, Any]:
        """The answer in one piece, once it has come."""
        self._events(self._apart.rest())
        said, thought = self._said["said"], self._said["thought"]
        choice: dict[str, Any] = {"index": 0, "finish_reason": _finish(generation), "logprobs": None}
        if self._asked.chat:
            message: dict[str, Any] = {"role": "assistant", "content": said}
            choice["message"] = message | ({"reasoning_content": thought} if thought else {})
        else:
            choice["text"] = said
        kind = "chat.completion" if self._asked.chat else "text_completion"
        told = {"object": kind, "choices": [choice], "usage": usage(generation), "bitcal": account(generation)}
        return {**self._head, **told}

    def _events(self, parts: list[tuple[str, str]]) -> list[dict[str, Any]]:
        events = []
        for kind, text in parts:
            self._said[kind] += text
            delta = {"reasoning_content" if kind == "thought" else "content": text}
            events.append(self._event(delta))
        return events

    def _event(self, delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        choice: dict[str, Any] = {"index": 0, "finish_reason": finish, "logprobs": None}
        if self._asked.chat:
            return {**self._head, "object": "chat.completion.chunk", "choices": [{**choice, "delta": delta}]}
        return {**self._head, "object": "text_completion", "choices": [{**choice, "text": delta.get("content", "")}]}


def _finish(generation: Generation) -> str:
    return "length" if generation.cut else "stop"


def usage(generation: Generation) -> dict[str, Any]:
    """Tokens of prompt and answer; those of probes are apart, in the account."""
    prompt, used = generation.prompt.tokens, generation.used
    return {"prompt_tokens": prompt, "completion_tokens": used, "total_tokens": prompt + used}
