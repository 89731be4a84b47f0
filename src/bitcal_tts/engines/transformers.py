"""Transformers: batched decoding in which rows leave as they end and others take their place.

The loop is ours rather than `generate`'s because there a halted row is padded until the last one ends:
tokens would be saved and time would not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from bitcal_tts.engines.base import Completion, Decoding, Fork, Request, Score, Written, open_sessions
from bitcal_tts.engines.batch import Batch
from bitcal_tts.engines.checkpoint import Checkpoint
from bitcal_tts.engines.desks import host_for
from bitcal_tts.engines.forks import probe_forks
from bitcal_tts.engines.forward import Forward
from bitcal_tts.engines.memory import garbage_elsewhere, garbage_left_alone
from bitcal_tts.engines.row import Row
from bitcal_tts.engines.sampling import token_signals, unit_rows
from bitcal_tts.engines.slots import Slots
from bitcal_tts.engines.text import response_ids, token_counter
from bitcal_tts.engines.thinking import ThinkMarkers
from bitcal_tts.halting.identity import Identity
from bitcal_tts.halting.signals import Signals

Tensor = torch.Tensor
_SCORED_LOGITS = 2**27  # at once: half a gigabyte of float32


class TransformersEngine:
    """Greedy or seeded sampling decoding of a local model, with signals and per-request halting.

    Args:
        checkpoint: The model.
        capture: Whether decode steps on a GPU are captured as CUDA graphs, where the model lets them.
        processes: How many look at what was decoded. By default this one, and where a GPU decodes, which would wait for
            it, as many as there are cores and rows for.
    """

    def __init__(self, checkpoint: Checkpoint, *, capture: bool = True, processes: int | None = None) -> None:
        self.checkpoint = checkpoint
        self._capture = capture
        self._processes = 1 if processes is None and checkpoint.device.type == "cpu" else processes
        self.tokenizer = checkpoint.tokenizer
        self.max_positions = checkpoint.max_positions
        self._forward = Forward(checkpoint)
        self._slots: Slots | None = None

    @property
    def bits(self) -> float:
        """Weight precision."""
        return self.checkpoint.bits

    def describe(self) -> dict[str, Any]:
        """What is being run, for the manifest."""
        return {"engine": "transformers", **self.checkpoint.describe(), "repetition_penalty": 1.0}

    def identity(self, decoding: Decoding) -> Identity:
        """What a promise is tied to, read from the model; the task is not the engine's to know."""
        return Identity.of({**self.describe(), "decoding": decoding.describe()})

    def close(self) -> None:
        """Give back what calls have left for the next one."""
        if self._slots is not None:
            self._slots.release()
            self._slots = None

    @property
    def style(self) -> str:
        """`thinking` or `instruct`, by the template as it is rendered."""
        return self.checkpoint.style

    def signals(self, chunk_size: int) -> Signals:
        """All there is of every token, and hidden states."""
        return Signals("full", hidden_every=chunk_size, probes=True)

    @property
    def thinking(self) -> ThinkMarkers | None:
        """How the model marks its thinking."""
        return self.checkpoint.thinking

    @torch.inference_mode()
    def decode(
        self,
        requests: Sequence[Request],
        decoding: Decoding | None = None,
        *,
        batch_size: int = 32,
        chunk_size: int = 16,
        keep_hidden: bool = False,
    ) -> Iterator[Completion]:
        """Decode all requests, longest prompts first, yielding each as it ends.

        Args:
            requests: The prompts, each with the method that halts it and owns its budget.
            decoding: Greedy unless told otherwise.
            batch_size: How many rows decode together.
            chunk_size: Hidden states are compared every so many tokens; signals are copied off and sessions fed after
                as many, or fewer where the device takes long. Where a method ends a request does not depend on it; one
                that reads hidden states must have the same.
            keep_hidden: Keep the hidden vectors at chunk boundaries, not only their cosines.
        """
        for name, value in (("batch_size", batch_size), ("chunk_size", chunk_size)):
            if value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        if not requests:
            return
        decoding = decoding or Decoding()
        with garbage_left_alone():
            rows = self._rows(requests, decoding, chunk_size)
            in_flight = min(batch_size, len(rows))
            batch = Batch(
                self._forward,
                rows,
                decoding,
                batch_size=batch_size,
                chunk_size=chunk_size,
                keep_hidden=keep_hidden,
                slots_for=self._slots_for,
                host_for=lambda: host_for(
                    rows, self._forward.eos_token_ids, in_flight=in_flight, processes=self._processes
                ),
                probe=lambda forks: self.probe(forks, batch_size=batch_size),
            )
        try:
            with garbage_elsewhere():
                yield from batch.run()
        finally:
            self._give_back(batch.slots)

    def _slots_for(self, size: range, decoding: Decoding, **needed: int) -> Slots:
        """Those of the last call, with the steps that were captured for them, or new ones where they will not do."""
        slots, self._slots = self._slots, None
        if slots is not None:
            if slots.suits(size, decoding, **needed):
                return slots
            slots.release()
        return Slots(self._forward, size.start, decoding, capture=self._capture, **needed)

    def _give_back(self, slots: Slots) -> None:
        slots.clear()
        if slots.works_ahead and self._slots is None:
            self._slots = slots
        else:
            slots.release()

    def too_long(self, prompts: Sequence[str], max_tokens: int) -> dict[int, int]:
        """Prompts that do not fit with their budget: which, and how many positions they would take."""
        if self.max_positions is None:
            return {}
        taken = (len(ids) + max_tokens for ids in self._forward.encode(prompts))
        return {i: n for i, n in enumerate(taken) if n > self.max_positions}

    def _rows(self, requests: Sequence[Request], decoding: Decoding, chunk_size: int) -> list[Row]:
        """A row for every request, each with its session."""
        sessions = open_sessions(
            requests,
            signals=self.signals(chunk_size),
            identity=self.identity(decoding),
            count_tokens=token_counter(self.tokenizer),
            prefix=lambda request: self._prefix(request)[1],
            weigh_later=True,
        )
        prompts = self._forward.encode([request.prompt for request in requests])
        rows = []
        for request, prompt, session in zip(requests, prompts, sessions, strict=True):
            prefix, _ = self._prefix(request)
            rows.append(Row(request, prompt + prefix, prefix, session, self.tokenizer, chunk_size))
        return rows

    def _prefix(self, request: Request) -> tuple[list[int], str]:
        """What a response begins with, as ids and as text."""
        if isinstance(request.prefix, str):
            return response_ids(self.tokenizer, request.prefix), request.prefix
        ids = list(request.prefix)
        text: str = self.tokenizer.decode(ids, skip_special_tokens=False) if ids else ""
        return ids, text

    @torch.inference_mode()
    def probe(self, forks: Sequence[Fork], *, batch_size: int = 32) -> Iterator[list[Written]]:
        """Make the model answer, greedily, at the places of each fork; some `batch_size` places are run together."""
        yield from probe_forks(self._forward, forks, batch_size=batch_size)

    @torch.inference_mode()
    def score(
        self, texts: Sequence[tuple[str, Sequence[int]]], *, chunk_size: int = 16, batch_size: int = 32
    ) -> Iterator[Score]:
        """Signals of given responses, (prompt, token ids) each, in order: teacher forcing.

        The text is the same whatever this model would have written, so that two precisions differ in nothing else.
        """
        longest = max((len(ids) for _, ids in texts), default=1)
        rows = max(1, min(batch_size, _SCORED_LOGITS // (self._forward.vocabulary * (longest + 1))))
        for start in range(0, len(texts), rows):
            part = texts[start : start + rows]
            prompts = self._forward.encode([prompt for prompt, _ in part])
            encoded = [(prompt, list(ids)) for prompt, (_, ids) in zip(prompts, part, strict=True)]
            keep = max(len(ids) for _, ids in encoded) + 1
            all_logits, states = self._forward.logits_of([prompt + ids for prompt, ids in encoded], keep)
            for logits, hidden, (_, ids) in zip(all_logits, states, encoded, strict=True):
                yield _score(logits[keep - 1 - len(ids) : -1], hidden[-1 - len(ids) : -1], ids, chunk_size)


def _score(logits: Tensor, hidden: Tensor, ids: list[int], chunk_size: int) -> Score:
    """Signals of one response from the logits and hidden states that precede its tokens."""
    chosen = torch.tensor(ids, dtype=torch.long, device=logits.device)
    entropies, logprobs, margins, top = token_signals(logits, chosen).cpu().numpy().T
    unit = unit_rows(hidden.float())[chunk_size - 1 :: chunk_size]
    return Score(
        entropies=entropies,
        logprobs=logprobs,
        margins=margins,
        top_logprobs=top,
        agrees=(logits.argmax(-1) == chosen).cpu().numpy(),
        hidden_similarities=(unit[1:] * unit[:-1]).sum(-1).cpu().numpy(),
    )
