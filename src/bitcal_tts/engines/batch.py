"""The rows in flight: they join, take tokens, are asked about, and leave.

Signals are computed on the device for the whole batch and copied off once a chunk, never per token.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from bitcal_tts.engines.base import Decoding, EngineError, Fork, Request, Written
from bitcal_tts.engines.cache import RowCache, survivors
from bitcal_tts.engines.forward import Forward
from bitcal_tts.engines.row import Row
from bitcal_tts.engines.sampling import N_SIGNALS, choose, token_signals, unit_rows
from bitcal_tts.halting.session import Ask

Tensor = torch.Tensor
Prober = Callable[[Sequence[Fork]], Iterator[list[Written]]]
"""Makes the model answer at the places of each fork."""


class Batch:
    """The rows in flight during one `decode` call, longest prompts first."""

    def __init__(
        self,
        model: Forward,
        rows: Sequence[Row],
        decoding: Decoding,
        *,
        batch_size: int,
        chunk_size: int,
        keep_hidden: bool,
        probe: Prober,
    ) -> None:
        self.model = model
        self.probe = probe
        self.decoding = decoding
        self.batch_size = batch_size
        self.chunk_size = chunk_size
        self.keep_hidden = keep_hidden
        self.eos = model.eos_token_ids
        self.device = model.device
        order = sorted(range(len(rows)), key=lambda i: (-len(rows[i].prompt_ids), i))
        self.waiting = deque(rows[i] for i in order)
        max_new = max(row.request.budget for row in rows)
        longest = max(len(row.prompt_ids) + row.request.budget for row in rows)
        if model.max_positions is not None and longest > model.max_positions:
            raise EngineError(
                f"a prompt and its budget of {max_new} take {longest} positions, the model has {model.max_positions}"
            )
        longest_prompt = max(len(row.prompt_ids) for row in rows)
        self.cache = RowCache(rows=batch_size, longest_prompt=longest_prompt, max_new=max_new)
        self.rows: list[Row] = []
        self.phase = 0
        self.filled = 0
        # Device tensors, one row each; `ids` and `signals` collect what has not been copied off yet.
        self.ids = torch.zeros(batch_size, chunk_size, dtype=torch.long, device=self.device)
        self.signals = torch.zeros(batch_size, chunk_size, N_SIGNALS, device=self.device)
        nothing = torch.zeros(0, device=self.device)
        self.last = self.positions = self.prompt_lengths = nothing.long()
        self.logits = self.hidden = self.unit = self.cosines = nothing
        self.uniform = torch.zeros(0, max_new, dtype=torch.float64, device=self.device)
        eos = torch.tensor(sorted(self.eos), dtype=torch.long, device=self.device)
        # Looking at tokens is free on the CPU; elsewhere it would stall the device at every token.
        self.eos_on_host = eos if self.device.type == "cpu" else None

    def run(self) -> Iterator[Row]:
        """Decode until nobody is left, yielding each row as it ends or is to be landed."""
        try:
            yield from self._run()
        finally:
            self.cache.release()

    def _run(self) -> Iterator[Row]:
        self._admit()
        while self.rows:
            self._next_tokens()
            self.phase += 1
            boundary = self.phase == self.chunk_size
            if boundary or self._some_row_ended():
                yield from self._flush(boundary)
                if not self.rows:
                    self.phase = 0
                    self._admit()
                    continue
            self.logits, self.hidden = self.model.step(self.last, self.positions, self.cache)
            self.positions = self.positions + 1
            if boundary:
                self.phase = 0
                self._admit()

    def _next_tokens(self) -> None:
        n = len(self.rows)
        tokens = choose(self.logits, self.decoding, self._uniforms() if self.decoding.temperature > 0 else None)
        self.ids[:n, self.filled] = tokens
        self.signals[:n, self.filled] = token_signals(self.logits, tokens)
        self.filled += 1
        self.last = tokens
        for row in self.rows:
            row.issued += 1

    def _uniforms(self) -> Tensor:
        """Each row's next draw: its own sequence at the number of tokens it has."""
        return self.uniform.gather(1, (self.positions - self.prompt_lengths)[:, None])[:, 0]

    def _some_row_ended(self) -> bool:
        if any(row.issued == row.request.budget for row in self.rows):
            return True
        return self.eos_on_host is not None and bool(torch.isin(self.last, self.eos_on_host).any())

    def _flush(self, boundary: bool) -> Iterator[Row]:
        """Copy tokens and signals off, let rows end or be halted, and close the gaps they leave."""
        n = len(self.rows)
        if boundary:
            self._compare_hidden()
        ids = self.ids[:n, : self.filled].tolist()
        signals = self.signals[:n, : self.filled].tolist()
        cosines = self.cosines.tolist() if boundary else []
        vectors = self.hidden.cpu().numpy() if boundary and self.keep_hidden else None
        self.filled = 0
        for i, row in enumerate(self.rows):
            if vectors is not None:
                row.done.hidden.append(vectors[i])
            compared = boundary and row.issued > self.chunk_size
            row.take(ids[i], signals[i], self.eos, cosines[i] if compared else None, boundary=boundary)
        self._answer_questions()
        leaving = {i for i, row in enumerate(self.rows) if row.leaves}
        if leaving:
            yield from (self.rows[i] for i in sorted(leaving))
            self._keep(survivors(n, leaving))

    def _answer_questions(self) -> None:
        """What rows ask of the model is found out for all of them together, until none asks any more."""
        while asking := [row for row in self.rows if isinstance(row.directive, Ask)]:
            for row, (written,) in zip(asking, self.probe([row.fork() for row in asking]), strict=True):
                row.tell(written.probe())

    def _compare_hidden(self) -> None:
        """Cosines between this boundary's hidden states and the last one's."""
        unit = unit_rows(self.hidden)
        self.cosines = (unit * self.unit).sum(-1)
        self.unit = unit

    def _keep(self, order: list[int]) -> None:
        self.rows = [self.rows[i] for i in order]
        self.cache.keep(order)
        index = torch.tensor(order, dtype=torch.long, device=self.device)
        self.last = self.last[index]
        self.positions = self.positions[index]
        self.prompt_lengths = self.prompt_lengths[index]
        self.unit = self.unit[index]
        if self.decoding.temperature > 0:
            self.uniform = self.uniform[index]

    def _admit(self) -> None:
        """Fill free rows from the queue."""
        free = min(self.batch_size - len(self.rows), len(self.waiting))
        if not free:
            return
        rows = [self.waiting.popleft() for _ in range(free)]
        for row in rows:
            row.join()
        lengths = [len(row.prompt_ids) for row in rows]
        prefilled, logits, hidden = self.model.prefill([row.prompt_ids for row in rows])
        self.cache.admit(prefilled, lengths)
        at = torch.tensor(lengths, device=self.device)
        self.logits = self._joined(self.logits, logits)
        self.hidden = self._joined(self.hidden, hidden)
        self.unit = self._joined(self.unit, torch.zeros_like(hidden))  # nothing to compare with yet
        self.positions = self._joined(self.positions, at)
        self.prompt_lengths = self._joined(self.prompt_lengths, at)
        if self.decoding.temperature > 0:
            draws = torch.from_numpy(np.stack([self._draws(row.request) for row in rows])).to(self.device)
            self.uniform = self._joined(self.uniform, draws)
        self.rows += rows

    def _joined(self, there: Tensor, new: Tensor) -> Tensor:
        """The rows in flight with the new ones below; without any in flight, what is there is stale."""
        return torch.cat((there, new)) if self.rows else new

    def _draws(self, request: Request) -> NDArray[np.float64]:
        rng = np.random.default_rng([self.decoding.seed, request.seed])
        return rng.random(self.uniform.shape[1])
