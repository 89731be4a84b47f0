"""Model x task -> a trace folder: decode every item once, to the full budget."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from bitcal_tts.engines.base import Completion, Decoding, Engine, Request
from bitcal_tts.files import locked
from bitcal_tts.tasks.base import Item, Task
from bitcal_tts.traces.energy import EnergyMeter
from bitcal_tts.traces.probes import probe_block
from bitcal_tts.traces.store import TraceError, TraceStore

_PACKAGES = (
    "bitcal-tts",
    "numpy",
    "torch",
    "transformers",
    "bitsandbytes",
    "torchao",
    "tokenizers",
    "reasoning-gym",
)


_PROBED_TOGETHER = 256  # each holds keys and values of its own


def record(
    engine: Engine,
    task: Task,
    folder: Path,
    *,
    n: int,
    budget: int,
    seed: int = 0,
    decoding: Decoding | None = None,
    style: str | None = None,
    batch_size: int = 32,
    block_size: int | None = None,
    chunk_size: int = 16,
    keep_hidden: bool = False,
    probes: int | None = None,
    skip_long: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> TraceStore:
    """Record what is missing of a store and return it.

    Args:
        engine: Decodes.
        task: Gives the items.
        folder: Where the store is or will be.
        n: How many items.
        budget: Hard cap on new tokens.
        seed: Chooses the items where the task generates them.
        decoding: Greedy by default.
        style: A label for the manifest, such as `thinking`.
        batch_size: Rows that decode together.
        block_size: Items written together, the batch by default: what a killed process loses. Larger blocks
            keep the batch full for longer.
        chunk_size: Hidden-state similarities are recorded at multiples of this.
        keep_hidden: Record the hidden vectors as well.
        probes: Record probes as well, every so many tokens and at stated answers.
        skip_long: Leave out items whose prompt does not fit into the model with its budget; the manifest says how many.
        progress: Told (items, tokens) as they are done, with those already there first.
    """
    for name, value in (("budget", budget), ("batch_size", batch_size), ("chunk_size", chunk_size), ("n", n)):
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")
    if probes is not None and probes < 1:
        raise ValueError(f"probes must be at least 1, got {probes}")
    if block_size is not None and block_size < 1:
        raise ValueError(f"block_size must be at least 1, got {block_size}")
    decoding = decoding or Decoding()
    drawn = task.items(n, seed)
    items = _that_fit(drawn, engine, task, budget, skip_long=skip_long)
    block_size = batch_size if block_size is None else block_size
    blocks = _blocks(items, block_size)
    identity = {
        **engine.describe(),
        **task.describe(),
        "style": style,
        "n": len(items),
        **({"skipped_long": len(drawn) - len(items)} if skip_long else {}),
        "seed": seed,
        "budget": budget,
        "chunk_size": chunk_size,
        "keep_hidden": keep_hidden,
        **({} if probes is None else {"probes": probes}),
        "decoding": asdict(decoding),
        "batch_size": batch_size,
        "block_size": block_size,
        "blocks": len(blocks),
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise TraceError(f"{folder} is a file: choose another --out") from None
    with locked(folder):
        here = environment()
        store = TraceStore.create(folder, identity, here)
        there = set(store.blocks())
        for block, indices in enumerate(blocks):
            if block in there:
                traces = store.read_block(block)
                if [t.index for t in traces] != sorted(indices):
                    raise TraceError(f"{folder}/part-{block:05d}.parquet does not hold the items it should")
                if progress:
                    progress(len(traces), sum(map(len, traces)))
                continue
            done, measured = _decode_block(indices, items, engine, task, store.identity, progress)
            table = None
            if probes is not None:
                began = time.perf_counter()
                table = probe_block(
                    engine,  # type: ignore[arg-type]
                    [task.prompt(item) for _, item, _ in done],
                    [(index, completion) for index, _, completion in done],
                    task.answers,
                    store.identity.get("thinking"),
                    every=probes,
                    batch_size=min(batch_size, _PROBED_TOGETHER),
                )
                measured["probe_seconds"] = round(time.perf_counter() - began, 3)
            meta = {"block": block, **measured, "environment": here}
            store.write(block, done, meta, keep_hidden=keep_hidden, probes=table)
    return store


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


def _decode_block(
    indices: list[int],
    items: list[Item],
    engine: Engine,
    task: Task,
    identity: dict[str, Any],
    progress: Callable[[int, int], None] | None,
) -> tuple[list[tuple[int, Item, Completion]], dict[str, Any]]:
    """Decode a block as the manifest says; the completions, and what they took."""
    requests = [Request(str(i), task.prompt(items[i]), identity["budget"], seed=i) for i in indices]
    options = {key: identity[key] for key in ("batch_size", "chunk_size", "keep_hidden")}
    meter, began = EnergyMeter(), time.perf_counter()
    done = []
    for completion in engine.decode(requests, Decoding(**identity["decoding"]), **options):
        index = int(completion.id)
        done.append((index, items[index], completion))
        if progress:
            progress(1, len(completion.token_ids))
    measured = {
        "items": len(done),
        "tokens": sum(len(c.token_ids) for _, _, c in done),
        "seconds": round(time.perf_counter() - began, 3),
        "joules": meter.joules(),
    }
    return done, measured


def _blocks(items: list[Item], size: int) -> list[list[int]]:
    """Items of similar length together, so that a batch is little padded."""
    order = sorted(range(len(items)), key=lambda i: (-len(items[i].question), i))
    return [order[i : i + size] for i in range(0, len(order), size)]


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
