"""Transformers: batched decoding in which rows leave as they end and others take their place.

The loop is ours rather than `generate`'s because there a halted row is padded until the last one ends:
tokens would be saved and time would not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from transformers import DynamicCache

from bitcal_tts.engines.attention import use_row_attention
from bitcal_tts.engines.base import Completion, Decoding, EngineError, Request, Score
from bitcal_tts.engines.batch import Batch, token_signals, unit_rows
from bitcal_tts.engines.checkpoint import Checkpoint
from bitcal_tts.engines.forks import Fork, Place, Written, probe_forks
from bitcal_tts.engines.rows import RowCache
from bitcal_tts.engines.text import TokenTexts
from bitcal_tts.engines.thinking import ThinkMarkers
from bitcal_tts.halting.answers import AnswerFormat
from bitcal_tts.halting.controller import Probe
from bitcal_tts.halting.landing import Landing
from bitcal_tts.halting.settled import SettledParameters

Tensor = torch.Tensor
_SCORED_LOGITS = 2**27  # at once: half a gigabyte of float32


class TransformersEngine:
    """Greedy or seeded sampling decoding of a local model, with signals and per-request halting."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.checkpoint = checkpoint
        self.bits = checkpoint.bits
        self._model = checkpoint.model
        self.device = checkpoint.device
        self.tokenizer = checkpoint.tokenizer
        self.eos_token_ids = checkpoint.eos_token_ids
        self.max_positions = checkpoint.max_positions
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
        self._check_profiles(requests, decoding)
        by_id = {r.id: r for r in requests}
        halted: list[Completion] = []
        for done in Batch(self, requests, decoding, batch_size, chunk_size, keep_hidden, self._ask).run():
            if done.decision is None or done.decision.landing is None:
                yield done
                continue
            halted.append(done)
            if len(halted) == batch_size:
                yield from self._land(halted, by_id, batch_size)
                halted = []
        yield from self._land(halted, by_id, batch_size)

    def too_long(self, prompts: Sequence[str], max_tokens: int) -> dict[int, int]:
        """Prompts that do not fit with their budget: which, and how many positions they would take."""
        if self.max_positions is None:
            return {}
        taken = (len(self.checkpoint.encode(prompt)) + max_tokens for prompt in prompts)
        return {i: n for i, n in enumerate(taken) if n > self.max_positions}

    def _check_profiles(self, requests: Sequence[Request], decoding: Decoding) -> None:
        """Refuse a profile on another model, dtype, precision, temperature or budget than it was fitted for."""
        parameters = (r.controller.parameters for r in requests if r.controller is not None)
        found = {id(p): p for p in parameters if isinstance(p, SettledParameters)}
        if not found:
            return
        served = {**self.describe(), "decoding": {"temperature": decoding.temperature}}
        for settings in found.values():
            settings.check(served)

    def _land(self, halted: list[Completion], by_id: dict[str, Request], batch_size: int) -> Iterator[Completion]:
        """Rows halted before their answer was written: let the model write it, within their budgets."""
        if not halted:
            return
        forks = []
        for done in halted:
            request = by_id[done.id]
            assert done.decision is not None and done.decision.landing is not None
            left = request.max_tokens - len(done.token_ids)
            forks.append(_fork(request, done, done.decision.landing, left))
        answers = _answers(by_id[halted[0].id])
        for done, (written,) in zip(halted, self.probe(forks, answers, batch_size=batch_size), strict=True):
            yield _append(done, written, self.tokenizer)

    def _ask(self, request: Request, done: Completion, landing: Landing) -> Probe:
        """A probe of one row, aside: its own prompt and tokens are run again, the batch is not disturbed."""
        (written,) = next(self.probe([_fork(request, done, landing, None)], _answers(request), batch_size=1))
        return written.probe()

    @torch.inference_mode()
    def probe(self, forks: Sequence[Fork], answers: AnswerFormat, *, batch_size: int = 32) -> Iterator[list[Written]]:
        """Make the model answer, greedily, at the places of each fork; some `batch_size` places are run together."""
        yield from probe_forks(self, forks, answers, batch_size=batch_size)

    @torch.inference_mode()
    def score(
        self, texts: Sequence[tuple[str, Sequence[int]]], *, chunk_size: int = 16, batch_size: int = 32
    ) -> Iterator[Score]:
        """Signals of given responses, (prompt, token ids) each, in order: teacher forcing.

        The text is the same whatever this model would have written, so that two precisions differ in nothing else.
        """
        vocabulary = self._model.config.vocab_size
        longest = max((len(ids) for _, ids in texts), default=1)
        rows = max(1, min(batch_size, _SCORED_LOGITS // (vocabulary * (longest + 1))))
        for start in range(0, len(texts), rows):
            part = texts[start : start + rows]
            encoded = [(self.encode(prompt), list(ids)) for prompt, ids in part]
            keep = max(len(ids) for _, ids in encoded) + 1
            out = self._run([prompt + ids for prompt, ids in encoded], keep, use_cache=False)
            assert self._hidden is not None
            for logits, hidden, (_, ids) in zip(out.logits, self._hidden, encoded, strict=True):
                yield _score(logits[keep - 1 - len(ids) : -1], hidden[-1 - len(ids) : -1], ids, chunk_size)

    def encode(self, prompt: str) -> list[int]:
        """Token ids of a prompt, through the chat template."""
        return self.checkpoint.encode(prompt)

    def prefill(self, prompts: list[list[int]]) -> tuple[Any, Tensor, Tensor]:
        """Run left-padded prompts: their cache, and the logits and hidden states at their ends."""
        # Made without the config, the cache keeps the whole prompt for layers with a sliding window too.
        out = self._run(prompts, 1, past_key_values=DynamicCache(), use_cache=True)
        return out.past_key_values, out.logits[:, -1], self._last_hidden()

    def _run(self, prompts: list[list[int]], keep: int, **options: Any) -> Any:
        """The model on left-padded prompts, with the logits of their last `keep` positions."""
        width = max(map(len, prompts))
        ids = torch.zeros(len(prompts), width, dtype=torch.long)
        mask = torch.zeros_like(ids)
        for row, prompt in enumerate(prompts):
            ids[row, width - len(prompt) :] = torch.tensor(prompt)
            mask[row, width - len(prompt) :] = 1
        positions = (mask.cumsum(-1) - 1).clamp_min(0)
        return self._model(
            input_ids=ids.to(self.device),
            attention_mask=mask.to(self.device),
            position_ids=positions.to(self.device),
            logits_to_keep=keep,
            **options,
        )

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

    def _masks_by_layer_type(self, full: Tensor | None, cache: RowCache) -> dict[str, Tensor] | Tensor:
        """Layers with a sliding window read the same cache through a mask that hides what lies before it."""
        window = self.checkpoint.sliding_window
        assert window is not None and cache.mask is not None
        if full is None:
            full = cache.mask[: cache.count, :, :, cache.begin : cache.end + 1]
        width = full.shape[-1]
        age = torch.arange(width - 1, -1, -1, device=full.device)
        near = full.masked_fill(age >= window, torch.finfo(full.dtype).min)
        if getattr(self._model.config, "layer_types", None) is None:
            return near
        return {"full_attention": full, "sliding_attention": near}

    def _last_hidden(self) -> Tensor:
        assert self._hidden is not None
        return self._hidden[:, -1].float()


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


def _answers(request: Request) -> AnswerFormat:
    assert request.controller is not None
    answers: AnswerFormat = request.controller.parameters.format
    return answers


def _fork(request: Request, done: Completion, landing: Landing, left: int | None) -> Fork:
    """The end of what a request has so far, as the one place of a fork."""
    answers = _answers(request)
    tokens = [*request.prefix, *done.token_ids]
    limit = answers.reserve if left is None else min(answers.reserve, left)
    return Fork(request.prompt, tokens, [Place(len(tokens), landing, 0.0, limit)])


def _append(done: Completion, written: Written, tokenizer: Any) -> Completion:
    """Add a landing to a completion; forced tokens were not chosen, so they have no signals."""
    if written.limit < 1:  # no room for it: the text stays as it is
        return done
    texts = TokenTexts(tokenizer)
    done.token_ids += written.forced + written.ids
    done.token_texts += [texts.add(token) for token in written.forced] + written.texts
    done.landing_tokens = len(written.forced) + len(written.ids)
    nothing = [0.0] * done.landing_tokens
    for name in ("entropies", "logprobs", "margins", "top_logprobs"):
        getattr(done, name).extend(nothing)
    return done


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
