"""Records of a file, one at a time: JSONL, JSON, CSV or Parquet, plain or compressed. A bad one is told, not fatal."""

from __future__ import annotations

import bz2
import csv
import gzip
import json
import lzma
import re
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

KINDS = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet")
_OPENERS: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".xz": lzma.open, ".bz2": bz2.open}
_BROKEN = (OSError, EOFError, lzma.LZMAError, zlib.error)
_PARQUET_ROWS = 64
_OF_ONE_CHAT = ("messages", "choices", "conversation")
HALVES = re.compile("[\ud800-\udfff]")
"""Halves of surrogate pairs, by which bytes that are no text are told."""


class LogError(Exception):
    """A file that cannot be read at all; the message names it and what would be right."""


class Fault(NamedTuple):
    """A record that cannot be used, and why."""

    line: int
    why: str


class Record(NamedTuple):
    """What a file holds in one line or row; `line` is counted from 1."""

    line: int
    values: dict[str, Any]


def read_records(path: Path) -> Iterator[Record | Fault]:
    """The records of a file, in order; those that cannot be read come as faults."""
    compressed = path.suffix.lower() in _OPENERS
    kind = Path(path.stem).suffix.lower() if compressed else path.suffix.lower()
    if path.is_dir():
        raise LogError(f"{path} is a folder: name the files in it")
    if kind not in KINDS:
        endings = ", ".join(KINDS)
        raise LogError(f"{path} has an unknown ending: {endings} are read, with .gz, .xz or .bz2 behind them or not")
    if not path.is_file():
        raise LogError(f"{path} is not a file")
    try:
        if kind == ".parquet":
            yield from _parquet(path, compressed)
            return
        with _OPENERS[path.suffix.lower()](path, "rb") if compressed else path.open("rb") as file:
            reader = {".csv": _csv, ".tsv": _tsv, ".json": _json}.get(kind, _jsonl)
            yield from reader(file)
    except _BROKEN as error:
        raise LogError(f"{path} cannot be read to its end: {type(error).__name__}: {error}") from None


def bare_name(path: Path) -> str:
    """A file's name without the endings that say what it is; other dots belong to it."""
    return Path(path.stem if path.suffix.lower() in _OPENERS else path.name).stem


def _jsonl(file: IO[bytes]) -> Iterator[Record | Fault]:
    for line, raw in enumerate(file, 1):
        if raw.strip():
            yield _parsed(line, raw)


def _json(file: IO[bytes]) -> Iterator[Record | Fault]:
    """A list of objects, one object that holds such a list, one chat, or JSONL under another name."""
    lines = (line for line in file if line.strip())
    opening, second = next(lines, b""), next(lines, b"")
    file.seek(0)
    if second and _is_object(opening):
        yield from _jsonl(file)
        return
    try:
        data = json.loads(file.read().decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        yield Fault(1, f"is no JSON: {error}")
        return
    if isinstance(data, dict):
        lists = {name: value for name, value in data.items() if isinstance(value, list) and value}
        data = next(iter(lists.values())) if len(lists) == 1 and not lists.keys() & {*_OF_ONE_CHAT} else [data]
    for number, values in enumerate(data if isinstance(data, list) else [data], 1):
        yield Record(number, values) if isinstance(values, dict) else Fault(number, "is no JSON object")


def _is_object(raw: bytes) -> bool:
    return isinstance(_parsed(1, raw), Record)


def _parsed(line: int, raw: bytes) -> Record | Fault:
    try:
        values = json.loads(raw.decode("utf-8-sig" if line == 1 else "utf-8").rstrip())
    except UnicodeDecodeError as error:
        return Fault(line, f"is not UTF-8 (byte {error.start})")
    except json.JSONDecodeError as error:  # which calls every record its first line
        return Fault(line, f"is no JSON: {error.msg}, column {error.colno}")
    except (ValueError, RecursionError) as error:
        return Fault(line, f"is no JSON: {error}")
    return Record(line, values) if isinstance(values, dict) else Fault(line, "is no JSON object")


def _csv(file: IO[bytes], delimiter: str = ",") -> Iterator[Record | Fault]:
    csv.field_size_limit(min(sys.maxsize, 2**31 - 1))  # a response may be longer than the default of 128 KiB
    lines = (raw.decode("utf-8-sig" if i == 0 else "utf-8", "surrogateescape") for i, raw in enumerate(file))
    reader = csv.DictReader(lines, delimiter=delimiter)
    try:
        named = len(reader.fieldnames or ())  # read first: the next line is where the first record begins
    except csv.Error as error:
        yield Fault(1, f"is no CSV: {error}")
        return
    while True:
        line = reader.line_num + 1
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield Fault(line, f"is no CSV: {error}")
            continue
        if None in row or any(value is None for value in row.values()):
            yield Fault(line, f"has another number of fields than the {named} of the first line")
        elif any(map(HALVES.search, row.values())):
            yield Fault(line, "is not UTF-8")
        else:
            yield Record(line, row)


def _tsv(file: IO[bytes]) -> Iterator[Record | Fault]:
    return _csv(file, "\t")


def _parquet(path: Path, compressed: bool) -> Iterator[Record | Fault]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    if compressed:
        raise LogError(f"{path}: Parquet is compressed inside; unpack it first")
    try:
        line = 0
        for batch in pq.ParquetFile(path).iter_batches(batch_size=_PARQUET_ROWS):
            columns = {name: list(_values(column)) for name, column in zip(batch.schema.names, batch, strict=True)}
            for i in range(batch.num_rows):
                line += 1
                yield Record(line, {name: column[i] for name, column in columns.items() if column})
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise LogError(f"{path} cannot be read: {error}") from None


def _values(column: Any) -> Iterator[Any]:
    """The values of a column; none where Python has no such values, as of times in zones that nobody knows."""
    try:
        values = column.to_pylist()
    except UnicodeDecodeError:
        raise
    except (LookupError, OverflowError, ValueError):
        return
    for value in values:
        yield _as_text(value) if isinstance(value, bytes) else value


def _as_text(value: bytes) -> str | bytes:
    """Bytes as the text that they are, where they are one."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value
