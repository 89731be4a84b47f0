"""Sequences side by side in one llama.cpp context: each is a generator that says what to feed it next.

A generator yields the tokens that its sequence goes on with and is sent what the model says after the last of them.
Whatever waits is decoded in one batch. A sequence that ends frees its keys and values, and the next one takes its lane.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Generator, Iterator
from typing import Any, TypeVar

import llama_cpp.llama_cpp as llama
import numpy as np

from bitcal_tts.engines.base import EngineError
from bitcal_tts.engines.logits import Rows, Seen, seen

T = TypeVar("T")
Steps = Generator[list[int], Seen, T]
_BATCH = 512


class Lane:
    """One sequence: its number, and how many tokens it holds."""

    def __init__(self, context: Any, number: int) -> None:
        self.number = number
        self.length = 0
        self.waiting: list[int] = []
        self._memory = llama.llama_get_memory(context)

    def cut(self, length: int) -> None:
        """Forget all but the first tokens."""
        if length < self.length:
            llama.llama_memory_seq_rm(self._memory, self.number, length, -1)
            self.length = length


class Lanes:
    """A context with room for several sequences.

    Args:
        model: As llama.cpp has it.
        count: How many sequences at once.
        room: Tokens that each may hold.
        threads: Of the processor; by default all.
        hidden: Whether hidden states are told as well; prompts then take longer.
    """

    def __init__(self, model: Any, *, count: int, room: int, threads: int | None = None, hidden: bool = False) -> None:
        parameters = llama.llama_context_default_params()
        room = -(-room // 256) * 256  # llama.cpp rounds it up by itself, and complains
        parameters.n_ctx, parameters.n_batch, parameters.n_ubatch = count * room, _BATCH, _BATCH
        parameters.n_seq_max = count
        parameters.n_threads = parameters.n_threads_batch = threads or os.cpu_count() or 1
        parameters.embeddings = hidden
        parameters.pooling_type = llama.LLAMA_POOLING_TYPE_NONE
        parameters.no_perf = True
        self._context = llama.llama_init_from_model(model, parameters)
        if not self._context:
            raise EngineError(f"llama.cpp has no memory for {count} sequences of {room:,} tokens: a smaller --batch")
        self._batch = llama.llama_batch_init(_BATCH, 0, 1)
        self._vocabulary = llama.llama_vocab_n_tokens(llama.llama_model_get_vocab(model))
        self._width = llama.llama_model_n_embd(model)
        self._hidden, self.room = hidden, room
        self._free = [Lane(self._context, number) for number in reversed(range(count))]

    def close(self) -> None:
        """Give the memory back."""
        if self._context:
            llama.llama_batch_free(self._batch)
            llama.llama_free(self._context)
            self._context = None

    def held(self) -> int:
        """Tokens whose keys and values are kept now, in all lanes."""
        memory = llama.llama_get_memory(self._context)
        lanes = range(llama.llama_n_seq_max(self._context))
        return sum(llama.llama_memory_seq_pos_max(memory, number) + 1 for number in lanes)

    def run(self, jobs: Iterator[Callable[[Lane], Steps[T]]]) -> Iterator[T]:
        """What the jobs come to, in the order in which they end."""
        active: dict[Lane, Steps[T]] = {}
        while True:
            while self._free and (job := next(jobs, None)) is not None:
                lane = self._free.pop()
                steps = job(lane)
                try:
                    lane.waiting = next(steps)
                except StopIteration as stop:  # it has nothing to feed
                    self._free.append(lane)
                    yield stop.value
                else:
                    active[lane] = steps
            if not active:
                return
            for lane, told in self._decode(list(active)):
                try:
                    lane.waiting = active[lane].send(told)
                except StopIteration as stop:
                    del active[lane]
                    lane.cut(0)
                    self._free.append(lane)
                    yield stop.value

    def _decode(self, lanes: list[Lane]) -> list[tuple[Lane, Seen]]:
        """Feed what waits, as much as fits into a batch; what is said to those of whom nothing waits any more."""
        batch, n = self._batch, 0
        ended: list[tuple[Lane, int]] = []
        for lane in lanes:
            part, lane.waiting = lane.waiting[: _BATCH - n], lane.waiting[_BATCH - n :]
            if lane.length + len(part) > self.room:
                raise EngineError(f"a sequence has come to the end of its {self.room} tokens")
            for token in part:
                batch.token[n], batch.pos[n] = token, lane.length
                batch.n_seq_id[n], batch.seq_id[n][0] = 1, lane.number
                batch.logits[n] = False
                lane.length += 1
                n += 1
            if part and not lane.waiting:
                batch.logits[n - 1] = True
                ended.append((lane, n - 1))
        batch.n_tokens = n
        status = llama.llama_decode(self._context, batch)
        if status != 0:
            raise EngineError(f"llama.cpp could not decode (status {status}): a smaller --batch takes less memory")
        return self._told(ended, n)

    def _told(self, ended: list[tuple[Lane, int]], n: int) -> list[tuple[Lane, Seen]]:
        if not ended:
            return []
        # Where hidden states are told, every token of a batch has an output; else those that were asked for.
        at = [place for _, place in ended] if self._hidden else list(range(len(ended)))
        outputs = n if self._hidden else len(ended)
        logits = self._rows(llama.llama_get_logits(self._context), outputs, self._vocabulary)
        told = seen(logits if len(at) == outputs else logits[at])
        if self._hidden:
            states = self._rows(llama.llama_get_embeddings(self._context), outputs, self._width)
            told = [one._replace(hidden=states[place]) for one, place in zip(told, at, strict=True)]
        if any(one.entropy != one.entropy for one in told):
            raise EngineError("llama.cpp computed NaN: the file is broken, or its kernels overflow on this machine")
        return [(lane, one) for (lane, _), one in zip(ended, told, strict=True)]

    def _rows(self, pointer: Any, rows: int, width: int) -> Rows:
        """llama.cpp's own memory, as an array."""
        address = ctypes.cast(pointer, ctypes.POINTER(ctypes.c_float))
        return np.ctypeslib.as_array(address, shape=(rows, width))
