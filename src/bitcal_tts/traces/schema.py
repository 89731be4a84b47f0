"""Traces as rows of a Parquet table. Documented in docs/traces.md."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from numpy.typing import NDArray

from bitcal_tts.engines.base import Completion
from bitcal_tts.halting.signals import Signals
from bitcal_tts.tasks.base import Item
from bitcal_tts.traces.trace import SIGNAL_COLUMNS, Trace

_FLOATS = pa.list_(pa.float32())
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
