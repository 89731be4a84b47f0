"""One item's full decode with its signals."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitcal_tts.halting.controller import Probe
from bitcal_tts.halting.exchange import SessionOutcome
from bitcal_tts.halting.reading import Stage
from bitcal_tts.halting.signals import Signals
from bitcal_tts.halting.statements import Statement
from bitcal_tts.tasks.base import Item

SIGNAL_COLUMNS = ("entropies", "logprobs", "margins", "top_logprobs")
"""None where a recording has no such signal."""


class TraceError(Exception):
    """A trace folder cannot be read or written; the message names the file and what differs."""


@dataclass(frozen=True, eq=False)
class Trace:
    """One recorded decode. `finish` is `eos` or `budget`; see docs/traces.md for the rest.

    `probes` are the answers the model gives when made to, by the number of tokens before; None where not recorded.
    """

    index: int
    item: Item
    prompt_tokens: int
    finish: str
    token_ids: NDArray[np.int32]
    token_texts: list[str]
    entropies: NDArray[np.float32] | None
    logprobs: NDArray[np.float32] | None
    margins: NDArray[np.float32] | None
    top_logprobs: NDArray[np.float32] | None
    hidden_similarities: NDArray[np.float32]
    hidden: NDArray[np.float32] | None = None
    probes: Mapping[int, Probe] | None = None
    signals: Signals = Signals(hidden_every=16)  # noqa: RUF009  (frozen)

    def __len__(self) -> int:
        return len(self.token_texts)

    @property
    def is_logged(self) -> bool:
        """Whether it is a text of somebody's log: no model is there to be asked what it would have answered."""
        return self.probes is None and len(self.token_ids) == 0

    @cached_property
    def text(self) -> str:
        """The generated text."""
        return "".join(self.token_texts)

    @cached_property
    def offsets(self) -> NDArray[np.int64]:
        """`text[: offsets[t]]` is the text of the first t tokens."""
        return np.concatenate(([0], np.cumsum([len(piece) for piece in self.token_texts], dtype=np.int64)))

    @cached_property
    def full_runs(self) -> dict[tuple[Any, ...], SessionOutcome]:
        """How it ends where nothing disturbs it, by budget and answer format, as far as that was asked."""
        return {}

    @cached_property
    def looks(self) -> dict[tuple[Any, ...], tuple[int, ...]]:
        """Tokens after which it has its looks, by where they lie and how it is read, as far as that was asked."""
        return {}

    @cached_property
    def stops(self) -> dict[tuple[Any, ...], tuple[int, str | None]]:
        """Tokens and answer where it is stopped and the model answers, by place and budget, as far as it was asked."""
        return {}

    @cached_property
    def stages(self) -> dict[tuple[Any, ...], list[Stage]]:
        """Where it stands after each of its tokens, by how it is read, as far as that was asked."""
        return {}

    @cached_property
    def statements(self) -> dict[str | None, dict[int, Statement]]:
        """What it states, and after how many tokens, by what answers look like, as far as that was asked."""
        return {}

    def shaded(self) -> list[tuple[str, float | None]]:
        """Each token's text and the entropy that it was chosen at; one that nobody knows is None."""
        entropies = [math.nan] * len(self) if self.entropies is None else self.entropies.tolist()
        pairs = zip(self.token_texts, entropies, strict=True)
        return [(text, entropy if math.isfinite(entropy) else None) for text, entropy in pairs]

    def text_at(self, tokens: int) -> str:
        """The text of the first `tokens` tokens."""
        return self.text[: self.offsets[tokens]]
