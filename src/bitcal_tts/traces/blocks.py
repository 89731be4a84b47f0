"""One block of a recording: its items decoded, its traces probed; in this process or in another."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from bitcal_tts.engines.base import Decoding, Engine, Request
from bitcal_tts.halting.methods import to_the_end
from bitcal_tts.tasks.base import Item, Task
from bitcal_tts.traces.energy import EnergyMeter
from bitcal_tts.traces.manifest import Manifest
from bitcal_tts.traces.probes import probe_traces
from bitcal_tts.traces.schema import Done, from_table, to_table
from bitcal_tts.traces.trace import Trace

Progress = Callable[[int, int], None]
"""Told of items and tokens."""
Probed = Callable[[int], None]
"""Told of items."""


@dataclass(frozen=True)
class Job:
    """What is missing of a block.

    Attributes:
        block: Its number.
        items: Its items by their places in the recording.
        batch_size: Rows that decode together.
        traces: Those that are there already, to be probed; None where they are still to be decoded.
        probing: `every` and `answers` of the probes; None where there are to be none.
    """

    block: int
    items: Mapping[int, Item]
    batch_size: int
    traces: Sequence[Trace] | None
    probing: Mapping[str, Any] | None


@dataclass(frozen=True)
class Finished:
    """What a job came to: completions and probes where they were missing, each with what it took."""

    block: int
    done: Done | None
    measured: dict[str, Any]
    probes: pa.Table | None
    probe_seconds: float


class Worker:
    """Does jobs of one recording with one engine."""

    def __init__(self, engine: Engine, task: Task, manifest: Manifest, decoding: Decoding) -> None:
        self._engine, self._task, self._manifest, self._decoding = engine, task, manifest, decoding

    def run(self, job: Job, progress: Progress | None = None, probed: Probed | None = None) -> Finished:
        """Decode the block where it is missing, then probe it where that is asked for."""
        done, measured = (None, {}) if job.traces is not None else self._decode(job, progress)
        probes, began = None, time.perf_counter()
        if job.probing is not None:
            traces = job.traces if done is None else from_table(to_table(done), self._manifest.signals)
            assert traces is not None
            probes = probe_traces(
                self._engine,
                [self._task.prompt(job.items[trace.index]) for trace in traces],
                traces,
                self._task.format,
                self._manifest.tokens.get("thinking"),
                every=job.probing["every"],
                batch_size=job.batch_size,
                tick=probed,
            )
        return Finished(job.block, done, measured, probes, round(time.perf_counter() - began, 3))

    def _decode(self, job: Job, progress: Progress | None) -> tuple[Done, dict[str, Any]]:
        content = self._manifest.content
        method = to_the_end(int(self._manifest.tokens["budget"]), chunk_size=content["chunk_size"])
        requests = [
            Request(str(i), self._task.prompt(item), method, seed=i, question=item.question)
            for i, item in job.items.items()
        ]
        options = {key: content[key] for key in ("chunk_size", "keep_hidden")}
        meter, began = EnergyMeter(), time.perf_counter()
        done = []
        for completion in self._engine.decode(requests, self._decoding, batch_size=job.batch_size, **options):
            index = int(completion.id)
            done.append((index, job.items[index], completion))
            if progress:
                progress(1, len(completion.token_ids))
        measured = {
            "items": len(done),
            "tokens": sum(len(c.token_ids) for _, _, c in done),
            "seconds": round(time.perf_counter() - began, 3),
            "joules": meter.joules(),
        }
        return done, measured
