"""What the sidecar answers, as OpenAPI: the two APIs that it controls, and its own pages."""

from __future__ import annotations

from typing import Any

from bitcal_tts import __version__
from bitcal_tts.serving.asked import KEYS

_WHOLE = {"type": ["integer", "null"], "minimum": 1}
_COMMON: dict[str, Any] = {
    "model": {"type": "string"},
    "max_tokens": _WHOLE,
    "max_completion_tokens": _WHOLE,
    "temperature": {"type": ["number", "null"], "minimum": 0, "maximum": 2},
    "top_p": {"type": ["number", "null"], "exclusiveMinimum": 0, "maximum": 1},
    "seed": {"type": ["integer", "null"]},
    "stream": {"type": ["boolean", "null"]},
    "bitcal": {
        "type": ["object", "null"],
        "additionalProperties": False,
        "properties": {
            "method": {"type": "string"},
            "profile": {"type": "string"},
            "budget": {"type": "integer", "minimum": 1},
            "off": {"type": "boolean"},
            "trace": {"type": "boolean"},
        },
    },
}
assert set(_COMMON["bitcal"]["properties"]) == set(KEYS)
_MESSAGE = {
    "type": "object",
    "required": ["role", "content"],
    "properties": {"role": {"enum": ["system", "user", "assistant"]}, "content": {"type": "string"}},
}
_ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type"],
            "properties": {"message": {"type": "string"}, "type": {"type": "string"}},
        }
    },
}
_ERRORS = {
    "400": "the request is wrong; the message says what",
    "401": "the API key is missing or wrong",
    "413": "the body is too large",
    "421": "the sidecar does not go by this name",
    "429": "too many requests are open",
    "502": "the upstream failed",
}


def _answer(what: str, kind: str = "application/json", schema: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"description": what, "content": {kind: {"schema": schema or {}}}}


def _generation(what: str, required: str, extra: dict[str, Any]) -> dict[str, Any]:
    body = {"type": "object", "required": [required], "properties": {**_COMMON, **extra}}
    answers = {status: _answer(why, schema=_ERROR) for status, why in _ERRORS.items()}
    whole = _answer("the answer; in a stream, its events", schema={"type": "object"})
    # Before OpenAPI 3.2 the schema of a stream is that of each of its events.
    event = {"type": "object", "required": ["data"], "properties": {"data": {"type": "string"}}}
    whole["content"]["text/event-stream"] = {"schema": event}
    # What is not controlled is passed on, and answered as the upstream does.
    default = {"description": "passed on, and answered by the upstream"}
    content = {"application/json": {"schema": body}}
    return {
        "post": {
            "summary": what,
            "requestBody": {"required": True, "content": content},
            "responses": {"200": whole, **answers, "default": default},
        }
    }


def _page(what: str, kind: str = "application/json") -> dict[str, Any]:
    errors = {status: _answer(_ERRORS[status], schema=_ERROR) for status in ("401", "421")}
    return {"get": {"summary": what, "responses": {"200": _answer(what, kind), **errors}}}


def schema() -> dict[str, Any]:
    """The whole of it."""
    messages = {"messages": {"type": "array", "minItems": 1, "items": _MESSAGE}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "BitCal sidecar", "version": __version__},
        "paths": {
            "/v1/chat/completions": _generation("A conversation, continued", "messages", messages),
            "/v1/completions": _generation("A text, continued", "prompt", {"prompt": {"type": "string"}}),
            "/healthz": _page("that it runs"),
            "/metrics": _page("counts for Prometheus", "text/plain"),
            "/bitcal/about": _page("what it halts, and how"),
            "/bitcal/autopilot": _page("what the autopilot knows"),
        },
    }
