"""Transformers: batched decoding in which rows leave as they end and others take their place.

The loop is ours rather than `generate`'s because there a halted row is padded until the last one ends:
tokens would be saved and time would not. Signals are computed on the device for the whole batch and
copied off once a chunk.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

from bitcal_tts.engines.attention import use_row_attention
from bitcal_tts.engines.base import Completion, Decoding, EngineError, Request
from bitcal_tts.engines.checkpoint import Checkpoint
from bitcal_tts.engines.rows import RowCache, survivors
from bitcal_tts.engines.text import TokenTexts
from bitcal_tts.halting.controller import Controller, Step

Tensor = torch.Tensor


def token_signals(logits: Tensor, chosen: Tensor) -> Tensor:
    """Entropy, log-probability of the chosen token, and top-2 margin, [rows, 3], from raw logits."""
    logp = torch.log_softmax(logits.float(), dim=-1)
    entropy = (logp.exp() * logp.clamp_min(torch.finfo(logp.dtype).min)).sum(-1).abs()
    top = logp.topk(2, dim=-1).values
    return torch.stack((entropy, logp.gather(-1, chosen[:, None])[:, 0], top[:, 0] - top[:, 1]), dim=-1)


def choose(logits: Tensor, temperature: float, uniform: Tensor | None) -> Tensor:
    """The next tokens: the likeliest, or the inverse of the cumulative distribution at `uniform`."""
    if uniform is None:
        return logits.argmax(-1)
    cumulative = torch.softmax(logits.double() / temperature, dim=-1).cumsum(-1)
    at = uniform[:, None] * cumulative[:, -1:]
    return torch.searchsorted(cumulative, at, right=True)[:, 0].clamp_max(logits.shape[-1] - 1)


class _Row:
    """One request being decoded: what has come off the device so far."""

    def __init__(self, request: Request, prompt_ids: list[int], tokenizer: Any, chunk_size: int) -> None:
        self.request = request
        self.prompt_ids = prompt_ids
        self.done = Completion(request.id, len(prompt_ids))
        self.issued = 0
        self._texts = TokenTexts(tokenizer)
        self._chunk_size = chunk_size
        self._controller: Controller | None = request.controller.fresh() if request.controller else None

    def take(self, ids: list[int], signals: list[list[float]], eos: frozenset[int]) -> None:
        """Append tokens in order until one ends the sequence."""
        done = self.done
        for token, (entropy, logprob, margin) in zip(ids, signals, strict=True):
            if done.finish:
                return
            if not entropy == entropy:
                raise EngineError(
                    f"NaN logits for item {done.id!r} at token {len(done.token_ids) + 1}: the checkpoint is broken "
                    "or the compute dtype overflows; try --compute-dtype float32"
                )
            if token in eos:
                done.finish = "eos"
                return
            done.token_ids.append(token)
            done.token_texts.append(self._texts.add(token))
            done.entropies.append(entropy)
            done.logprobs.append(logprob)
            done.margins.append(margin)
            if len(done.token_ids) == self.request.max_tokens:
                done.finish = "budget"

    def decide(self) -> None:
        """At a chunk boundary: ask the controller, unless the sequence has ended by itself."""
        done = self.done
        if self._controller is None or done.finish:
            return
        chunk = slice(len(done.token_ids) - self._chunk_size, None)
        decision = self._controller.observe(
            Step(
                text="".join(done.token_texts[chunk]),
                n_tokens=self._chunk_size,
                entropy=done.entropies[-1],
                hidden_similarity=done.hidden_similarities[-1] if done.hidden_similarities else None,
                token_texts=done.token_texts[chunk],
                entropies=done.entropies[chunk],
                logprobs=done.logprobs[chunk],
                margins=done.margins[chunk],
            )
        )
        if decision.halts:
            done.finish, done.decision = "halted", decision

    def close(self) -> Completion:
        """The finished completion."""
        if self.done.token_texts:
            self.done.token_texts[-1] += self._texts.rest()
        return self.done


class TransformersEngine:
    """Greedy or seeded sampling decoding of a local model, with signals and per-request halting."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.checkpoint = checkpoint
        self.bits = checkpoint.bits
        self._model = checkpoint.model
        self._device = checkpoint.device
        self._hidden: Tensor | None = None
        use_row_attention(self._model)
        head = self._model.get_output_embeddings()
        if head is None:
            raise EngineError(f"{checkpoint.source} has no output embedding: not a causal language model")
        head.register_forward_pre_hook(self._catch_hidden)

    def _catch_hidden(self, _: Any, inputs: tuple[Tensor, ...]) -> None:
        self._hidden = inputs[0]

    def describe(self) -> dict[str, Any]:
        """What is being run, for the manifest."""
        return {"engine": "transformers", **self.checkpoint.describe()}

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
            requests: The prompts, each with its own budget and, to halt it, controller.
            decoding: Greedy unless told otherwise.
            batch_size: How many rows decode together.
            chunk_size: k: signals are copied off, and controllers asked, every k tokens.
            keep_hidden: Keep the hidden vectors at chunk boundaries, not only their cosines.
        """
        decoding = decoding or Decoding()
        _check(requests, batch_size, chunk_size)
        if not requests:
            return
        yield from _Batch(self, requests, decoding, batch_size, chunk_size, keep_hidden).run()

    def prefill(self, prompts: list[list[int]]) -> tuple[Any, Tensor, Tensor]:
        """Run left-padded prompts: their cache, and the logits and hidden states at their ends."""
        width = max(map(len, prompts))
        ids = torch.zeros(len(prompts), width, dtype=torch.long)
        mask = torch.zeros_like(ids)
        for row, prompt in enumerate(prompts):
            ids[row, width - len(prompt) :] = torch.tensor(prompt)
            mask[row, width - len(prompt) :] = 1
        positions = (mask.cumsum(-1) - 1).clamp_min(0)
        out = self._model(
            input_ids=ids.to(self._device),
            attention_mask=mask.to(self._device),
            position_ids=positions.to(self._device),
            use_cache=True,
            logits_to_keep=1,
        )
        return out.past_key_values, out.logits[:, -1], self._last_hidden()

    def forward(self, tokens: Tensor, positions: Tensor, cache: RowCache) -> tuple[Tensor, Tensor]:
        """One token for every row: logits and hidden states."""
        mask: Any = cache.window_mask()
        if self.checkpoint.sliding_window is not None:
            mask = self._masks_by_layer_type(mask, cache)
        out = self._model(
            input_ids=tokens[:, None],
            attention_mask=mask,
            position_ids=positions[:, None],
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        )
        cache.advance()
        return out.logits[:, -1], self._last_hidden()

    def _masks_by_layer_type(self, full: Tensor | None, cache: RowCache) -> dict[str, Tensor]:
        """Layers with a sliding window read the same cache through a mask that hides what lies before it."""
        window = self.checkpoint.sliding_window
        assert window is not None and cache.mask is not None
        if full is None:
            full = cache.mask[: cache.count, :, :, cache.begin : cache.end + 1]
        width = full.shape[-1]
        age = torch.arange(width - 1, -1, -1, device=full.device)
        near = full.masked_fill(age >= window, torch.finfo(full.dtype).min)
        return {"full_attention": full, "sliding_attention": near}

    def _last_hidden(self) -> Tensor:
        assert self._hidden is not None
        return self._hidden[:, -1].float()


class _Batch:
    """The rows in flight during one `decode` call."""

    def __init__(
        self,
        engine: TransformersEngine,
        requests: Sequence[Request],
        decoding: Decoding,
        batch_size: int,
        chunk_size: int,
        keep_hidden: bool,
    ) -> None:
        self.engine = engine
        self.decoding = decoding
        self.batch_size = batch_size
        self.chunk_size = chunk_size
        self.keep_hidden = keep_hidden
        self.eos = engine.checkpoint.eos_token_ids
        self.device = engine.checkpoint.device
        prompts = [engine.checkpoint.encode(r.prompt) for r in requests]
        order = sorted(range(len(requests)), key=lambda i: (-len(prompts[i]), i))
        tokenizer = engine.checkpoint.tokenizer
        self.waiting = deque(_Row(requests[i], prompts[i], tokenizer, chunk_size) for i in order)
        max_new = max(r.max_tokens for r in requests)
        self.cache = RowCache(rows=batch_size, longest_prompt=max(map(len, prompts)), max_new=max_new)
        self.rows: list[_Row] = []
        self.phase = 0
        self.filled = 0
        # Device tensors, one row each; `ids` and `signals` collect what has not been copied off yet.
        self.ids = torch.zeros(batch_size, chunk_size, dtype=torch.long, device=self.device)
        self.signals = torch.zeros(batch_size, chunk_size, 3, device=self.device)
        nothing = torch.zeros(0, device=self.device)
        self.last = self.positions = nothing.long()
        self.logits = self.hidden = self.unit = self.cosines = nothing
        self.uniform = torch.zeros(0, max_new, dtype=torch.float64, device=self.device)
        eos = torch.tensor(sorted(self.eos), dtype=torch.long, device=self.device)
        # Looking at tokens is free on the CPU; elsewhere it would stall the device at every token.
        self.eos_on_host = eos if self.device.type == "cpu" else None

    def run(self) -> Iterator[Completion]:
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
            self.logits, self.hidden = self.engine.forward(self.last, self.positions, self.cache)
            self.positions = self.positions + 1
            if boundary:
                self.phase = 0
                self._admit()

    def _next_tokens(self) -> None:
        n = len(self.rows)
        t = self.decoding.temperature
        tokens = choose(self.logits, t, self._uniforms() if t > 0 else None)
        self.ids[:n, self.filled] = tokens
        self.signals[:n, self.filled] = token_signals(self.logits, tokens)
        self.filled += 1
        self.last = tokens
        for row in self.rows:
            row.issued += 1

    def _uniforms(self) -> Tensor:
        issued = torch.tensor([row.issued for row in self.rows], device=self.device)
        return self.uniform.gather(1, issued[:, None])[:, 0]

    def _some_row_ended(self) -> bool:
        if any(row.issued == row.request.max_tokens for row in self.rows):
            return True
        return self.eos_on_host is not None and bool(torch.isin(self.last, self.eos_on_host).any())

    def _flush(self, boundary: bool) -> Iterator[Completion]:
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
            row.take(ids[i], signals[i], self.eos)
            # A row that ended inside this chunk has no state at its boundary.
            if boundary and row.done.finish != "eos":
                if vectors is not None:
                    row.done.hidden.append(vectors[i])
                if row.issued > self.chunk_size:
                    row.done.hidden_similarities.append(cosines[i])
                row.decide()
        leaving = {i for i, row in enumerate(self.rows) if row.done.finish}
        if leaving:
            for i in sorted(leaving):
                yield self.rows[i].close()
            self._keep(survivors(n, leaving))

    def _compare_hidden(self) -> None:
        """Cosines between this boundary's hidden states and the last one's."""
        unit = self.hidden / (self.hidden.norm(dim=-1, keepdim=True) + 1e-12)
        self.cosines = (unit * self.unit).sum(-1)
        self.unit = unit

    def _keep(self, order: list[int]) -> None:
        self.rows = [self.rows[i] for i in order]
        self.cache.keep(order)
        index = torch.tensor(order, dtype=torch.long, device=self.device)
        self.last = self.last[index]
        self.positions = self.positions[index]
        self.unit = self.unit[index]
        if self.decoding.temperature > 0:
            self.uniform = self.uniform[index]

    def _admit(self) -> None:
        """Fill free rows from the queue."""
        free = min(self.batch_size - len(self.rows), len(self.waiting))
        if not free:
            return
        rows = [self.waiting.popleft() for _ in range(free)]
        lengths = [len(row.prompt_ids) for row in rows]
        prefilled, logits, hidden = self.engine.prefill([row.prompt_ids for row in rows])
        self.cache.admit(prefilled, lengths)
        old = bool(self.rows)
        self.rows += rows
        self.logits = torch.cat((self.logits, logits)) if old else logits
        self.hidden = torch.cat((self.hidden, hidden)) if old else hidden
        none_yet = torch.zeros_like(hidden)
        self.unit = torch.cat((self.unit, none_yet)) if old else none_yet
        at = torch.tensor(lengths, device=self.device)
        self.positions = torch.cat((self.positions, at)) if old else at
        if self.decoding.temperature > 0:
            draws = torch.from_numpy(np.stack([self._draws(row.request) for row in rows])).to(self.device)
            self.uniform = torch.cat((self.uniform, draws)) if old else draws

    def _draws(self, request: Request) -> Any:
        rng = np.random.default_rng([self.decoding.seed, request.seed])
        return rng.random(self.uniform.shape[1])


def _check(requests: Sequence[Request], batch_size: int, chunk_size: int) -> None:
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, got {batch_size}")
    for r in requests:
        if r.max_tokens < 1:
            raise ValueError(f"budget must be at least 1, got {r.max_tokens} for item {r.id!r}")
        if r.controller is not None and r.controller.parameters.chunk_size != chunk_size:
            raise ValueError(
                f"item {r.id!r} is halted every {r.controller.parameters.chunk_size} tokens, "
                f"the engine hands over every {chunk_size}: pass the same chunk_size to both"
            )
