"""Two engines: what the first does not settle, the second goes on with, from the same text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from short_task import short_task

from bitcal_tts import build_method
from bitcal_tts.engines.base import Decoding, Request
from bitcal_tts.engines.cascade import Cascade
from bitcal_tts.halting.handing import weight_bytes
from bitcal_tts.halting.methods import to_the_end
from bitcal_tts.traces.cascade import cascade_outcomes
from bitcal_tts.traces.outcome import Outcome
from bitcal_tts.traces.replay import outcomes
from bitcal_tts.traces.trace import TraceError


def requests(n: int, method: Any) -> list[Request]:
    task = short_task()
    return [
        Request(str(i), task.prompt(item), method, seed=i, question=item.question)
        for i, item in enumerate(task.items(n, 5))
    ]


def test_a_cascade_of_a_model_and_itself_writes_what_it_would_have_written(thinking_engine: Any) -> None:
    """Greedily the text goes on as if nothing had happened, and every token is counted once."""
    opening, close = thinking_engine.thinking
    whole = {c.id: c for c in thinking_engine.decode(requests(4, to_the_end(200)), batch_size=4)}
    method = build_method("fixed", bits=32, budget=60)
    goes_on = build_method("landed", bits=32, budget=140, opening=opening, close=close, reserve=0)
    cascade = Cascade(thinking_engine, thinking_engine, budget=200, goes_on=lambda _, left: goes_on, weights=(1.0, 4.0))
    done = {c.id: c for c in cascade.decode(requests(4, method), batch_size=4)}
    assert len(done) == 4
    handed_over = 0
    for name, one in done.items():
        assert one.text == whole[name].text
        if one.second is not None:
            handed_over += 1
            assert len(one.first.token_ids) == 60
            assert len(one.first.token_ids) + len(one.second.token_ids) == len(whole[name].token_ids)
            assert one.cost == 60 / 4 + len(one.second.token_ids)
            assert one.answer == one.second.answer
    assert handed_over == 4  # nobody stopped them


def test_an_answer_that_was_only_written_because_the_budget_ran_out_is_left_out(thinking_engine: Any) -> None:
    opening, close = thinking_engine.thinking
    whole = {c.id: c for c in thinking_engine.decode(requests(3, to_the_end(300)), batch_size=3)}
    method = build_method("landed", bits=32, budget=80, opening=opening, close=close)
    cascade = Cascade(thinking_engine, thinking_engine, budget=200)
    done = list(cascade.decode(requests(3, method), batch_size=3))
    landed = [one for one in done if one.second is not None]
    assert landed
    for one in landed:
        assert one.second is not None and one.first.landing_tokens > 0
        free = one.text[: len(one.text) - len("".join(one.second.token_texts[-one.second.landing_tokens :]))]
        assert whole[one.id].text.startswith(free if one.second.landing_tokens else one.text)
        assert one.cost == len(one.first.token_ids) + len(one.second.token_ids)  # what was left out was paid for


def test_what_is_given_up_is_handed_over_and_what_is_settled_is_not(thinking_engine: Any) -> None:
    """The paper's rule escalates where entropy is high; at a bar that nothing reaches it never does."""
    for bar, all_of_them in ((1e-9, True), (1e9, False)):
        method = build_method(
            "bitcal_tts", bits=32, budget=400, min_tokens=16, escalate_entropy=bar, stop_entropy=0.0, min_remaining=0
        )
        cascade = Cascade(thinking_engine, thinking_engine, budget=400)
        for one in cascade.decode(requests(3, method), batch_size=3):
            if all_of_them:
                assert one.second is not None and len(one.first.token_ids) == 16
            elif one.first.finish == "eos":  # it ended by itself, unsettled: the second begins anew
                assert one.second is not None and one.text == one.second.text


def test_weights_come_from_the_model_or_must_be_told(engine: Any, thinking_engine: Any) -> None:
    four = dict(engine.describe(), parameters=10, all_bits_per_weight=4.0)
    assert weight_bytes(four) == 5.0
    with pytest.raises(ValueError, match="say what a token of each model costs"):
        weight_bytes({"model": "unknown"})
    about = thinking_engine.describe()
    assert weight_bytes(about) == about["parameters"] * about["all_bits_per_weight"] / 8


def test_over_http_the_second_server_goes_on_with_the_same_text(gguf: Path, local: Any) -> None:
    """llama.cpp begins, Transformers goes on with the same weights: the text is that of one of them alone."""
    from bitcal_tts.engines.http import HttpEngine
    from bitcal_tts.engines.llama_server import OwnServer

    pytest.importorskip("xllamacpp")
    server = OwnServer(gguf, parallel=2, context=1024)
    over_http = HttpEngine(server.url, owned=server, template_options={"enable_thinking": True})
    try:
        first = Cascade(over_http, over_http, budget=80, weights=(1.0, 2.0))
        (one,) = first.decode(requests(1, build_method("fixed", bits=16, budget=40)), Decoding(), batch_size=1)
        (whole,) = over_http.decode(requests(1, to_the_end(40)), Decoding(), batch_size=1)
        assert one.second is not None
        assert one.text.startswith(whole.text)
        assert 0 < len(one.second.token_ids) <= 40
        across = Cascade(over_http, local, budget=80, weights=(1.0, 2.0))
        (other,) = across.decode(requests(1, build_method("fixed", bits=16, budget=40)), Decoding(), batch_size=1)
        assert other.second is not None and other.text.startswith(whole.text)
    finally:
        over_http.close()


def test_a_replayed_cascade_is_one_or_the_other_model_on_every_item(probed: Any) -> None:
    task, traces = short_task(), probed.read()[:24]
    opening, close = probed.description["thinking"]
    markers: dict[str, Any] = {"opening": opening, "close": close}
    cheap = build_method("truncate", bits=32, budget=224, threshold=150.0, **markers)
    dear = build_method("landed", bits=32, budget=320, **markers)
    found, alone = cascade_outcomes(traces, traces, cheap, dear, task, share=0.25)
    first: list[Outcome] = outcomes(traces, cheap, task)
    assert alone == outcomes(traces, dear, task)
    assert {one.handed_over for one in found} == {True, False}
    for one, mine, theirs in zip(found, first, alone, strict=True):
        assert one.handed_over == (mine.reason in ("budget", "reserve", "eos"))
        assert one.cost == 0.25 * mine.cost + (theirs.cost if one.handed_over else 0)
        assert one.correct == (theirs.correct if one.handed_over else mine.correct)
    with pytest.raises(TraceError, match="24 and 20, 4 of the first are not in the second"):
        cascade_outcomes(traces, traces[:20], cheap, dear, task, share=0.25)
