"""The rows in flight: they join, take tokens, are asked about, and leave.

Signals are computed on the device for the whole batch and copied off once a chunk, never per token.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from bitcal_tts.engines.base import Completion, Decoding, EngineError, Request
from bitcal_tts.engines.rows import RowCache, survivors
from bitcal_tts.engines.text import TokenTexts
from bitcal_tts.halting.controller import Method, Probe, Step
from bitcal_tts.halting.landing import Landing

Tensor = torch.Tensor


class Model(Protocol):
    """What a batch needs of the model it decodes."""

    device: torch.device
    tokenizer: Any
    eos_token_ids: frozenset[int]
    max_positions: int | None

    def encode(self, prompt: str) -> list[int]:
        """Token ids of a rendered prompt."""
        ...

    def prefill(self, prompts: list[list[int]]) -> tuple[Any, Tensor, Tensor]:
        """Run left-padded prompts: their cache, and the logits and hidden states at their ends."""
        ...

    def forward(self, tokens: Tensor, positions: Tensor, cache: RowCache) -> tuple[Tensor, Tensor]:
        """One token for every row: logits and hidden states."""
        ...


N_SIGNALS = 4
_TOP = 20
_LOWEST = -1e4  # what a masked logit counts as in a mean


def token_signals(logits: Tensor, chosen: Tensor) -> Tensor:
    """Entropy, log-probability of the chosen token, top-2 margin and mean top-20 log-probability, [rows, 4]."""
    logp = torch.log_softmax(logits.float(), dim=-1)
    entropy = (logp.exp() * logp.clamp_min(torch.finfo(logp.dtype).min)).sum(-1).abs()
    top = logp.topk(min(_TOP, logp.shape[-1]), dim=-1).values
    mean = top.clamp_min(_LOWEST).mean(-1)
    return torch.stack((entropy, logp.gather(-1, chosen[:, None])[:, 0], top[:, 0] - top[:, 1], mean), dim=-1)


def unit_rows(hidden: Tensor) -> Tensor:
    """Hidden states scaled to length one, so that a product of two is their cosine."""
    length: Tensor = hidden.norm(dim=-1, keepdim=True)
    return hidden / (length + 1e-12)


def choose(logits: Tensor, temperature: float, uniform: Tensor | None) -> Tensor:
    """The next tokens: the likeliest, or the inverse of the cumulative distribution at `uniform`."""
    if uniform is None:
        return logits.argmax(-1)
    cumulative = torch.softmax(logits.double() / temperature, dim=-1).cumsum(-1)
    at = uniform[:, None] * cumulative[:, -1:]
    return torch.searchsorted(cumulative, at, right=True)[:, 0].clamp_max(logits.shape[-1] - 1)


Prober = Callable[[Request, Completion, Landing], Probe]
"""Makes the model answer after what a request has so far."""


class _Row:
    """One request being decoded: what has come off the device so far."""

    def __init__(
        self, request: Request, prompt_ids: list[int], tokenizer: Any, chunk_size: int, probe: Prober | None
    ) -> None:
        self.request = request
        self.prompt_ids = prompt_ids
        self.done = Completion(request.id, len(prompt_ids))
        self.issued = 0
        self._texts = TokenTexts(tokenizer)
        self._chunk_size = chunk_size
        self._controller: Method | None = request.controller.fresh() if request.controller else None
        self._probe: Callable[[Landing], Probe] | None = None
        if probe is not None:
            self._probe = lambda landing: probe(request, self.done, landing)

    def take(self, ids: list[int], signals: list[list[float]], eos: frozenset[int]) -> None:
        """Append tokens in order until one ends the sequence."""
        done = self.done
        for token, (entropy, logprob, margin, top) in zip(ids, signals, strict=True):
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
            done.top_logprobs.append(top)
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
                top_logprobs=done.top_logprobs[chunk],
                probe=self._probe,
            )
        )
        done.probe_tokens = decision.probe_tokens
        if decision.halts:
            done.finish, done.decision = "halted", decision

    def close(self) -> Completion:
        """The finished completion."""
        if self.done.token_texts:
            self.done.token_texts[-1] += self._texts.rest()
        return self.done


class Batch:
    """The rows in flight during one `decode` call."""

    def __init__(
        self,
        model: Model,
        requests: Sequence[Request],
        decoding: Decoding,
        batch_size: int,
        chunk_size: int,
        keep_hidden: bool,
        probe: Prober | None = None,
    ) -> None:
        self.model = model
        self.decoding = decoding
        self.batch_size = batch_size
        self.chunk_size = chunk_size
        self.keep_hidden = keep_hidden
        self.eos = model.eos_token_ids
        self.device = model.device
        prompts = [model.encode(r.prompt) + list(r.prefix) for r in requests]
        order = sorted(range(len(requests)), key=lambda i: (-len(prompts[i]), i))
        self.waiting = deque(_Row(requests[i], prompts[i], model.tokenizer, chunk_size, probe) for i in order)
        max_new = max(r.max_tokens for r in requests)
        longest = max(len(prompt) + r.max_tokens for prompt, r in zip(prompts, requests, strict=True))
        if model.max_positions is not None and longest > model.max_positions:
            raise EngineError(
                f"a prompt and its budget of {max_new} take {longest} positions, the model has {model.max_positions}"
            )
        self.cache = RowCache(rows=batch_size, longest_prompt=max(map(len, prompts)), max_new=max_new)
        self.rows: list[_Row] = []
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

    def run(self) -> Iterator[Completion]:
        """Decode until nobody is left, yielding each request as it ends."""
        try:
            yield from self._run()
        finally:
            self.cache.release()

    def _run(self) -> Iterator[Completion]:
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
            self.logits, self.hidden = self.model.forward(self.last, self.positions, self.cache)
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
        """Each row's next draw: its own sequence at the number of tokens it has."""
        return self.uniform.gather(1, (self.positions - self.prompt_lengths)[:, None])[:, 0]

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
