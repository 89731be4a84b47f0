"""A folder of traces: a manifest and one Parquet part a block, each written whole or not at all.

Items are decoded in fixed blocks. A block that was not finished is decoded again as a whole, in the same
batches, so a store that was interrupted ends with the content of one that was not.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bitcal_tts.files import write_atomically, write_json
from bitcal_tts.halting.identity import Identity
from bitcal_tts.tasks.base import Item
from bitcal_tts.traces.manifest import SCHEMA_VERSION, Manifest, Segment, differing
from bitcal_tts.traces.probes import PROBE_SCHEMA, from_probe_table
from bitcal_tts.traces.schema import ARROW_SCHEMA, Done, from_table, to_table
from bitcal_tts.traces.trace import SIGNAL_COLUMNS, Trace, TraceError

_FLOAT_COLUMNS = (*SIGNAL_COLUMNS, "hidden_similarities")
_PART = re.compile(r"(part|probes)-(\d{5})\.parquet")
_META = b"bitcal"


class TraceStore:
    """A trace folder."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.folder = folder
        self.manifest = manifest

    @classmethod
    def create(cls, folder: Path, manifest: Manifest) -> TraceStore:
        """A new store, or the one already there if its tokens are determined alike. The caller holds the lock."""
        if cls.is_in(folder):
            store = cls.open(folder)
            _refuse_differences(folder, store.manifest, manifest)
            return store
        folder.mkdir(parents=True, exist_ok=True)
        # Hidden files are ours: the lock, and what a killed process left of a file it was writing.
        if any(not path.name.startswith(".") for path in folder.iterdir()):
            raise TraceError(f"{folder} is not empty and not a trace folder: choose another --out")
        for left_over in folder.glob(".*.tmp"):
            left_over.unlink()
        store = cls(folder, manifest)
        store._write_manifest()
        return store

    @staticmethod
    def is_in(folder: Path) -> bool:
        """Whether a folder is a store."""
        return (folder / "manifest.json").exists()

    @classmethod
    def open(cls, folder: Path) -> TraceStore:
        """An existing store."""
        path = folder / "manifest.json"
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            lacks = "it has no manifest.json" if folder.exists() else "it is not there"
            raise TraceError(f"{folder} is not a trace folder: {lacks}") from None
        except NotADirectoryError:
            raise TraceError(f"{folder} is a file, not a trace folder: bitcal import makes one of a log") from None
        except (OSError, ValueError, RecursionError) as error:
            raise TraceError(f"{path} cannot be read: {error}") from None
        return cls(folder, Manifest.from_dict(data, str(path)))

    @property
    def identity(self) -> Identity:
        """What a promise is tied to."""
        return self.manifest.identity

    @property
    def description(self) -> dict[str, Any]:
        """What was recorded, in one flat mapping."""
        return self.manifest.description

    def grow(self, n: int, *, batch_size: int, block_size: int, skipped_long: int = 0) -> None:
        """Ask for items up to `n`; those already asked for keep their blocks."""
        there = self.manifest.n
        if n > there:
            segment = Segment(there, n - there, batch_size, block_size, skipped_long - self.manifest.skipped_long)
            self.manifest = self.manifest.with_segment(segment)
            self._write_manifest()

    def layout(self, items: Sequence[Item]) -> list[tuple[int, Segment, list[int]]]:
        """Every block: its number, its segment, and which items it holds, those of similar length together."""
        blocks = []
        number = 0
        for segment in self.manifest.segments:
            members = range(segment.first, segment.first + segment.items)
            order = sorted(members, key=lambda i: (-len(items[i].question), i))
            for start in range(0, len(order), segment.block_size):
                blocks.append((number, segment, order[start : start + segment.block_size]))
                number += 1
        return blocks

    def blocks(self, kind: str = "part") -> list[int]:
        """Numbers of the blocks that are there; with `kind="probes"`, of those that were probed."""
        matches = (_PART.fullmatch(path.name) for path in self.folder.iterdir())
        return sorted(int(match[2]) for match in matches if match and match[1] == kind)

    @property
    def complete(self) -> bool:
        """Whether every block is there, and probed where the recording is."""
        wanted = list(range(self.manifest.blocks))
        return self.blocks() == wanted and (self.manifest.probes is None or self.blocks("probes") == wanted)

    def require_complete(self) -> None:
        """Refuse a recording that was not recorded to its end: what is there is no fair sample of it."""
        if not self.complete:
            raise TraceError(
                f"{self.folder} is not complete: {len(self.blocks())} of {self.manifest.blocks} blocks; "
                "run the same bitcal record again to finish it"
            )

    def write(
        self,
        block: int,
        done: Done,
        meta: dict[str, Any],
        *,
        keep_hidden: bool = False,
    ) -> None:
        """Add a block, whole or not at all; its measurements go into the file's metadata."""
        if keep_hidden:  # first: a part that is there has its vectors
            from safetensors.numpy import save_file

            vectors = {str(index): np.array(c.hidden, dtype=np.float32) for index, _, c in done if c.hidden}
            write_atomically(self._hidden_path(block), lambda path: save_file(vectors, path))
        table = self._signed(to_table(done), meta)
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

    def write_probes(self, block: int, table: pa.Table, meta: dict[str, Any]) -> None:
        """Add the probes of a block, whole or not at all."""
        signed = self._signed(table, meta)
        write_atomically(self._probes_path(block), lambda path: pq.write_table(signed, path, compression="zstd"))

    def probed(self, probes: Mapping[str, Any]) -> None:
        """Every block has its probes: from now on they belong to the recording."""
        if self.manifest.probes != probes:
            self.manifest = self.manifest.with_probes(probes)
            self._write_manifest()

    def probed_block(self, block: int, probes: Mapping[str, Any]) -> bool:
        """Whether a block was probed, and as it should be."""
        path = self._probes_path(block)
        if not path.exists():
            return False
        # Schema 2 did not say so in the file: there the manifest must.
        there = self._meta(path).get("probes", self.manifest.probes)
        return there is not None and dict(there) == dict(probes)

    def read(self) -> list[Trace]:
        """All traces, in the order of their items."""
        traces = [trace for block in self.blocks() for trace in self.read_block(block)]
        return sorted(traces, key=lambda trace: trace.index)

    def read_block(self, block: int) -> list[Trace]:
        """The traces of one block."""
        traces = self.read_unprobed(block)
        return traces if self.manifest.probes is None else self._with_probes(block, traces)

    def read_unprobed(self, block: int) -> list[Trace]:
        """The traces of one block without their probes."""
        path = self._part_path(block)
        try:
            table = pq.read_table(path)
        except (pa.ArrowException, OSError) as error:
            raise _unreadable(path, error) from None
        if [(f.name, f.type) for f in table.schema] != [(f.name, f.type) for f in ARROW_SCHEMA]:
            raise TraceError(f"{path} does not have the columns of schema {SCHEMA_VERSION}")
        self._check_signature(path, table)
        traces = from_table(table, self.manifest.signals)
        if self.manifest.content["keep_hidden"]:
            traces = self._with_hidden(block, traces)
        return traces

    def measurements(self) -> list[dict[str, Any]]:
        """Seconds, tokens and joules of every block."""
        return [self._meta(self._part_path(block)) for block in self.blocks()]

    def _meta(self, path: Path) -> dict[str, Any]:
        try:
            metadata = pq.read_schema(path).metadata or {}
            meta: dict[str, Any] = json.loads(metadata.get(_META, b"{}"))
        except (pa.ArrowException, OSError, ValueError) as error:
            raise _unreadable(path, error) from None
        return meta

    def _signed(self, table: pa.Table, meta: dict[str, Any]) -> pa.Table:
        told = {**meta, "identity_sha256": self.manifest.sha256}
        return table.replace_schema_metadata({_META: json.dumps(told).encode()})

    def _check_signature(self, path: Path, table: pa.Table) -> None:
        meta = json.loads((table.schema.metadata or {}).get(_META, b"{}"))
        unsigned = path.name.startswith("probes") and not meta and self.manifest.older_sha256 is not None
        if not unsigned and meta.get("identity_sha256") not in self.manifest.accepted_sha256:
            raise TraceError(f"{path} is not part of this recording: it was written for another manifest.json")

    def _with_hidden(self, block: int, traces: list[Trace]) -> list[Trace]:
        from safetensors import SafetensorError
        from safetensors.numpy import load_file

        path = self._hidden_path(block)
        try:
            vectors = load_file(path)
        except (SafetensorError, OSError) as error:
            raise TraceError(f"{path} cannot be read ({error}): copy the folder again, or record it again") from None
        return [replace(trace, hidden=vectors.get(str(trace.index))) for trace in traces]

    def _with_probes(self, block: int, traces: list[Trace]) -> list[Trace]:
        path = self._probes_path(block)
        try:
            table = pq.read_table(path)
            columns = table.select(PROBE_SCHEMA.names).cast(PROBE_SCHEMA)
        except (pa.ArrowException, OSError, KeyError) as error:
            first = str(error).splitlines()[0]
            raise TraceError(
                f"{path} cannot be read ({first}); delete it and record again: only its probes are made anew"
            ) from None
        self._check_signature(path, table)
        found = from_probe_table(columns)
        return [replace(trace, probes=found.get(trace.index, {})) for trace in traces]

    def _write_manifest(self) -> None:
        write_json(self.folder / "manifest.json", self.manifest.to_dict())

    def _part_path(self, block: int) -> Path:
        return self.folder / f"part-{block:05d}.parquet"

    def _probes_path(self, block: int) -> Path:
        return self.folder / f"probes-{block:05d}.parquet"

    def _hidden_path(self, block: int) -> Path:
        return self.folder / f"hidden-{block:05d}.safetensors"


def _unreadable(path: Path, error: Exception) -> TraceError:
    first = str(error).splitlines()[0]
    return TraceError(f"{path} cannot be read ({first}); delete it and record again: only its items are decoded anew")


def _refuse_differences(folder: Path, there: Manifest, asked: Manifest) -> None:
    """What determines the tokens must be the same, and what is asked for of their signals must be there."""
    told = _differences(there.tokens, asked.tokens)
    wanted = {key: value for key, value in asked.content.items() if value is not False}
    told += _differences({key: there.content.get(key) for key in wanted}, wanted)
    if told:
        raise TraceError(
            f"{folder} was recorded differently: {'; '.join(told)}. Choose another --out, or the same settings"
        )


def _differences(there: Mapping[str, Any], asked: Mapping[str, Any]) -> list[str]:
    return [f"{key} is {there.get(key)!r} there, {asked.get(key)!r} now" for key in differing(there, asked)]
