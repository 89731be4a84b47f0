"""A folder of traces: a manifest and one Parquet part a block, each written whole or not at all.

Items are decoded in fixed blocks. A block that was not finished is decoded again as a whole, in the same
batches, so a store that was interrupted ends with the content of one that was not.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bitcal_tts.engines.base import Completion
from bitcal_tts.files import write_atomically, write_json
from bitcal_tts.tasks.base import Item
from bitcal_tts.traces.probes import PROBE_SCHEMA, from_probe_table
from bitcal_tts.traces.schema import ARROW_SCHEMA, SCHEMA_VERSION, Trace, from_table, to_row

_FLOAT_COLUMNS = ("entropies", "logprobs", "margins", "top_logprobs", "hidden_similarities")
_PART = re.compile(r"part-(\d{5})\.parquet")
_META = b"bitcal"
_REQUIRED = frozenset(
    {"model", "bits", "scheme", "task", "answers", "n", "budget", "chunk_size", "decoding", "blocks"}
)  # what reading, scoring and naming a store needs


class TraceError(Exception):
    """A trace folder cannot be read or written; the message names the file and what differs."""


class TraceStore:
    """A trace folder."""

    def __init__(self, folder: Path, manifest: dict[str, Any]) -> None:
        self.folder = folder
        self.manifest = manifest

    @classmethod
    def create(cls, folder: Path, identity: dict[str, Any], environment: dict[str, Any]) -> TraceStore:
        """A new store, or the one already there if it is of the same identity. The caller holds the folder's lock."""
        if (folder / "manifest.json").exists():
            store = cls.open(folder)
            _refuse_differences(folder, store.manifest["identity"], identity)
            return store
        folder.mkdir(parents=True, exist_ok=True)
        # Hidden files are ours: the lock, and what a killed process left of a file it was writing.
        if any(not path.name.startswith(".") for path in folder.iterdir()):
            raise TraceError(f"{folder} is not empty and not a trace folder: choose another --out")
        for left_over in folder.glob(".*.tmp"):
            left_over.unlink()
        manifest = {"schema": SCHEMA_VERSION, "identity": identity, "environment": environment}
        write_json(folder / "manifest.json", manifest)
        return cls(folder, manifest)

    @classmethod
    def open(cls, folder: Path) -> TraceStore:
        """An existing store."""
        path = folder / "manifest.json"
        try:
            manifest = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise TraceError(f"{folder} is not a trace folder: it has no manifest.json") from None
        except (OSError, ValueError) as error:
            raise TraceError(f"{path} cannot be read: {error}") from None
        version = manifest.get("schema") if isinstance(manifest, dict) else None
        if version != SCHEMA_VERSION:
            raise TraceError(f"{path} has schema {version!r}, this version reads schema {SCHEMA_VERSION}")
        identity = manifest.get("identity")
        missing = _REQUIRED - (identity.keys() if isinstance(identity, dict) else set())
        if missing:
            raise TraceError(f"{path} lacks {', '.join(sorted(missing))} in its 'identity'")
        return cls(folder, manifest)

    @property
    def identity(self) -> dict[str, Any]:
        """What was recorded: model, bits, task, prompt, decoding."""
        identity: dict[str, Any] = self.manifest["identity"]
        return identity

    def blocks(self) -> list[int]:
        """Numbers of the blocks that are there."""
        matches = (_PART.fullmatch(path.name) for path in self.folder.iterdir())
        return sorted(int(match[1]) for match in matches if match)

    @property
    def complete(self) -> bool:
        """Whether every block is there."""
        return self.blocks() == list(range(int(self.identity["blocks"])))

    def write(
        self,
        block: int,
        done: Sequence[tuple[int, Item, Completion]],
        meta: dict[str, Any],
        *,
        keep_hidden: bool = False,
        probes: pa.Table | None = None,
    ) -> None:
        """Add a block, whole or not at all; its measurements go into the file's metadata."""
        ordered = sorted(done, key=lambda entry: entry[0])
        if probes is not None:
            write_atomically(self._probes_path(block), lambda path: pq.write_table(probes, path, compression="zstd"))
        if keep_hidden:  # first: a part that is there has its vectors
            from safetensors.numpy import save_file

            vectors = {str(index): np.array(c.hidden, dtype=np.float32) for index, _, c in ordered if c.hidden}
            write_atomically(self._hidden_path(block), lambda path: save_file(vectors, path))
        table = pa.Table.from_pylist([to_row(*entry) for entry in ordered], schema=ARROW_SCHEMA)
        meta = {**meta, "identity_sha256": self._identity_sha256()}
        table = table.replace_schema_metadata({_META: json.dumps(meta).encode()})
        encodings = {f"{name}.list.element": "BYTE_STREAM_SPLIT" for name in _FLOAT_COLUMNS}

        def save(path: Path) -> None:
            pq.write_table(
                table,
                path,
                compression="zstd",
                use_dictionary=["token_texts.list.element"],
                column_encoding=encodings,
            )

        write_atomically(self._part_path(block), save)

    def read(self) -> list[Trace]:
        """All traces, in the order of their items."""
        traces = [trace for block in self.blocks() for trace in self.read_block(block)]
        return sorted(traces, key=lambda trace: trace.index)

    def read_block(self, block: int) -> list[Trace]:
        """The traces of one block."""
        path = self._part_path(block)
        try:
            table = pq.read_table(path)
        except (pa.ArrowException, OSError) as error:
            first = str(error).splitlines()[0]
            raise TraceError(
                f"{path} cannot be read ({first}); delete it and record again: only its items are decoded anew"
            ) from None
        if not table.schema.equals(ARROW_SCHEMA):
            raise TraceError(f"{path} does not have the columns of schema {SCHEMA_VERSION}")
        meta = json.loads((table.schema.metadata or {}).get(_META, b"{}"))
        if meta.get("identity_sha256") != self._identity_sha256():
            raise TraceError(f"{path} is not part of this recording: it was written for another manifest.json")
        traces = from_table(table)
        if self.identity.get("keep_hidden"):
            traces = self._with_hidden(block, traces)
        if self.identity.get("probes") is not None:
            traces = self._with_probes(block, traces)
        return traces

    def measurements(self) -> list[dict[str, Any]]:
        """Seconds, tokens and joules of every block."""
        found = []
        for block in self.blocks():
            metadata = pq.read_schema(self._part_path(block)).metadata or {}
            found.append(json.loads(metadata.get(_META, b"{}")))
        return found

    def _with_hidden(self, block: int, traces: list[Trace]) -> list[Trace]:
        from safetensors.numpy import load_file

        vectors = load_file(self._hidden_path(block))
        return [replace(trace, hidden=vectors.get(str(trace.index))) for trace in traces]

    def _with_probes(self, block: int, traces: list[Trace]) -> list[Trace]:
        path = self._probes_path(block)
        try:
            found = from_probe_table(pq.read_table(path, schema=PROBE_SCHEMA))
        except (pa.ArrowException, OSError) as error:
            first = str(error).splitlines()[0]
            raise TraceError(f"{path} cannot be read ({first}); delete it and its part, and record again") from None
        return [replace(trace, probes=found.get(trace.index, {})) for trace in traces]

    def _identity_sha256(self) -> str:
        """Ties a part to the manifest it was recorded under."""
        return hashlib.sha256(json.dumps(self.identity, sort_keys=True).encode()).hexdigest()

    def _part_path(self, block: int) -> Path:
        return self.folder / f"part-{block:05d}.parquet"

    def _probes_path(self, block: int) -> Path:
        return self.folder / f"probes-{block:05d}.parquet"

    def _hidden_path(self, block: int) -> Path:
        return self.folder / f"hidden-{block:05d}.safetensors"


def _refuse_differences(folder: Path, there: dict[str, Any], asked: dict[str, Any]) -> None:
    keys = [key for key in sorted(there.keys() | asked.keys()) if there.get(key) != asked.get(key)]
    if keys:
        what = "; ".join(f"{key} is {there.get(key)!r} there, {asked.get(key)!r} now" for key in keys)
        raise TraceError(f"{folder} was recorded differently: {what}. Choose another --out, or the same settings")
