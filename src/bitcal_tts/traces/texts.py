"""Texts that somebody logged, as traces whose signals are absent or truncated: replayed, fitted and compared like any.

What the model would have answered after a landing is not known of a text. It is read off it instead, at a stated cost
(`replay.LANDING_TOKENS`), and only methods that say what a text stands for can end one early.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bitcal_tts.halting.signals import TEXT_ONLY, Signals
from bitcal_tts.logs.texts import LoggedText
from bitcal_tts.tasks.base import Item
from bitcal_tts.traces.trace import SIGNAL_COLUMNS, Trace

TOP_K = 20
_FIELDS = dict(zip(SIGNAL_COLUMNS, ("entropy", "logprob", "margin", "top_logprob"), strict=True))


def trace_of(text: LoggedText, index: int, split: Callable[[str], list[str]], *, signals: Signals = TEXT_ONLY) -> Trace:
    """A logged text as a trace.

    Args:
        text: The text.
        index: Its place among the others.
        split: What splits it into tokens, where it does not come in tokens.
        signals: What is to be kept of its tokens; absent where they tell nothing.
    """
    columns: dict[str, Any] = dict.fromkeys(SIGNAL_COLUMNS)
    if signals.distribution == "top":
        assert text.tokens is not None
        pieces = [str(token.text) for token in text.tokens]
        columns |= {
            name: np.array([getattr(token, field) for token in text.tokens], dtype=np.float32)
            for name, field in _FIELDS.items()
        }
    else:
        pieces = split(text.response)
    extra = {"truncated": text.truncated} if text.truncated is not None else {}
    return Trace(
        index=index,
        item=Item(text.id, text.question, text.answer or "", {**extra, "line": text.line}),
        prompt_tokens=0,
        finish="eos",
        token_ids=np.zeros(0, dtype=np.int32),
        token_texts=pieces,
        hidden_similarities=np.zeros(0, dtype=np.float32),
        signals=signals,
        **columns,
    )


def complete_signals(text: LoggedText) -> bool:
    """Whether every token of a text tells all that is kept of it."""
    tokens = text.tokens
    return tokens is not None and all(
        getattr(token, field) is not None for token in tokens for field in _FIELDS.values()
    )
