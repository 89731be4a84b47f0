"""A recording spread over a Ray cluster: an engine an actor, blocks as its tasks.

Ray places the actors and begins one whose process or machine died again, where there is room; its block goes to whoever
is free first. Blocks come back to the process that asked for them, which alone writes: the machines need no common
disk. Every actor must run the same model in the same way as the first; otherwise the recording would not be one.
"""

from __future__ import annotations

import os
import socket
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import ray
from ray.exceptions import ActorUnavailableError, RayActorError, RayError

from bitcal_tts.engines.base import Decoding, EngineError
from bitcal_tts.halting.signals import Signals
from bitcal_tts.tasks.base import Task
from bitcal_tts.traces.blocks import Finished, Job, Worker
from bitcal_tts.traces.manifest import Manifest, differing

LOCAL = "local"
"""An address: a cluster of this machine alone, begun and ended with the recording."""
_MOST_DEATHS = 3
_PATIENCE = 5.0  # seconds
_PAUSE = 0.5  # seconds, before an actor is asked again whether it is back


def _knock(address: str) -> None:
    """Ray waits for minutes where nobody listens; so ask first."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon or not port.isdigit():
        return
    try:
        socket.create_connection((host, int(port)), timeout=_PATIENCE).close()
    except OSError as error:
        raise EngineError(f"no Ray cluster answers at {address}: {error}") from None


class _Actor:
    """One engine, on whatever machine Ray puts it."""

    def __init__(
        self, build_engine: Callable[[], Any], build_task: Callable[[], Task], decoding: Decoding, threads: int
    ) -> None:
        os.environ["OMP_NUM_THREADS"] = str(threads)
        try:
            import torch

            torch.set_num_threads(threads)
        except ImportError:
            pass
        self._engine, self._task, self._decoding = build_engine(), build_task(), decoding

    def about(self, chunk_size: int) -> dict[str, Any]:
        engine = self._engine
        return {
            "describe": engine.describe(),
            "signals": engine.signals(chunk_size),
            "bits": engine.bits,
            "max_positions": engine.max_positions,
        }

    def too_long(self, prompts: Sequence[str], max_tokens: int) -> dict[int, int]:
        found: dict[int, int] = self._engine.too_long(prompts, max_tokens)
        return found

    def run(self, job: Job, manifest: Manifest) -> Finished:
        return Worker(self._engine, self._task, manifest, self._decoding).run(job)


class Cluster:
    """Actors on a cluster; to a recording it looks like the engine that each of them holds.

    Args:
        address: Of the cluster, as Ray takes it (`ray://host:10001`, `host:6379`, `auto`), or `local`.
        build_engine: Makes the engine, in the actor's process.
        build_task: Makes the task, likewise.
        decoding: How tokens are chosen.
        workers: How many actors; by default one a GPU, and where there is none one for every `threads` cores.
        threads: Cores an actor decodes with where there is no GPU.
        chunk_size: Tokens between the hidden states that are compared.
    """

    def __init__(
        self,
        address: str,
        build_engine: Callable[[], Any],
        build_task: Callable[[], Task],
        decoding: Decoding,
        *,
        workers: int | None = None,
        threads: int = 2,
        chunk_size: int = 16,
    ) -> None:
        if workers is not None and workers < 1:
            raise ValueError(f"at least one worker is needed, got {workers}")
        self._ours = not ray.is_initialized()
        if self._ours:
            _knock(address)
            where = {"include_dashboard": False} if address == LOCAL else {"address": address}
            try:
                ray.init(**where, logging_level="ERROR", log_to_driver=False)
            except (ConnectionError, RayError, ValueError) as error:
                raise EngineError(f"no Ray cluster answers at {address}: {str(error).splitlines()[0]}") from None
        resources = ray.cluster_resources()
        gpus, cores = int(resources.get("GPU", 0)), int(resources.get("CPU", 1))
        smallest = min(int(node["Resources"].get("CPU", cores)) for node in ray.nodes() if node["Alive"])
        threads = max(1, min(threads, smallest, cores // (workers or 1)))
        needs = {"num_gpus": 1, "num_cpus": 1} if gpus else {"num_cpus": threads}
        workers = workers or gpus or max(1, cores // threads)
        kind: Any = ray.remote(max_restarts=-1, **needs)(_Actor)
        self._actors = [kind.remote(build_engine, build_task, decoding, threads) for _ in range(workers)]
        self._chunk_size = chunk_size
        self._about = self._same_everywhere()

    def _same_everywhere(self) -> dict[str, Any]:
        try:
            first, *others = ray.get([actor.about.remote(self._chunk_size) for actor in self._actors])
        except RayError as error:
            self.close()
            cause = getattr(error, "cause", None) or error
            raise EngineError(f"the engine cannot be built on the cluster: {cause}") from None
        for other in others:
            here, there = first["describe"], other["describe"]
            unlike = differing(here, there)
            if unlike:
                self.close()
                told = "; ".join(f"{key} is {here.get(key)!r} and {there.get(key)!r}" for key in unlike)
                raise EngineError(f"the machines of the cluster do not run the same: {told}")
        about: dict[str, Any] = first
        return about

    def spread(self, jobs: Iterable[Job], manifest: Manifest) -> Iterator[Finished]:
        """Do the jobs, each as an actor comes free, and yield them as they are done."""
        waiting, idle = deque(jobs), list(self._actors)
        running: dict[Any, tuple[Any, Job | None]] = {}  # no job: an actor that is being begun again
        deaths: Counter[int] = Counter()
        while waiting or any(job for _, job in running.values()):
            while waiting and idle:
                actor, job = idle.pop(), waiting.popleft()
                running[actor.run.remote(job, manifest)] = actor, job
            (ready,), _ = ray.wait(list(running), num_returns=1)
            actor, did = running.pop(ready)
            try:
                result = ray.get(ready)
            except RayActorError as error:
                if isinstance(error, ActorUnavailableError):  # it may be back in a moment
                    time.sleep(_PAUSE)
                running[actor.about.remote(self._chunk_size)] = actor, None
                self._hand_back(did, waiting, deaths)
            else:
                idle.append(actor)
                if did is not None:
                    yield result

    @staticmethod
    def _hand_back(job: Job | None, waiting: deque[Job], deaths: Counter[int]) -> None:
        """The block of an actor that died is the next one to be done, unless it is what they die of."""
        if job is None:
            return
        deaths[job.block] += 1
        if deaths[job.block] >= _MOST_DEATHS:
            raise EngineError(
                f"{_MOST_DEATHS} workers died at block {job.block}: out of memory? A smaller --batch needs less"
            )
        waiting.appendleft(job)

    def describe(self) -> dict[str, Any]:
        """What is being run."""
        described: dict[str, Any] = self._about["describe"]
        return described

    def signals(self, chunk_size: int) -> Signals:
        """What a trace will hold of every token."""
        signals: Signals = self._about["signals"]
        return signals

    @property
    def bits(self) -> float:
        """Weight precision."""
        return float(self._about["bits"])

    @property
    def max_positions(self) -> int | None:
        """How long a context may be."""
        positions: int | None = self._about["max_positions"]
        return positions

    def too_long(self, prompts: Sequence[str], max_tokens: int) -> dict[int, int]:
        """Prompts that do not fit with their budget."""
        found: dict[int, int] = ray.get(self._actors[0].too_long.remote(list(prompts), max_tokens))
        return found

    def close(self) -> None:
        """Give the actors back."""
        for actor in self._actors:
            ray.kill(actor)
        if self._ours:
            ray.shutdown()
