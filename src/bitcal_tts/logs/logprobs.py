"""Tokens with their log-probabilities, where a log has them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from bitcal_tts.halting.exchange import Token
from bitcal_tts.logs.chats import THINK

_VOCABULARY = 150_000  # for the bound on what truncated log-probabilities leave open


def tokens_of(choice: Mapping[str, Any], values: Mapping[str, Any]) -> list[Token] | None:
    """Tokens with their log-probabilities, as OpenAI and vLLM give them with chats or completions, or llama.cpp."""
    logged = choice.get("logprobs")
    try:
        if isinstance(logged, Mapping) and isinstance(logged.get("content"), list):
            return [_token(entry) for entry in logged["content"]]
        if isinstance(logged, Mapping) and isinstance(logged.get("tokens"), list):
            tops = logged.get("top_logprobs") or [None] * len(logged["tokens"])
            entries = zip(logged["tokens"], logged["token_logprobs"], tops, strict=True)
            return [_known(text, logprob, list((top or {}).values())) for text, logprob, top in entries]
        probabilities = values.get("completion_probabilities")
        if isinstance(probabilities, list) and probabilities:
            return [_token(entry) for entry in probabilities]
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError):
        return None
    return None


def are_all(response: str, tokens: str) -> bool:
    """Whether tokens are all of a response, but for what was put around reasoning that came apart."""
    if not tokens or tokens not in response:
        return False
    left = response.replace(tokens, "", 1).replace(THINK[0].strip(), "").replace(THINK[1].strip(), "")
    return not left.strip()


def _token(entry: Mapping[str, Any]) -> Token:
    text = entry["token"] if "token" in entry else entry["content"]
    top = entry.get("top_logprobs") or []
    return _known(text, entry["logprob"], [choice["logprob"] for choice in top])


def _known(text: str, logprob: float | None, likeliest: Sequence[float]) -> Token:
    finite = [value for value in likeliest if math.isfinite(value)]
    if logprob is None or len(finite) < 2:
        return Token(text, logprob=logprob)
    return Token.from_top(text, logprob, sorted(finite, reverse=True), vocabulary=_VOCABULARY)
