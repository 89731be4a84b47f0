"""Traces as another chunk size would have recorded their hidden-state similarities."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from bitcal_tts.halting.controller import Controller
from bitcal_tts.halting.signals import Signal
from bitcal_tts.traces.trace import Trace, TraceError


def chunked_for(traces: Sequence[Trace], method: Controller) -> Sequence[Trace]:
    """Traces with the similarities that a method needs; as they are where it needs none."""
    if Signal.HIDDEN not in method.needs:
        return traces
    return at_chunk_size(traces, method.parameters.chunk_size)


def at_chunk_size(traces: Sequence[Trace], chunk_size: int) -> Sequence[Trace]:
    """Traces whose hidden-state similarities are those of a chunk size; another than theirs needs their vectors."""
    return [_at(trace, chunk_size) for trace in traces]


def _at(trace: Trace, chunk_size: int) -> Trace:
    recorded = trace.signals.hidden_every
    if recorded == chunk_size or recorded is None:
        return trace
    if chunk_size % recorded or (trace.hidden is None and len(trace) >= recorded):
        raise TraceError(
            f"hidden states were recorded every {recorded} tokens; chunk_size={chunk_size} needs a multiple of that "
            "and the vectors (bitcal record --hidden), or the hidden-state signal switched off (hidden=false)"
        )
    signals = dataclasses.replace(trace.signals, hidden_every=chunk_size)
    return dataclasses.replace(trace, hidden_similarities=_similarities(trace, chunk_size // recorded), signals=signals)


def _similarities(trace: Trace, stride: int) -> NDArray[np.float32]:
    if trace.hidden is None:
        return np.zeros(0, dtype=np.float32)
    rows = trace.hidden[stride - 1 :: stride]
    unit = rows / (np.linalg.norm(rows, axis=1, keepdims=True) + 1e-12)
    return np.asarray((unit[1:] * unit[:-1]).sum(-1), dtype=np.float32)
