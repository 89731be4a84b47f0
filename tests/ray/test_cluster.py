"""A recording spread over a real Ray cluster: two raylets on this machine, a worker killed, a node lost."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bitcal_tts.cli import main
from bitcal_tts.traces.store import TraceStore
from bitcal_tts.traces.trace import Trace

ray = pytest.importorskip("ray")

OPTIONS = [
    "record", "--model", "tiny-1m", "--bits", "16", "--compute-dtype", "float32", "--n", "48", "--budget", "192",
    "--batch", "6", "--block", "6", "--temperature", "0.6", "--style", "thinking", "--probes", "32",
]  # fmt: skip


@pytest.fixture
def cluster() -> Iterator[Any]:
    from ray.cluster_utils import Cluster

    small = {"num_cpus": 1, "object_store_memory": 80 * 2**20}
    made = Cluster(initialize_head=True, head_node_args={**small, "include_dashboard": False})
    made.second = made.add_node(**small)
    yield made
    ray.shutdown()
    made.shutdown()


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> list[Trace]:
    """The same recording, in one process."""
    folder = tmp_path_factory.mktemp("alone") / "traces"
    assert main([*OPTIONS, "--out", str(folder)]) == 0
    return TraceStore.open(folder).read()


def spread(cluster: Any, folder: Path) -> int:
    return main([*OPTIONS, "--out", str(folder), "--ray", cluster.address, "--ray-workers", "2"])


def check_same(folder: Path, alone: list[Trace]) -> None:
    store = TraceStore.open(folder)
    assert store.complete
    traces = store.read()
    assert [t.item for t in traces] == [t.item for t in alone]
    for one, other in zip(traces, alone, strict=True):
        assert one.token_ids.tolist() == other.token_ids.tolist()
        assert one.finish == other.finish
        # Other numbers of threads add up in another order.
        assert one.entropies is not None and other.entropies is not None
        np.testing.assert_allclose(one.entropies, other.entropies, atol=2e-3)
        assert one.probes is not None and other.probes is not None
        assert {at: p.text for at, p in one.probes.items()} == {at: p.text for at, p in other.probes.items()}


def actors() -> list[int]:
    """Processes of actors that are at work on a block."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                title = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if title.startswith(b"ray::_Actor.run"):
                found.append(int(entry.name))
    return found


@contextmanager
def as_soon_as(ready: Callable[[], bool], do: Callable[[], None]) -> Iterator[None]:
    """Do it once, while what is inside goes on, however slow the machine is."""
    over = threading.Event()

    def wait() -> None:
        while not over.wait(0.05):
            if ready():
                do()
                return

    thread = threading.Thread(target=wait)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_a_worker_that_is_killed_loses_nothing(cluster: Any, alone: list[Trace], tmp_path: Path) -> None:
    folder, killed = tmp_path / "traces", []

    def kill() -> None:
        killed.append(actors()[0])
        os.kill(killed[0], signal.SIGKILL)

    with as_soon_as(lambda: len(list(folder.glob("part-*"))) >= 2 and bool(actors()), kill):
        assert spread(cluster, folder) == 0
    assert killed
    check_same(folder, alone)


def test_a_node_that_is_lost_leaves_its_block_to_the_other(cluster: Any, alone: list[Trace], tmp_path: Path) -> None:
    folder, lost = tmp_path / "traces", []

    def lose() -> None:
        lost.append(True)
        cluster.remove_node(cluster.second, allow_graceful=False)

    with as_soon_as(lambda: len(list(folder.glob("part-*"))) >= 2, lose):
        assert spread(cluster, folder) == 0
    assert lost
    check_same(folder, alone)


def test_a_recording_that_was_begun_alone_is_finished_on_the_cluster(
    cluster: Any, alone: list[Trace], tmp_path: Path
) -> None:
    folder = tmp_path / "traces"
    assert main([*OPTIONS, "--out", str(folder)]) == 0
    (folder / "part-00003.parquet").unlink()
    (folder / "probes-00003.parquet").unlink()
    (folder / "probes-00005.parquet").unlink()
    before = (folder / "part-00001.parquet").stat().st_mtime_ns
    assert spread(cluster, folder) == 0
    assert (folder / "part-00001.parquet").stat().st_mtime_ns == before  # what was there is not decoded again
    check_same(folder, alone)


def test_what_cannot_be_spread_is_said(cluster: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = ["--out", str(tmp_path / "traces")]
    assert main([*OPTIONS, *out, "--ray", "local", "--url", "http://127.0.0.1:1"]) == 2
    assert "leave one out" in capsys.readouterr().err
    assert main([*OPTIONS, *out, "--ray", cluster.address, "--ray-workers", "0"]) == 2
    assert "at least one worker is needed, got 0" in capsys.readouterr().err
    assert main(["record", "--model", str(tmp_path), *out, "--ray", cluster.address, "--ray-workers", "1"]) == 2
    assert "cannot be built on the cluster" in capsys.readouterr().err


def test_an_address_without_a_cluster_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*OPTIONS, "--out", str(tmp_path / "traces"), "--ray", "127.0.0.1:1"]) == 2
    assert "no Ray cluster answers at 127.0.0.1:1" in capsys.readouterr().err
