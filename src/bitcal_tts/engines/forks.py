"""Probing one decode at many places: its keys and values are computed once and shared by all of them.

Running prompt and text again for every probe would cost as much as the trace is long, each time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from bitcal_tts.engines.base import Decoding, Fork, Written
from bitcal_tts.engines.forward import Forward
from bitcal_tts.engines.memory import room
from bitcal_tts.engines.row import Writer
from bitcal_tts.engines.sampling import token_signals
from bitcal_tts.engines.slots import Slots

_LOOK = 4  # steps between looks at what the rows wrote
_COPIES = 2**30  # bytes of keys and values that are decoded together where the memory is the processor's
_COPIED_SHARE = 4  # elsewhere: one in so many of the bytes that are free


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
    return room(device) // _COPIED_SHARE


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
    writers = [Writer.at(place, model.tokenizer) for fork in asked for place in fork.places]
    if asked:
        _write(model, asked, writers)
    done = iter(writers)
    for fork in forks:
        yield [next(done).written for _ in fork.places]


def _write(model: Forward, forks: Sequence[Fork], writers: Sequence[Writer]) -> None:
    """Append at every place what is to be appended, and let the model write greedily until its answer is there."""
    prompts = model.encode([fork.prompt for fork in forks])
    lasts = [max(place.tokens for place in fork.places) for fork in forks]
    texts = [prompt + list(fork.tokens[:last]) for prompt, fork, last in zip(prompts, forks, lasts, strict=True)]
    at = [(i, place.tokens) for i, fork in enumerate(forks) for place in fork.places]
    lengths = [len(prompts[i]) + tokens for i, tokens in at]
    total = max(writer.most for writer in writers)
    slots = Slots(
        model, len(at), Decoding(), steps=_LOOK, longest=max(lengths), most_new=max(1, total), capture=False
    )  # fmt: skip
    try:
        logits = slots.fork(texts, [i for i, _ in at], lengths)
        ends: list[float] = token_signals(logits, logits.argmax(-1))[:, 0].tolist()
        for (i, tokens), writer in zip(at, writers, strict=True):
            if tokens == lasts[i]:
                writer.written.entropy = ends[i]
        slots.force(range(len(at)), lengths, [writer.written.forced for writer in writers])
        while total > 0 and not all(writer.writing.over for writer in writers):
            total -= slots.run(min(_LOOK, total))
            steps = slots.take()
            steps.wait()
            written = zip(writers, steps.ids.tolist(), steps.signals.swapaxes(1, 2).tolist(), strict=True)
            for writer, ids, signals in written:
                writer.take(ids, signals, model.eos_token_ids)
    finally:
        slots.release()
