"""One item's full decode with its signals, in memory and as a Parquet row. Documented in docs/traces.md."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bitcal_tts.engines.base import Completion
from bitcal_tts.halting.controller import Probe
from bitcal_tts.halting.exchange import SessionOutcome
from bitcal_tts.halting.reading import Stage
from bitcal_tts.halting.signals import Signals
from bitcal_tts.halting.statements import Statement
from bitcal_tts.tasks.base import Item

SCHEMA_VERSION = 3

_FLOATS = pa.list_(pa.float32())
SIGNAL_COLUMNS = ("entropies", "logprobs", "margins", "top_logprobs")
"""Null where a recording has no such signal."""
ARROW_SCHEMA = pa.schema(
    [
        pa.field("index", pa.int32(), nullable=False),
        pa.field("id", pa.string(), nullable=False),
        pa.field("question", pa.string(), nullable=False),
        pa.field("answer", pa.string(), nullable=False),
        pa.field("extra", pa.string(), nullable=False),
        pa.field("prompt_tokens", pa.int32(), nullable=False),
        pa.field("finish", pa.string(), nullable=False),
        pa.field("token_ids", pa.list_(pa.int32()), nullable=False),
        pa.field("token_texts", pa.list_(pa.string()), nullable=False),
        *(pa.field(name, _FLOATS) for name in SIGNAL_COLUMNS),
        pa.field("hidden_similarities", _FLOATS, nullable=False),
    ]
)
Done = Sequence[tuple[int, Item, Completion]]
"""Decoded items: their places in the recording, and what came of each."""
_SCALARS = ("index", "id", "question", "answer", "extra", "prompt_tokens", "finish")


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

    def text_at(self, tokens: int) -> str:
        """The text of the first `tokens` tokens."""
        return self.text[: self.offsets[tokens]]


def to_table(done: Done) -> pa.Table:
    """Completions as a Parquet table, in the order of their items."""
    rows = [_row(*entry) for entry in sorted(done, key=lambda entry: entry[0])]
    return pa.Table.from_pylist(rows, schema=ARROW_SCHEMA)


def _row(index: int, item: Item, done: Completion) -> dict[str, Any]:
    """A completion as a Parquet row."""
    return {
        "index": index,
        "id": item.id,
        "question": item.question,
        "answer": item.answer,
        "extra": json.dumps(item.extra, sort_keys=True),
        "prompt_tokens": done.prompt_tokens,
        "finish": done.finish,
        "token_ids": done.token_ids,
        "token_texts": done.token_texts,
        "entropies": done.entropies,
        "logprobs": done.logprobs,
        "margins": done.margins,
        "top_logprobs": done.top_logprobs,
        "hidden_similarities": done.hidden_similarities,
    }


def from_table(table: pa.Table, signals: Signals) -> list[Trace]:
    """The traces of a Parquet table."""
    columns = {name: table.column(name).combine_chunks() for name in ARROW_SCHEMA.names}
    texts = columns["token_texts"].to_pylist()
    scalars = {name: columns[name].to_pylist() for name in _SCALARS}
    lists = {name: _split(columns[name]) for name in ("token_ids", *SIGNAL_COLUMNS, "hidden_similarities")}
    return [
        Trace(
            index=scalars["index"][i],
            item=Item(scalars["id"][i], scalars["question"][i], scalars["answer"][i], json.loads(scalars["extra"][i])),
            prompt_tokens=scalars["prompt_tokens"][i],
            finish=scalars["finish"][i],
            token_texts=texts[i],
            signals=signals,
            **{name: values[i] for name, values in lists.items()},  # type: ignore[arg-type]
        )
        for i in range(table.num_rows)
    ]


def _split(column: Any) -> list[NDArray[Any] | None]:
    """A list column as one array a row, without copying; None where the row has none."""
    values = column.values.to_numpy(zero_copy_only=False)
    offsets = column.offsets.to_numpy()
    there = column.is_valid().to_pylist() if column.null_count else itertools.repeat(True)
    pairs = zip(itertools.pairwise(offsets), there, strict=False)
    return [values[start:end] if valid else None for (start, end), valid in pairs]


def to_trace(index: int, item: Item, done: Completion, signals: Signals | None = None) -> Trace:
    """A completion as a trace, without a file in between."""
    table = to_table([(index, item, done)])
    (trace,) = from_table(table, signals or Signals(hidden_every=16))
    return trace
