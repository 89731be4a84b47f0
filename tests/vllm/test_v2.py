"""The V2 processor against V2's interface: rows change places at every step, tokens stay on the device.

V2 itself has no CPU backend and cannot be run here.
"""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("vllm", reason="vLLM is not installed here: make test-vllm")

from short_task import short_task
from vllm.v1.worker.gpu.sample.logits_processor.interface import LogitsContext

from bitcal_tts.engines import vllm_v2
from bitcal_tts.engines.text import TokenTexts
from bitcal_tts.halting.exchange import Force, Tokens
from bitcal_tts.halting.methods import build_method
from bitcal_tts.halting.session import Session
from bitcal_tts.halting.signals import Signals
from bitcal_tts.tiny import models

N, BUDGET, STOP = 6, 200, 3
OPTIONS = {"threshold": 1.0, "reserve": 0, "opening": "<think>", "close": "</think>"}


@pytest.fixture(scope="module")
def model() -> Any:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = models.resolve("tiny-1m")
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval(), AutoTokenizer.from_pretrained(
        folder
    )


@torch.inference_mode()
def decode(model: Any, prompts: list[list[int]], processor: Any, eos: int) -> list[list[int]]:
    """A runner like V2's: slots, rows in another order at every step, greedy."""
    out: list[list[int]] = [[] for _ in prompts]
    alive = list(range(len(prompts)))
    for step in range(BUDGET):
        alive = alive[1:] + alive[:1]  # rows change places
        sequences = [prompts[slot] + out[slot] for slot in alive]
        rows = [model(torch.tensor([ids])).logits[0, -1].float() for ids in sequences]
        mapping = np.array(alive)
        last = torch.tensor([ids[-1] for ids in sequences])
        positions = torch.tensor([len(ids) - 1 for ids in sequences])
        lengths = np.array([len(ids) for ids in sequences])
        index = torch.tensor(mapping)
        context = LogitsContext(index, index, mapping, torch.zeros_like(index), last, positions, lengths)
        chosen = processor.apply(torch.stack(rows), context).argmax(-1).tolist()
        for slot, token in zip(list(alive), chosen, strict=True):
            out[slot].append(token)
            if token in (eos, STOP):
                alive.remove(slot)
        if not alive or step == BUDGET - 1:
            break
    return out


def test_stops_and_landings_with_rows_that_change_places(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    network, tokenizer = model
    task = short_task()
    items = task.items(N, seed=3)
    prompts = [
        tokenizer.apply_chat_template(
            [{"role": "user", "content": task.prompt(item)}], add_generation_prompt=True, enable_thinking=True,
            return_dict=False,
        )
        for item in items
    ]  # fmt: skip
    config = SimpleNamespace(
        speculative_config=None,
        model_config=SimpleNamespace(
            tokenizer=models.resolve("tiny-1m"), tokenizer_revision=None, model="tiny-1m", dtype=torch.float32
        ),
    )
    states = SimpleNamespace(prompt_len=SimpleNamespace(np=np.array([len(ids) for ids in prompts])))
    told = {"method": "stated", "bits": 16, "budget": BUDGET, "stop_token": STOP, "options": OPTIONS}
    asked = SimpleNamespace(extra_args={"bitcal": json.dumps(told)})
    for chunk in (1, 16):
        monkeypatch.setattr(vllm_v2, "CHUNK", chunk)
        watching, idle = (vllm_v2.Halting(config, states) for _ in range(2))
        assert [watching.add_request(i, asked if i % 2 else SimpleNamespace(extra_args=None)) for i in range(N)] == [
            bool(i % 2) for i in range(N)
        ]
        full = decode(network, prompts, idle, tokenizer.eos_token_id)
        done = decode(network, prompts, watching, tokenizer.eos_token_id)
        halted = 0
        for i in range(N):
            if i % 2 == 0:
                assert done[i] == full[i]
                continue
            texts = TokenTexts(tokenizer)
            pieces = [texts.add(token) for token in full[i] if token != tokenizer.eos_token_id]
            session = Session(build_method("stated", bits=16, budget=BUDGET, **OPTIONS), signals=Signals("absent"))
            directive = session.feed(Tokens(pieces))
            if not isinstance(directive, Force):
                assert done[i] == full[i]
                continue
            halted += 1
            first = next(j for j, (a, b) in enumerate(zip(done[i], full[i], strict=False)) if a != b)
            assert directive.at <= first
            assert first - directive.at < chunk + 2  # the landing may begin with what the model would have written
            assert done[i][-1] == STOP
            assert "####" in tokenizer.decode(done[i])
        assert halted >= 2


def test_speculative_decoding_is_refused() -> None:
    with pytest.raises(ValueError, match="without speculative decoding"):
        vllm_v2.Halting(SimpleNamespace(speculative_config=object()), SimpleNamespace())
