"""Model x task -> a trace folder: decode every item once, to the full budget."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from bitcal_tts.engines.base import Decoding, Engine
from bitcal_tts.files import locked
from bitcal_tts.halting.signals import Signals
from bitcal_tts.tasks.base import Item, Task
from bitcal_tts.traces.blocks import Finished, Job, Probed, Progress, Worker
from bitcal_tts.traces.energy import EnergyMeter
from bitcal_tts.traces.manifest import Manifest
from bitcal_tts.traces.store import TraceStore
from bitcal_tts.traces.trace import Trace, TraceError

_PACKAGES = (
    "bitcal-tts",
    "numpy",
    "torch",
    "transformers",
    "bitsandbytes",
    "torchao",
    "tokenizers",
    "gguf",
    "xllamacpp",
    "reasoning-gym",
)


def record(
    engine: Engine,
    task: Task,
    folder: Path,
    *,
    n: int,
    budget: int,
    seed: int = 0,
    decoding: Decoding | None = None,
    batch_size: int = 32,
    block_size: int | None = None,
    chunk_size: int = 16,
    keep_hidden: bool = False,
    probes: int | None = None,
    skip_long: bool = False,
    progress: Progress | None = None,
    probed: Probed | None = None,
    spread: Callable[[Iterable[Job], Manifest], Iterator[Finished]] | None = None,
) -> TraceStore:
    """Record what is missing of a store and return it: items, probes, or both.

    Args:
        engine: Decodes.
        task: Gives the items.
        folder: Where the store is or will be.
        n: How many items; of a store that has fewer, the others are decoded.
        budget: Hard cap on new tokens.
        seed: Chooses the items where the task generates them.
        decoding: Greedy by default.
        batch_size: Rows that decode together.
        block_size: Items written together, the batch by default: what a killed process loses. Larger blocks
            keep the batch full for longer. Blocks that are there, or were begun, keep their sizes.
        chunk_size: Hidden-state similarities are recorded at multiples of this.
        keep_hidden: Record the hidden vectors as well.
        probes: Record probes as well, every so many tokens and at stated answers; also of traces that are there.
        skip_long: Leave out items whose prompt does not fit into the model with its budget; the manifest says how many.
        progress: Told (items, tokens) as they are done, with those already there first.
        probed: Told how many more items have their probes.
        spread: Does the jobs elsewhere, in any order; by default they are done here, one after the other.
    """
    for name, value in (("budget", budget), ("batch_size", batch_size), ("chunk_size", chunk_size), ("n", n)):
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")
    if probes is not None and probes < 1:
        raise ValueError(f"probes must be at least 1, got {probes}")
    if block_size is not None and block_size < 1:
        raise ValueError(f"block_size must be at least 1, got {block_size}")
    decoding = decoding or Decoding()
    drawn, items = _draw(n, seed, engine, task, budget, skip_long=skip_long)
    about_task = task.describe()
    reading = {"answers": about_task.pop("answers"), "execute": about_task.pop("execute", False)}
    asked = Manifest(
        tokens={
            **engine.describe(),
            **about_task,
            "seed": seed,
            "budget": budget,
            "decoding": decoding.describe(),
        },
        content=_content(engine.signals(chunk_size), chunk_size, keep_hidden=keep_hidden),
        reading=reading,
        environment=environment(),
    )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise TraceError(f"{folder} is a file: choose another --out") from None
    with locked(folder):
        store = TraceStore.create(folder, asked)
        there = store.manifest.n + store.manifest.skipped_long
        if there > n and not store.complete:
            raise TraceError(
                f"{folder} was begun with {there:,} items, and is to have {n:,} now: finish it with --n {there}, or "
                "choose another --out (long problems come first, so that a part of them is no sample of all)"
            )
        if there > n:  # what is there stays, though fewer were asked for
            drawn, items = _draw(there, seed, engine, task, budget, skip_long=skip_long)
        probing = _probing(store, task, probes)  # refuses before anything is written
        store.grow(
            len(items),
            batch_size=batch_size,
            block_size=block_size or batch_size,
            skipped_long=drawn - len(items),
        )
        jobs = _missing(store, items, probing, progress, probed)
        if spread is None:
            results = _here(Worker(engine, task, store.manifest, decoding), jobs, store, progress, probed)
        else:
            results = _counted(spread(jobs, store.manifest), progress, probed)
        try:
            for finished in results:
                _keep(store, finished, probing, asked.environment)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(_kept(store, probing)) from None
        if probing is not None:
            store.probed(probing)
    return store


def _kept(store: TraceStore, probing: dict[str, Any] | None) -> str:
    """What an interrupted recording has of its items."""
    blocks = {block: one["items"] for block, one in zip(store.blocks(), store.measurements(), strict=True)}
    kept = sum(blocks.values())
    probes, whole = "", kept == store.manifest.n
    if probing is not None:
        probed = sum(n for block, n in blocks.items() if store.probed_block(block, probing))
        probes, whole = f", {probed:,} of them with their probes", False
    size = store.manifest.segments[-1].block_size
    lost = "" if whole else f"; they are kept {size:,} at a time (--block), what was under way is not"
    return f"{kept:,} of {store.manifest.n:,} items are kept{probes}{lost}: run the same command to go on"


def _missing(
    store: TraceStore,
    items: list[Item],
    probing: dict[str, Any] | None,
    progress: Progress | None,
    probed: Probed | None,
) -> Iterator[Job]:
    """The blocks that lack something, each as it is come to; what is there is checked and counted."""
    finished = set(store.blocks())
    for block, segment, indices in store.layout(items):
        traces = None
        if block in finished:
            traces = _checked(store, block, indices, items)
            if progress:
                progress(len(traces), sum(map(len, traces)))
        to_probe = probing if probing is not None and not store.probed_block(block, probing) else None
        if probed and traces is not None and to_probe is None:
            probed(len(traces))
        if traces is None or to_probe is not None:
            yield Job(block, {i: items[i] for i in indices}, segment.batch_size, traces, to_probe)


def _here(
    work: Worker, jobs: Iterable[Job], store: TraceStore, progress: Progress | None, probed: Probed | None
) -> Iterator[Finished]:
    """One job after the other; a block is kept before it is probed, so that a kill does not lose it."""
    for job in jobs:
        if job.traces is None:
            yield work.run(replace(job, probing=None), progress)
        if job.probing is not None:
            traces = job.traces or store.read_unprobed(job.block)
            yield work.run(replace(job, traces=traces), probed=probed)


def _counted(results: Iterator[Finished], progress: Progress | None, probed: Probed | None) -> Iterator[Finished]:
    """The same, a block's items told when it comes back."""
    for finished in results:
        if progress and finished.done is not None:
            progress(finished.measured["items"], finished.measured["tokens"])
        if probed and finished.probes is not None:
            probed(len(set(finished.probes["index"].to_pylist())))
        yield finished


def _keep(
    store: TraceStore, finished: Finished, probing: dict[str, Any] | None, environment: Mapping[str, Any]
) -> None:
    """Write what a job came to."""
    if finished.done is not None:
        meta = {"block": finished.block, **finished.measured, "environment": environment}
        store.write(finished.block, finished.done, meta, keep_hidden=bool(store.manifest.content["keep_hidden"]))
    if finished.probes is not None:
        meta = {"probes": probing, "probe_seconds": finished.probe_seconds}
        store.write_probes(finished.block, finished.probes, meta)


def _content(signals: Signals, chunk_size: int, *, keep_hidden: bool) -> dict[str, Any]:
    """What is recorded of every token."""
    truncated = {} if signals.k is None else {"k": signals.k}
    unseen = {} if signals.hidden_every is not None else {"hidden": False}
    return {
        "signals": signals.distribution, **truncated, "chunk_size": chunk_size, **unseen, "keep_hidden": keep_hidden,
    }  # fmt: skip


def _probing(store: TraceStore, task: Task, every: int | None) -> dict[str, Any] | None:
    """How the recording is to be probed: as asked, or as it is; None where not at all."""
    there = store.manifest.probes
    if there is None:
        return None if every is None else {"every": every, "answers": task.format.name}
    if every is not None and (every % there["every"] or there["answers"] != task.format.name):
        raise TraceError(
            f"{store.folder} was probed every {there['every']} tokens for {there['answers']!r} answers, not every "
            f"{every} for {task.format.name!r}: ask for a multiple of the one and the same other, or another --out"
        )
    return dict(there)


def _checked(store: TraceStore, block: int, indices: list[int], items: list[Item]) -> list[Trace]:
    """The traces of a block that is there; it must hold the items that would be decoded now."""
    traces = store.read_unprobed(block)
    if [t.index for t in traces] != sorted(indices) or any(t.item != items[t.index] for t in traces):
        raise TraceError(f"{store.folder}/part-{block:05d}.parquet does not hold the items it should")
    return traces


def _draw(n: int, seed: int, engine: Engine, task: Task, budget: int, *, skip_long: bool) -> tuple[int, list[Item]]:
    """How many items were drawn, and those of them that fit."""
    drawn = task.items(n, seed)
    return len(drawn), _that_fit(drawn, engine, task, budget, skip_long=skip_long)


def _that_fit(items: list[Item], engine: Engine, task: Task, budget: int, *, skip_long: bool) -> list[Item]:
    """The items whose prompts fit; without `skip_long` all must."""
    too_long = engine.too_long([task.prompt(item) for item in items], budget)
    if not too_long:
        return items
    if not skip_long:
        at, positions = next(iter(too_long.items()))
        raise TraceError(
            f"{len(too_long)} of {len(items)} prompts do not fit into the model, the first of item {items[at].id!r}: "
            f"with a budget of {budget} it takes {positions} positions, the model has {engine.max_positions}; take a "
            "smaller budget, or leave such items out with --skip-long"
        )
    if len(too_long) == len(items):
        raise TraceError(f"none of the {len(items)} prompts fits into the model with a budget of {budget}")
    return [item for i, item in enumerate(items) if i not in too_long]


def environment() -> dict[str, Any]:
    """Versions and machine, for the manifest."""
    versions = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return {"versions": versions, "machine": _machine(), "energy_sources": EnergyMeter.sources()}


def _machine() -> dict[str, Any]:
    import os

    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [
            line.partition(":")[2].strip() for line in info.read_text().splitlines() if line.startswith("model name")
        ]
        cpu = names[0] if names else cpu
    machine: dict[str, Any] = {"system": platform.platform(), "cpu": cpu, "cores": os.cpu_count()}
    try:
        import torch

        if torch.cuda.is_available():
            machine["gpu"] = torch.cuda.get_device_name()
    except ImportError:
        pass
    return machine
