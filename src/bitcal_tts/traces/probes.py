"""Recorded probes: what the model answers when made to, at every boundary and after every stated answer of a trace.

Recorded once, they let every probing rule and every soft landing be replayed, with what they would have cost.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import pyarrow as pa

from bitcal_tts.engines.base import Completion
from bitcal_tts.engines.forks import Fork, Place, Written
from bitcal_tts.halting.answers import AnswerFormat
from bitcal_tts.halting.complete import AnswerTracker
from bitcal_tts.halting.controller import Probe
from bitcal_tts.halting.landing import Landing, landing
from bitcal_tts.halting.statements import detector_for

PROBE_SCHEMA = pa.schema(
    [
        pa.field("index", pa.int32(), nullable=False),
        pa.field("at", pa.int32(), nullable=False),
        pa.field("text", pa.string(), nullable=False),
        pa.field("n_tokens", pa.int32(), nullable=False),
        pa.field("logprobs", pa.list_(pa.float32()), nullable=False),
        pa.field("close_entropy", pa.float32(), nullable=False),
        pa.field("close_tokens", pa.int32(), nullable=False),
    ]
)


def places(
    texts: Sequence[str], answers: AnswerFormat, thinking: Sequence[str | None] | None, every: int
) -> Iterator[tuple[int, Landing]]:
    """Where a gate may end a trace: tokens so far, and the landing there.

    Args:
        texts: The trace token by token.
        answers: How answers are written.
        thinking: Opening and closing marker, or None.
        every: Tokens between boundaries.
    """
    opening, close = thinking or (None, None)
    tracker = AnswerTracker(answers, opening, close)
    detector = detector_for(answers.stated).fresh()
    for tokens, text in enumerate(texts, 1):
        tracker.feed(text)
        stated = detector.feed(text) is not None
        if tracker.given or (close is not None and tracker.closed):
            return
        if stated or tokens % every == 0:
            inside = close if tracker.inside else None
            yield tokens, landing(tracker.last, inside, answers.cue)


class Prober(Protocol):
    """An engine that can make its model answer at many places of a decode."""

    def probe(self, forks: Sequence[Fork], answers: AnswerFormat, *, batch_size: int) -> Iterator[list[Written]]:
        """What is written at the places of each fork."""
        ...


def probe_block(
    engine: Prober,
    prompts: Sequence[str],
    done: Sequence[tuple[int, Completion]],
    answers: AnswerFormat,
    thinking: Sequence[str | None] | None,
    *,
    every: int,
    batch_size: int,
) -> pa.Table:
    """Probes of a block of completions, as a table."""
    forks = []
    for prompt, (_, completion) in zip(prompts, done, strict=True):
        after = [*completion.entropies[1:], 0.0]  # at the last token nobody knows what would have followed
        found = [
            Place(tokens, where, after[tokens - 1])
            for tokens, where in places(completion.token_texts, answers, thinking, every)
        ]
        forks.append(Fork(prompt, completion.token_ids, found))
    # Of similar length together, so that little is padded.
    order = sorted(range(len(forks)), key=lambda i: (len(forks[i].tokens), i))
    rows: list[dict[str, Any]] = []
    for i, written in zip(order, engine.probe([forks[i] for i in order], answers, batch_size=batch_size), strict=True):
        index = done[i][0]
        rows += [
            {"index": index, "at": place.tokens, **vars(one.probe())}
            for place, one in zip(forks[i].places, written, strict=True)
        ]
    rows.sort(key=lambda row: (row["index"], row["at"]))
    return pa.Table.from_pylist(rows, schema=PROBE_SCHEMA)


def from_probe_table(table: pa.Table) -> dict[int, dict[int, Probe]]:
    """Probes by item and number of tokens."""
    found: dict[int, dict[int, Probe]] = {}
    for row in table.to_pylist():
        index, at = row.pop("index"), row.pop("at")
        found.setdefault(index, {})[at] = Probe(**{**row, "logprobs": tuple(row["logprobs"])})
    return found
