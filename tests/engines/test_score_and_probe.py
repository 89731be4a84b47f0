"""Teacher forcing gives the signals of decoding; forks give the answers of running everything again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bitcal_tts.engines.base import Fork, Place, Request
from bitcal_tts.halting.answers import FORMATS, MarkedText
from bitcal_tts.halting.landing import Landing
from bitcal_tts.halting.methods import to_the_end
from bitcal_tts.tasks import load_task


def test_scoring_a_decode_gives_its_own_signals(engine: Any, store: Any) -> None:
    task, traces = load_task(), store.read()[:8]
    texts = [(task.prompt(t.item), t.token_ids.tolist()) for t in traces]
    for trace, score in zip(traces, engine.score(texts, batch_size=3), strict=True):
        for name in ("entropies", "logprobs", "margins", "top_logprobs"):
            assert getattr(score, name) == pytest.approx(getattr(trace, name), abs=2e-3)
        assert score.hidden_similarities == pytest.approx(trace.hidden_similarities, abs=1e-4)
        assert score.agrees.all()


def test_another_precision_shifts_the_same_text(store: Any, tiny: str) -> None:
    from bitcal_tts.engines.checkpoint import load_checkpoint
    from bitcal_tts.engines.transformers import TransformersEngine
    from bitcal_tts.evaluation.signal_card import shifts

    task, traces = load_task(), store.read()[:8]
    texts = [(task.prompt(t.item), t.token_ids.tolist()) for t in traces]
    full, coarse = (
        list(TransformersEngine(load_checkpoint(tiny, bits=bits, name="tiny-1m", compute_dtype="float32")).score(texts))
        for bits in (32, 2)
    )
    told = shifts(full, coarse)
    assert told["logprobs"]["shift"] < told["logprobs"]["shift_high"] < 0  # it likes the text less
    assert told["greedy_agreement"] < 1.0
    assert shifts(full, full)["entropies"]["shift"] == 0.0


def test_a_fork_answers_as_a_prompt_with_everything_before_it(thinking_engine: Any, probed: Any) -> None:
    task, trace = load_task(), probed.read()[0]
    answers = FORMATS["gsm8k"]
    where = [Place(n, Landing("\n</think>\n\n", "####"), answers) for n in (5, 40, len(trace) // 2)]
    (written,) = thinking_engine.probe([Fork(task.prompt(trace.item), trace.token_ids.tolist(), where)])
    for place, one in zip(where, written, strict=True):
        forced = [
            token
            for text in place.landing
            for token in thinking_engine.tokenizer(text, add_special_tokens=False)["input_ids"]
        ]
        prefix = [*trace.token_ids[: place.tokens].tolist(), *forced]
        (again,) = thinking_engine.decode([Request("x", task.prompt(trace.item), to_the_end(24), prefix=prefix)])
        assert again.text.startswith("".join(one.texts))
        assert one.forced == forced
        assert np.allclose(one.logprobs, again.logprobs[: len(one.logprobs)], atol=2e-3)
        assert one.probe().n_tokens == len(forced) + len(one.ids)


def test_a_landing_without_room_adds_nothing(thinking_engine: Any, probed: Any) -> None:
    task, trace = load_task(), probed.read()[0]
    place = Place(20, Landing("\n</think>\n\n", "####"), FORMATS["gsm8k"], limit=3)
    ((written,),) = thinking_engine.probe([Fork(task.prompt(trace.item), trace.token_ids.tolist(), [place])])
    assert written.ids == []


def test_many_places_are_probed_a_few_at_a_time(thinking_engine: Any, probed: Any) -> None:
    task, traces = load_task(), probed.read()[:3]
    answers = FORMATS["gsm8k"]
    forks = [
        Fork(
            task.prompt(t.item),
            t.token_ids.tolist(),
            [Place(n, Landing("\n", "####"), answers) for n in range(4, 40, 4)],
        )
        for t in traces
    ]
    together = list(thinking_engine.probe(forks, batch_size=100))
    apart = list(thinking_engine.probe(forks, batch_size=4))
    assert [[w.ids for w in fork] for fork in apart] == [[w.ids for w in fork] for fork in together]


def test_an_empty_list_of_places_is_fine(thinking_engine: Any) -> None:
    assert list(thinking_engine.probe([Fork("x", [1, 2], [])])) == [[]]


def test_the_entropy_after_the_closing_is_that_of_the_next_token(thinking_engine: Any, probed: Any) -> None:
    """Where the thinking is closed and nothing is cued: not a token earlier, not a token later."""
    task, trace = load_task(), probed.read()[0]
    landing = Landing("\n</think>\n\n", "####")
    places = [Place(n, landing, FORMATS["gsm8k"]) for n in (9, 40, len(trace))]
    (written,) = thinking_engine.probe([Fork(task.prompt(trace.item), trace.token_ids.tolist(), places)])
    closing = thinking_engine.tokenizer(landing.closing, add_special_tokens=False)["input_ids"]
    for place, one in zip(places, written, strict=True):
        prefix = [*trace.token_ids[: place.tokens].tolist(), *closing]
        (after,) = thinking_engine.decode([Request("x", task.prompt(trace.item), to_the_end(1), prefix=prefix)])
        probe = one.probe()
        entropy = after.entropies[0] if after.entropies else None  # none where the model would end there
        assert entropy is None or probe.close_entropy == pytest.approx(entropy, abs=1e-3)
        assert probe.close_tokens == len(closing)
    assert len({round(one.probe().close_entropy, 4) for one in written}) > 1


def test_the_twenty_likeliest_tokens_are_averaged() -> None:
    import torch

    from bitcal_tts.engines.sampling import token_signals

    logits = torch.randn(3, 500, generator=torch.Generator().manual_seed(0))
    logp = torch.log_softmax(logits.double(), -1).sort(descending=True).values
    found = token_signals(logits, torch.tensor([0, 1, 2]))
    assert found[:, 3].numpy() == pytest.approx(logp[:, :20].mean(-1).numpy(), abs=1e-5)
    assert found[:, 2].numpy() == pytest.approx((logp[:, 0] - logp[:, 1]).numpy(), abs=1e-5)


def test_each_place_is_written_at_in_its_own_format(thinking_engine: Any, probed: Any) -> None:
    """One of them is content with a single token."""

    class OneToken(MarkedText):
        name = "one_token"

        def given(self, text: str) -> bool:
            return True

    task, trace = load_task(), probed.read()[0]
    landing = Landing("\n</think>\n\n", "####")
    formats = [FORMATS["gsm8k"], OneToken(), FORMATS["gsm8k"]]
    places = [Place(60, landing, format) for format in formats]
    (written,) = thinking_engine.probe([Fork(task.prompt(trace.item), trace.token_ids.tolist(), places)])
    assert len(written[1].ids) == 1 < len(written[0].ids) == len(written[2].ids)
