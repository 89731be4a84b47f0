"""Probing one decode at many places: its keys and values are computed once and shared by all of them.

Running prompt and text again for every probe would cost as much as the trace is long, each time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from bitcal_tts.engines.base import Fork, Place, Written
from bitcal_tts.engines.cache import RowCache
from bitcal_tts.engines.forward import Forward
from bitcal_tts.engines.sampling import token_signals
from bitcal_tts.engines.text import TokenTexts, landing_ids
from bitcal_tts.halting.landing import AnswerWriting

Tensor = torch.Tensor
_LOOK = 4  # steps between looks at what the rows wrote
_COPIES = 2**30  # bytes of keys and values that are decoded together where the memory is the processor's
_COPIED_SHARE = 4  # elsewhere: one in so many of the bytes that are free


@dataclass
class _Writer:
    """A place being written at."""

    written: Written
    writing: AnswerWriting
    decoder: TokenTexts

    @property
    def most(self) -> int:
        """Tokens that it may come to, what is appended included."""
        return len(self.written.forced) + max(0, self.writing.limit)

    def take(self, token: int, logprob: float, eos: frozenset[int]) -> None:
        """Take the next token that the model wrote."""
        if token in eos:
            self.writing.over = True
            return
        piece = self.decoder.add(token)
        self.writing.feed(piece)
        self.written.ids.append(token)
        self.written.texts.append(piece)
        self.written.logprobs.append(logprob)


def probe_forks(model: Forward, forks: Sequence[Fork], *, batch_size: int) -> Iterator[list[Written]]:
    """What is written at the places of each fork, in order; at most `batch_size` places are decoded together.

    Each place holds keys and values of its own, so that long texts are taken in smaller groups.
    """
    longest = max((len(fork.prompt) // 4 + len(fork.tokens) for fork in forks), default=1)
    size = max(1, min(batch_size, _room(model.device) // (longest * model.bytes_per_token)))
    pieces: list[tuple[int, Fork]] = []
    for i, fork in enumerate(forks):
        starts = range(0, max(1, len(fork.places)), size)
        pieces += [(i, fork._replace(places=fork.places[start : start + size])) for start in starts]
    collected: dict[int, list[Written]] = {}
    done = 0
    for group in _groups(pieces, size):
        for (i, _), written in zip(group, _probe_group(model, [fork for _, fork in group]), strict=True):
            collected.setdefault(i, []).extend(written)
        # A fork is complete once a later one has begun.
        while done < group[-1][0]:
            yield collected.pop(done)
            done += 1
    while done < len(forks):
        yield collected.pop(done)
        done += 1


def _room(device: torch.device) -> int:
    """Bytes that copies of keys and values may take."""
    if device.type != "cuda":
        return _COPIES
    return int(torch.cuda.mem_get_info(device)[0]) // _COPIED_SHARE


def _groups(pieces: Sequence[tuple[int, Fork]], size: int) -> Iterator[list[tuple[int, Fork]]]:
    group: list[tuple[int, Fork]] = []
    for piece in pieces:
        if group and sum(len(fork.places) for _, fork in group) + len(piece[1].places) > size:
            yield group
            group = []
        group.append(piece)
    if group:
        yield group


def _probe_group(model: Forward, forks: Sequence[Fork]) -> Iterator[list[Written]]:
    asked = [fork for fork in forks if fork.places]
    rows: list[_Writer] = []
    if asked:
        prompts = [model.encode(fork.prompt) for fork in asked]
        lasts = [max(place.tokens for place in fork.places) for fork in asked]
        whole = [prompt + list(fork.tokens[:last]) for prompt, fork, last in zip(prompts, asked, lasts, strict=True)]
        prefilled, logits, _ = model.prefill(whole)
        ends: list[float] = token_signals(logits, logits.argmax(-1))[:, 0].tolist()
        rows = [
            _writer(model, place._replace(entropy=end) if place.tokens == last else place)
            for fork, last, end in zip(asked, lasts, ends, strict=True)
            for place in fork.places
        ]
        longest = max(row.most for row in rows)
        cache, lengths = _share(prefilled, whole, [len(p) for p in prompts], asked, longest)
        try:
            _decode(model, rows, cache, lengths)
        finally:
            cache.release()
    done = iter(rows)
    for fork in forks:
        yield [next(done).written for _ in fork.places]


def _writer(model: Forward, place: Place) -> _Writer:
    closing, cue = landing_ids(model.tokenizer, place.landing)
    return _Writer(*place.begin(closing, cue), TokenTexts(model.tokenizer))


def _share(
    prefilled: Any, whole: list[list[int]], prompt_lengths: list[int], forks: Sequence[Fork], max_new: int
) -> tuple[RowCache, list[int]]:
    """A cache with a row for every place, each holding what comes before it; and how much that is."""
    width = max(map(len, whole))
    at = [(i, place.tokens) for i, fork in enumerate(forks) for place in fork.places]
    lengths = [prompt_lengths[i] + tokens for i, tokens in at]
    cache = RowCache(rows=len(at), longest_prompt=max(lengths), max_new=max_new)
    ends = [width - len(whole[i]) + length for (i, _), length in zip(at, lengths, strict=True)]
    cache.admit_copies(prefilled, [i for i, _ in at], ends, lengths)
    return cache, lengths


def _decode(model: Forward, rows: list[_Writer], cache: RowCache, lengths: list[int]) -> None:
    """Feed what is forced, then let every row write greedily until its answer is there."""
    device = model.device
    forced_width = max(1, *(len(row.written.forced) for row in rows))
    forced = torch.zeros(len(rows), forced_width, dtype=torch.long)
    for i, row in enumerate(rows):
        forced[i, : len(row.written.forced)] = torch.tensor(row.written.forced)
    forced = forced.to(device)
    n_forced = torch.tensor([len(row.written.forced) for row in rows], device=device)
    positions = torch.tensor(lengths, device=device)
    total = max(row.most for row in rows)
    chosen = torch.zeros(len(rows), dtype=torch.long, device=device)
    pending: list[tuple[Tensor, Tensor]] = []
    for step in range(total):
        tokens = torch.where(step < n_forced, forced[:, min(step, forced_width - 1)], chosen)
        logits, _ = model.step(tokens, positions, cache)
        positions = positions + 1
        chosen = logits.argmax(-1)
        pending.append((chosen, token_signals(logits, chosen)))
        if len(pending) == _LOOK or step == total - 1:
            _take(rows, pending, step + 1 - len(pending), model.eos_token_ids)
            pending = []
            if all(row.writing.over for row in rows):
                return


def _take(rows: list[_Writer], pending: list[tuple[Tensor, Tensor]], first: int, eos: frozenset[int]) -> None:
    ids = torch.stack([chosen for chosen, _ in pending], dim=1).tolist()
    signals = torch.stack([signal for _, signal in pending], dim=1).tolist()
    for i, row in enumerate(rows):
        for j in range(len(pending)):
            fed = first + j + 1  # tokens fed when this one was chosen
            entropy, logprob, *_ = signals[i][j]
            if fed == row.written.closed:
                row.written.entropy = entropy
            if fed >= len(row.written.forced) and not row.writing.over:
                row.take(ids[i][j], logprob, eos)
