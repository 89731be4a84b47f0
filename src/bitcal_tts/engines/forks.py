"""Probing one decode at many places: its keys and values are computed once and shared by all of them.

Running prompt and text again for every probe would cost as much as the trace is long, each time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch

from bitcal_tts.engines.batch import Model, token_signals
from bitcal_tts.engines.rows import RowCache
from bitcal_tts.engines.text import TokenTexts, landing_ids
from bitcal_tts.halting.answers import AnswerFormat
from bitcal_tts.halting.controller import Probe
from bitcal_tts.halting.landing import Landing

Tensor = torch.Tensor
_LOOK = 4  # steps between looks at what the rows wrote


class Place(NamedTuple):
    """Where to make a model answer.

    Attributes:
        tokens: How many tokens of the response come before.
        landing: What to append there.
        entropy: Next-token entropy there, undisturbed, as far as it is known.
        limit: Most tokens that it may take, the appended ones included; by default what the answer format reserves.
    """

    tokens: int
    landing: Landing
    entropy: float
    limit: int | None = None


class Fork(NamedTuple):
    """A response and the places along it."""

    prompt: str
    tokens: Sequence[int]
    places: Sequence[Place]


@dataclass
class Written:
    """What was appended at a place, and what the model wrote after it."""

    landing: Landing
    forced: list[int]
    closed: int
    limit: int
    entropy: float
    decoder: TokenTexts
    ids: list[int] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    over: bool = False

    def probe(self) -> Probe:
        """As a probe."""
        return Probe(
            text="".join(self.texts),
            n_tokens=len(self.forced) + len(self.ids),
            logprobs=tuple(self.logprobs),
            close_entropy=self.entropy,
            close_tokens=self.closed,
        )


def probe_forks(
    model: Model, forks: Sequence[Fork], answers: AnswerFormat, *, batch_size: int
) -> Iterator[list[Written]]:
    """What is written at the places of each fork, in order; at most `batch_size` places are decoded together."""
    pieces: list[tuple[int, Fork]] = []
    for i, fork in enumerate(forks):
        starts = range(0, max(1, len(fork.places)), batch_size)
        pieces += [(i, fork._replace(places=fork.places[start : start + batch_size])) for start in starts]
    found: dict[int, list[Written]] = {}
    done = 0
    for group in _groups(pieces, batch_size):
        for (i, _), written in zip(group, _probe_group(model, [fork for _, fork in group], answers), strict=True):
            found.setdefault(i, []).extend(written)
        # A fork is complete once a later one has begun.
        while done < group[-1][0]:
            yield found.pop(done)
            done += 1
    while done < len(forks):
        yield found.pop(done)
        done += 1


def _groups(pieces: Sequence[tuple[int, Fork]], size: int) -> Iterator[list[tuple[int, Fork]]]:
    group: list[tuple[int, Fork]] = []
    for piece in pieces:
        if group and sum(len(fork.places) for _, fork in group) + len(piece[1].places) > size:
            yield group
            group = []
        group.append(piece)
    if group:
        yield group


def _probe_group(model: Model, forks: Sequence[Fork], answers: AnswerFormat) -> Iterator[list[Written]]:
    asked = [fork for fork in forks if fork.places]
    rows: list[Written] = []
    if asked:
        prompts = [model.encode(fork.prompt) for fork in asked]
        lasts = [max(place.tokens for place in fork.places) for fork in asked]
        whole = [prompt + list(fork.tokens[:last]) for prompt, fork, last in zip(prompts, asked, lasts, strict=True)]
        cache, lengths, ends = _share(model, whole, [len(p) for p in prompts], asked, answers.reserve)
        rows = [
            _row(model, place._replace(entropy=end) if place.tokens == last else place, answers)
            for fork, last, end in zip(asked, lasts, ends, strict=True)
            for place in fork.places
        ]
        try:
            _decode(model, rows, cache, lengths, answers)
        finally:
            cache.release()
    done = iter(rows)
    for fork in forks:
        yield [next(done) for _ in fork.places]


def _row(model: Model, place: Place, answers: AnswerFormat) -> Written:
    closing, cue = landing_ids(model.tokenizer, place.landing)
    limit = (answers.reserve if place.limit is None else place.limit) - len(closing) - len(cue)
    row = Written(place.landing, closing + cue, len(closing), limit, place.entropy, TokenTexts(model.tokenizer))
    row.over = limit < 1
    return row


def _share(
    model: Model, whole: list[list[int]], prompt_lengths: list[int], forks: Sequence[Fork], reserve: int
) -> tuple[RowCache, list[int], list[float]]:
    """A cache with a row for every place, each holding what comes before it; and the entropy at each fork's end."""
    prefilled, logits, _ = model.prefill(whole)
    ends: list[float] = token_signals(logits, logits.argmax(-1))[:, 0].tolist()
    width = max(map(len, whole))
    spans = []
    for tokens, prompt, fork in zip(whole, prompt_lengths, forks, strict=True):
        start = width - len(tokens)
        spans.append([(start, start + prompt + place.tokens) for place in fork.places])
    lengths = [end - start for spans_of_fork in spans for start, end in spans_of_fork]
    longest = max(lengths)
    layers = []
    for layer in prefilled.layers:
        parts = []
        for i, spans_of_fork in enumerate(spans):
            for start, end in spans_of_fork:
                pad = (0, 0, longest - (end - start), 0)
                parts.append([torch.nn.functional.pad(t[i, :, start:end], pad) for t in (layer.keys, layer.values)])
        layers.append(
            SimpleNamespace(keys=torch.stack([k for k, _ in parts]), values=torch.stack([v for _, v in parts]))
        )
    cache = RowCache(rows=len(lengths), longest_prompt=longest, max_new=reserve)
    shared: Any = SimpleNamespace(layers=layers)
    cache.admit(shared, lengths)
    return cache, lengths, ends


def _decode(model: Model, rows: list[Written], cache: RowCache, lengths: list[int], answers: AnswerFormat) -> None:
    """Feed what is forced, then let every row write greedily until its answer is there."""
    device = model.device
    forced_width = max(len(row.forced) for row in rows)
    forced = torch.zeros(len(rows), forced_width, dtype=torch.long)
    for i, row in enumerate(rows):
        forced[i, : len(row.forced)] = torch.tensor(row.forced)
    forced = forced.to(device)
    n_forced = torch.tensor([len(row.forced) for row in rows], device=device)
    positions = torch.tensor(lengths, device=device)
    total = max(len(row.forced) + max(row.limit, 0) for row in rows)
    chosen = torch.zeros(len(rows), dtype=torch.long, device=device)
    pending: list[tuple[Tensor, Tensor]] = []
    for step in range(total):
        tokens = torch.where(step < n_forced, forced[:, min(step, forced_width - 1)], chosen)
        logits, _ = model.forward(tokens, positions, cache)
        positions = positions + 1
        chosen = logits.argmax(-1)
        pending.append((chosen, token_signals(logits, chosen)))
        if len(pending) == _LOOK or step == total - 1:
            _take(rows, pending, step + 1 - len(pending), model, answers)
            pending = []
            if all(row.over for row in rows):
                return


def _take(
    rows: list[Written], pending: list[tuple[Tensor, Tensor]], first: int, model: Model, answers: AnswerFormat
) -> None:
    ids = torch.stack([chosen for chosen, _ in pending], dim=1).tolist()
    signals = torch.stack([signal for _, signal in pending], dim=1).tolist()
    for i, row in enumerate(rows):
        for j in range(len(pending)):
            fed = first + j + 1  # tokens fed when this one was chosen
            entropy, logprob, *_ = signals[i][j]
            if fed == row.closed:
                row.entropy = entropy
            if fed < len(row.forced) or row.over:
                continue
            _write(row, ids[i][j], logprob, model, answers)


def _write(row: Written, token: int, logprob: float, model: Model, answers: AnswerFormat) -> None:
    if token in model.eos_token_ids:
        row.over = True
        return
    row.ids.append(token)
    row.texts.append(row.decoder.add(token))
    row.logprobs.append(logprob)
    row.over = len(row.ids) >= row.limit or answers.given(row.landing.cue + "".join(row.texts))
