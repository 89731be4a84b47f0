"""Recorded probes: what the model answers when made to, at every boundary, sentence end and stated answer of a trace.

Recorded once, they let every probing rule and every soft landing be replayed, with what they would have cost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from bitcal_tts.engines.base import Engine, Fork, Place
from bitcal_tts.halting.answers import AnswerFormat
from bitcal_tts.halting.controller import Probe, Question
from bitcal_tts.halting.exchange import Ask, Tokens
from bitcal_tts.halting.gate import Gate, GateParameters
from bitcal_tts.halting.landing import Landing
from bitcal_tts.halting.reading import Stage
from bitcal_tts.halting.session import Session
from bitcal_tts.halting.signals import Signals
from bitcal_tts.halting.statements import detector_for
from bitcal_tts.halting.values import Sentences
from bitcal_tts.traces.trace import Trace

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
_NOTHING = Probe("", 0, (), 0.0, 0)


class _Everywhere(Gate):
    """Asks wherever a gate may stop: at boundaries, at sentence ends and where an answer has just been stated."""

    question = Question.ANSWER

    def __init__(self, parameters: Any, every: int = 16) -> None:
        super().__init__(parameters)
        self._every = every
        self._detector = detector_for(parameters.format.stated).fresh()
        self._sentences = Sentences()
        self._stops = False

    def looks_at(self, stage: Stage) -> bool:
        return stage is not Stage.OVER

    def fresh(self) -> _Everywhere:
        return _Everywhere(self.parameters, self._every)

    def token(self, text: str, entropy: float | None, logprob: float | None, margin: float | None) -> float | None:
        ended = self._sentences.feed(text)
        self._stops = self._detector.feed(text) is not None or bool(ended)
        return None

    def wants_probe(self) -> bool:
        return self._stops or self.tokens % self._every == 0


def places(
    texts: Sequence[str], format: AnswerFormat, thinking: Sequence[str | None] | None, every: int
) -> Iterator[tuple[int, Landing]]:
    """Where a gate may end a trace: tokens so far, and the landing there.

    Args:
        texts: The trace token by token.
        format: How answers are written.
        thinking: Opening and closing marker, or None.
        every: Tokens between boundaries.
    """
    opening, close = thinking or (None, None)
    parameters = GateParameters(
        name="probes", bits=16, budget=len(texts) + 1, answers=format.name, opening=opening, close=close, every=1,
        reserve=0,
    )  # fmt: skip
    session = Session(_Everywhere(parameters, every), signals=Signals("absent", probes=True))
    directive = session.feed(Tokens(texts))
    while isinstance(directive, Ask):
        yield directive.at, directive.landing
        directive = session.tell(_NOTHING)


def probe_traces(
    engine: Engine,
    prompts: Sequence[str],
    traces: Sequence[Trace],
    format: AnswerFormat,
    thinking: Sequence[str | None] | None,
    *,
    every: int,
    batch_size: int,
    tick: Callable[[int], None] | None = None,
) -> pa.Table:
    """Probes of traces, as a table; `tick` is told of traces as they are done."""
    forks = []
    for prompt, trace in zip(prompts, traces, strict=True):
        # At the last token nobody knows what would have followed; the engine finds out.
        after = [0.0] * len(trace) if trace.entropies is None else [*trace.entropies[1:].tolist(), 0.0]
        there = [
            Place(tokens, where, format, after[tokens - 1])
            for tokens, where in places(trace.token_texts, format, thinking, every)
        ]
        forks.append(Fork(prompt, trace.token_ids.tolist(), there, trace.token_texts))
    # Of similar length together, so that little is padded.
    order = sorted(range(len(forks)), key=lambda i: (len(forks[i].tokens), i))
    rows: list[dict[str, Any]] = []
    for i, written in zip(order, engine.probe([forks[i] for i in order], batch_size=batch_size), strict=True):
        rows += [
            {"index": traces[i].index, "at": place.tokens, **vars(one.probe())}
            for place, one in zip(forks[i].places, written, strict=True)
        ]
        if tick:
            tick(1)
    rows.sort(key=lambda row: (row["index"], row["at"]))
    return pa.Table.from_pylist(rows, schema=PROBE_SCHEMA)


def from_probe_table(table: pa.Table) -> dict[int, dict[int, Probe]]:
    """Probes by item and number of tokens."""
    found: dict[int, dict[int, Probe]] = {}
    for row in table.to_pylist():
        index, at = row.pop("index"), row.pop("at")
        found.setdefault(index, {})[at] = Probe(**{**row, "logprobs": tuple(row["logprobs"])})
    return found
