"""Halting inside vLLM: a logits processor that is passed by name.

    vllm serve MODEL --logits-processors bitcal_tts.engines.vllm:Halting

A request says how it is to be halted in `SamplingParams.extra_args`, over HTTP in `vllm_xargs`, as JSON text:

    extra_body={"vllm_xargs": {"bitcal": '{"method": "complete", "bits": 16, "budget": 512}'}, "stop_token_ids": [3]}

Requests that say nothing are not touched. A halt forces the token that `stop_token` names; where it is among the
request's `stop_token_ids` its `stop_reason` is that token, so that a halt can be told from a natural end. This is the
interface of vLLM's V1 model runner; `vllm_v2` has that of V2. Nothing is registered as an entry point: a V2 runner
refuses to start where a plugin for V1 is installed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from vllm.v1.sample.logits_processor import BatchUpdate, LogitsProcessor, MoveDirectionality

from bitcal_tts.engines.sampling import token_signals
from bitcal_tts.engines.watched import Watched
from bitcal_tts.engines.watching import Roster, asked_for, force, take


class _Step:
    """Signals of one forward pass, still on the device."""

    def __init__(self, rows: Sequence[Watched], logits: torch.Tensor) -> None:
        self.rows = rows
        self.positions = [len(row.out) for row in rows]
        self._logits: torch.Tensor | None = logits
        self.signals: torch.Tensor | None = None

    def close(self) -> None:
        """Tokens have been chosen: their log-probabilities are known now, and the logits are not needed any more."""
        if self._logits is None:
            return
        chosen = [row.out[at] if at < len(row.out) else 0 for row, at in zip(self.rows, self.positions, strict=True)]
        tokens = torch.tensor([max(0, token) for token in chosen], device=self._logits.device)
        self.signals, self._logits = token_signals(self._logits, tokens), None


class Halting(LogitsProcessor):  # type: ignore[misc]
    """Halts requests inside vLLM, each by its own method.

    One log-softmax a step for the rows that are watched; their signals are copied off the device once a chunk.
    """

    @classmethod
    def validate_params(cls, sampling_params: Any) -> None:
        """Refuse bad settings when a request comes in: HTTP 400 with the reason."""
        asked_for(sampling_params)

    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        self._chunk = 1 if device.type == "cpu" else 16
        self._roster = Roster(vllm_config)
        self._rows: dict[int, Watched] = {}
        self._steps: list[_Step] = []

    def is_argmax_invariant(self) -> bool:
        """No: a halt chooses the token."""
        return False

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        """Requests that come, go and change places, in that order."""
        if batch_update is None:
            return
        for index in batch_update.removed:
            self._rows.pop(index, None)
        for index, params, _, out in batch_update.added:
            self._rows.pop(index, None)
            settings = asked_for(params)
            row = None if settings is None else self._roster.watched(settings, out)
            if row is not None:
                self._rows[index] = row
        for one, other, direction in batch_update.moved:
            moving, there = self._rows.pop(one, None), self._rows.pop(other, None)
            if moving is not None:
                self._rows[other] = moving
            if direction is MoveDirectionality.SWAP and there is not None:
                self._rows[one] = there

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        """See the logits, decide on what has come, and force what must come."""
        if not self._rows:
            return logits
        rows = {index: row for index, row in self._rows.items() if index < logits.shape[0]}
        if self._steps:
            self._steps[-1].close()
        chunk = min((self._chunk, *(1 for row in rows.values() if row.landing)))
        if len(self._steps) >= chunk:
            self._flush()
        take(rows.values())
        free = [index for index, row in rows.items() if row.forces is None]
        if free:
            self._steps.append(_Step([rows[index] for index in free], logits[free]))
        force(rows, logits)
        return logits

    def _flush(self) -> None:
        """One copy off the device for all rows of all steps."""
        done = [step for step in self._steps if step.signals is not None]
        self._steps = []
        if not done:
            return
        signals = torch.cat([step.signals for step in done if step.signals is not None]).cpu().tolist()
        told = iter(signals)
        for step in done:
            for row, at in zip(step.rows, step.positions, strict=True):
                row.known[at] = next(told)
