"""Halting inside vLLM's V2 model runner, which keeps tokens on the device: the same requests, another interface.

    vllm serve MODEL --logits-processors bitcal_tts.engines.vllm_v2:Halting

V2 has no CPU backend, so that this was run against its interface only, never inside it.
"""

from __future__ import annotations

from typing import Any

import torch
from vllm.v1.worker.gpu.sample.logits_processor.interface import LogitsProcessor

from bitcal_tts.engines.sampling import token_signals
from bitcal_tts.engines.watched import Watched
from bitcal_tts.engines.watching import Roster, asked_for, force, take

CHUNK = 16
"""Steps between copies off the device; a stop comes at most so many tokens late, less one."""


class _Step:
    """One forward pass: signals of the rows that were free, and the tokens chosen there, still on the device."""

    def __init__(self, slots: list[int], rows: list[Watched], positions: list[int], logits: torch.Tensor) -> None:
        self.slots, self.rows, self.positions = slots, rows, positions
        self._logits: torch.Tensor | None = logits
        self.told: torch.Tensor | None = None
        """Token and signals of each row; a token of -1 where it is not known."""

    def close(self, input_ids: torch.Tensor, row_of: dict[int, int]) -> None:
        """What is fed to the model now is what was chosen then."""
        if self._logits is None:
            return
        now = [row_of.get(slot, -1) for slot in self.slots]
        index = torch.tensor(now, device=input_ids.device)
        tokens = torch.where(index >= 0, input_ids[index.clamp_min(0)].long(), -1)
        signals = token_signals(self._logits, tokens.clamp_min(0))
        self.told, self._logits = torch.cat((tokens[:, None].to(signals.dtype), signals), dim=1), None


class Halting(LogitsProcessor):  # type: ignore[misc]
    """Halts requests inside vLLM, each by its own method."""

    @classmethod
    def validate_params(cls, sampling_params: Any) -> None:
        """Refuse bad settings when a request comes in: HTTP 400 with the reason."""
        asked_for(sampling_params)

    def __init__(self, vllm_config: Any, req_states: Any) -> None:
        if getattr(vllm_config, "speculative_config", None) is not None:
            raise ValueError("bitcal halts one token at a time: start vLLM without speculative decoding")
        self._roster = Roster(vllm_config)
        self._states = req_states
        self._watched: dict[int, Watched] = {}
        self._steps: list[_Step] = []

    def add_request(self, req_idx: int, sampling_params: Any) -> bool:
        """A request comes into a slot, whatever was there before."""
        self._watched.pop(req_idx, None)
        settings = asked_for(sampling_params)
        row = None if settings is None else self._roster.watched(settings, [])
        if row is None:
            return False
        self._watched[req_idx] = row
        return True

    def apply(self, logits: torch.Tensor, ctx: Any) -> torch.Tensor:
        """See the logits, decide on what has come, and force what must come."""
        slots: list[int] = ctx.idx_mapping_np.tolist()
        row_of = {slot: row for row, slot in enumerate(slots)}
        here = {slot: self._watched[slot] for slot in slots if slot in self._watched}
        if not here:
            return logits
        if self._steps:
            self._steps[-1].close(ctx.input_ids, row_of)
        if len(self._steps) >= (1 if any(row.landing for row in here.values()) else CHUNK):
            self._flush()
        take(here.values())
        free = [slot for slot, row in here.items() if row.forces is None]
        if free:
            positions = [self._position(slot, ctx.seq_lens_upper_bound_np[row_of[slot]]) for slot in free]
            seen = logits[[row_of[slot] for slot in free]]
            self._steps.append(_Step(free, [here[slot] for slot in free], positions, seen))
        force({row_of[slot]: row for slot, row in here.items()}, logits)
        for row in here.values():
            forced = row.forces
            if forced is not None:
                row.out.append(forced)  # it is known without a copy
        return logits

    def _position(self, slot: int, length: int) -> int:
        """Which of its tokens a request is about to choose."""
        return int(length) - int(self._states.prompt_len.np[slot])

    def _flush(self) -> None:
        """One copy off the device for all rows of all steps."""
        done = [step for step in self._steps if step.told is not None]
        self._steps = []
        if not done:
            return
        told = iter(torch.cat([step.told for step in done if step.told is not None]).cpu().tolist())
        for step in done:
            for row, at in zip(step.rows, step.positions, strict=True):
                token, *signals = next(told)
                if token >= 0 and at == len(row.out):  # what is not known ends the watching, never the request
                    row.out.append(int(token))
                    row.known[at] = signals
