"""Logged texts -> a trace folder like any other, but for what a log does not know."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from bitcal_tts.engines.base import Completion
from bitcal_tts.files import locked
from bitcal_tts.halting.identity import KEYS, LOG
from bitcal_tts.halting.signals import TEXT_ONLY, Signals
from bitcal_tts.logs.texts import LoggedText
from bitcal_tts.tasks.registry import TEXTS
from bitcal_tts.traces.manifest import Manifest
from bitcal_tts.traces.record import environment
from bitcal_tts.traces.store import TraceStore
from bitcal_tts.traces.texts import trace_of
from bitcal_tts.traces.trace import SIGNAL_COLUMNS, Trace

BLOCK = 256
_NOT_TOLD = dict.fromkeys(KEYS)
"""What a log does not tell: known not to be known, so that a promise made on it is tied to logs like it."""


def manifest_of(
    *,
    model: str,
    bits: float,
    answers: str,
    close: str | None,
    opening: str | None = None,
    budget: int,
    source: str,
    texts_sha256: str,
    tokenizer: str,
    signals: Signals = TEXT_ONLY,
) -> Manifest:
    """What a folder of imported texts says of itself."""
    told = {
        "engine": LOG,
        "model": model,
        "bits": bits,
        "task": TEXTS,
        "budget": budget,
        "style": "thinking" if close else "instruct",
        "thinking": [opening, close] if close else None,
        "decoding": {"temperature": None},
        "source": source,
        "texts_sha256": texts_sha256,
        "tokenizer": tokenizer,
        "split": None,
    }
    decided = {key: value for key, value in _NOT_TOLD.items() if key not in ("signals", "budget")}
    return Manifest(
        tokens={**decided, **told},
        content={
            "signals": signals.distribution,
            "k": signals.k,
            "chunk_size": 16,
            "hidden": False,
            "keep_hidden": False,
        },
        reading={"answers": answers, "execute": False},
        environment=environment(),
    )


def import_texts(
    texts: Iterable[LoggedText],
    n: int,
    folder: Path,
    manifest: Manifest,
    split: Callable[[str], list[str]],
    progress: Callable[[int, int], None] | None = None,
) -> TraceStore:
    """Write texts as traces, block by block; what is there already is kept.

    Args:
        texts: Of one file, in order.
        n: How many there are.
        folder: Where the store is or will be.
        manifest: What it says of itself.
        split: What splits a text into tokens.
        progress: Told (items, tokens).
    """
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder):
        store = TraceStore.create(folder, manifest)
        if not store.manifest.segments:
            store.grow(n, batch_size=BLOCK, block_size=BLOCK)
        there = set(store.blocks())
        numbered = enumerate(_told_apart(texts))
        for block in range(-(-n // BLOCK)):
            part = list(itertools.islice(numbered, BLOCK))
            if block in there:
                continue
            traces = [trace_of(text, i, split, signals=manifest.signals) for i, text in part]
            store.write(block, [(trace.index, trace.item, _as_completion(trace)) for trace in traces], {"block": block})
            if progress:
                progress(len(traces), sum(map(len, traces)))
    return store


def _told_apart(texts: Iterable[LoggedText]) -> Iterator[LoggedText]:
    """The same, with another id for every further text of one: items are told apart by theirs."""
    met: set[str] = set()
    times: Counter[str] = Counter()
    for text in texts:
        name = text.id
        while name in met:
            times[text.id] += 1
            name = f"{text.id}#{times[text.id] + 1}"
        met.add(name)
        yield text if name == text.id else replace(text, id=name)


def _as_completion(trace: Trace) -> Completion:
    columns: dict[str, Any] = {
        name: None if (column := getattr(trace, name)) is None else column.tolist() for name in SIGNAL_COLUMNS
    }
    return Completion(trace.item.id, 0, token_texts=trace.token_texts, finish=trace.finish, **columns)
