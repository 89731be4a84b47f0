"""Decode steps captured as CUDA graphs, one for every number of rows and width of the cache."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import torch

from bitcal_tts.engines.base import EngineWarning


class CaptureWarning(EngineWarning):
    """A model's step cannot be captured; it runs all the same, launched kernel by kernel."""


class CapturedSteps:
    """Runs a step, from the second time on as a graph.

    Args:
        step: Takes the number of rows and the width; reads and writes buffers that stay where they are.
        capture: Whether to; otherwise the same steps run kernel by kernel.
    """

    def __init__(self, step: Callable[[int, int], None], *, capture: bool = True) -> None:
        self._step = step
        self._graphs: dict[tuple[int, int], torch.cuda.CUDAGraph | None] = {}
        self._pool = torch.cuda.graph_pool_handle()
        self.works = capture
        """Whether steps can be captured, as far as is known."""

    def run(self, rows: int, width: int) -> None:
        """One step."""
        key = rows, width
        graph = self._graphs.get(key)
        if graph is not None:
            graph.replay()
            return
        if self.works and key in self._graphs:  # it has run once, so that everything is set up
            graph = self._capture(rows, width)
            if graph is not None:
                self._graphs[key] = graph
                graph.replay()
                return
        self._graphs[key] = None
        self._step(rows, width)

    def forget(self) -> None:
        """The buffers have moved; the pool of graphs that are gone is gone with them."""
        self._graphs.clear()
        self._pool = torch.cuda.graph_pool_handle()

    def _capture(self, rows: int, width: int) -> torch.cuda.CUDAGraph | None:
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, pool=self._pool):
                self._step(rows, width)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            self.works = False
            torch.cuda.synchronize()
            reason = str(error).strip().splitlines()[0]
            warnings.warn(
                f"a step of this model cannot be captured as a CUDA graph ({reason}): it runs kernel by kernel, slower",
                CaptureWarning,
                stacklevel=2,
            )
            return None
        return graph
