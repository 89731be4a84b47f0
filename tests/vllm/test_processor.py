"""The logits processor inside a real vLLM on a CPU: stops and landings at their tokens, others untouched."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("vllm", reason="vLLM is not installed here: make test-vllm")

from short_task import short_task

from bitcal_tts.tiny import models

pytestmark = pytest.mark.filterwarnings("ignore")  # vLLM's own are not ours to mend
N, BUDGET, STOP = 8, 300, 3


@pytest.fixture(scope="module")
def llm() -> Any:
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    from vllm import LLM

    return LLM(
        model=models.resolve("tiny-4m"), dtype="float32", enforce_eager=True, kv_cache_memory_bytes=1 << 28,
        max_model_len=1024, logits_processors=["bitcal_tts.engines.vllm:Halting"],
    )  # fmt: skip


def decode(llm: Any, settings: list[dict[str, Any] | None]) -> list[Any]:
    from vllm import SamplingParams

    task = short_task()
    items = task.items(len(settings), seed=3)
    messages = [[{"role": "user", "content": task.prompt(item)}] for item in items]
    params = [
        SamplingParams(
            temperature=0, max_tokens=BUDGET, stop_token_ids=[STOP], skip_special_tokens=False, logprobs=1,
            extra_args=None if told is None else {"bitcal": json.dumps({**told, "question": item.question})},
        )
        for told, item in zip(settings, items, strict=True)
    ]  # fmt: skip
    answers = llm.chat(messages, params, chat_template_kwargs={"enable_thinking": True}, use_tqdm=False)
    return [answer.outputs[0] for answer in answers]


@pytest.fixture(scope="module")
def full(llm: Any) -> list[Any]:
    return decode(llm, [None] * N)


THINKING = {"opening": "<think>", "close": "</think>"}


def test_requests_that_say_nothing_are_not_touched(llm: Any, full: list[Any]) -> None:
    watching = {"method": "fixed", "bits": 16, "budget": BUDGET}
    again = decode(llm, [watching if i % 2 else None for i in range(N)])
    assert [out.token_ids for out in again] == [out.token_ids for out in full]
    assert all(out.stop_reason is None for out in again)


def test_a_stop_comes_at_its_token_and_lands(llm: Any, full: list[Any]) -> None:
    """Stated answers are landed in the same request; the reserved token tells the halt from a natural end."""
    rule = {"method": "stated", "bits": 16, "budget": BUDGET, "stop_token": STOP}
    rule["options"] = {"threshold": 1.0, "reserve": 0, **THINKING}
    done = decode(llm, [rule if i % 2 else None for i in range(N)])
    halted = 0
    for i, (out, whole) in enumerate(zip(done, full, strict=True)):
        if i % 2 == 0:
            assert out.token_ids == whole.token_ids
            continue
        if out.stop_reason != STOP:
            continue
        halted += 1
        text, was = out.text, whole.text
        kept = text[: text.rindex("</think>")]
        assert was.startswith(kept.rstrip("\n")[:-1])
        assert "####" in text[len(kept) :]
        assert len(out.token_ids) < len(whole.token_ids)
    assert halted >= 2


def test_what_is_decided_is_what_a_replay_decides(llm: Any, full: list[Any]) -> None:
    """The same session on the full text, fed afterwards, stops at the same token."""
    from bitcal_tts.engines.text import TokenTexts
    from bitcal_tts.halting.exchange import End, Force, Tokens
    from bitcal_tts.halting.methods import build_method
    from bitcal_tts.halting.session import Session
    from bitcal_tts.halting.signals import Signals

    options = {"threshold": 2.0, "reserve": 0, **THINKING}
    rule = {"method": "stated", "bits": 16, "budget": BUDGET, "stop_token": STOP, "options": options}
    done = decode(llm, [rule] * N)
    tokenizer = llm.get_tokenizer()
    for out, whole in zip(done, full, strict=True):
        texts = TokenTexts(tokenizer)
        pieces = [texts.add(token) for token in whole.token_ids if token != tokenizer.eos_token_id]
        session = Session(build_method("stated", bits=16, budget=BUDGET, **options), signals=Signals("absent"))
        directive = session.feed(Tokens(pieces))
        if isinstance(directive, Force | End) and getattr(directive, "decision", None) is not None:
            assert list(out.token_ids[: directive.at]) == list(whole.token_ids[: directive.at])
            assert out.stop_reason == STOP
            assert list(out.token_ids[directive.at :]) != list(whole.token_ids[directive.at :])
        else:
            assert out.token_ids == whole.token_ids


@pytest.mark.parametrize(
    ("told", "message"),
    [
        ("{", "bitcal must be JSON"),
        ('"complete"', "must be an object"),
        ('{"method": "complete", "bits": 16, "budget": 9, "temperature": 1}', "not temperature"),
        ('{"method": "complete"}', "lacks bits, budget"),
        ('{"method": "compleat", "bits": 16, "budget": 9}', "compleat"),
        ('{"method": "settled", "bits": 4, "budget": 9, "options": {"profile": "/etc/passwd"}}', "BITCAL_PROFILES"),
        ('{"method": ["complete"], "bits": 4, "budget": 9}', "bitcal.method must be text"),
        ('{"method": "complete", "bits": 4, "budget": 9, "options": [1]}', "bitcal.options must be an object"),
        ('{"method": "complete", "bits": 4, "budget": 9, "stop_token": -1}', "must be a token's id"),
        ('{"method": "complete", "bits": 4, "budget": 9, "declare": {"colour": 1}}', "cannot be declared"),
        ('{"method": "deer", "bits": 16, "budget": 9, "options": {"threshold": 0.9}}', "needs a probe"),
        ('{"method": "oracle", "bits": 16, "budget": 9}', "exists in replay only"),
    ],
)
def test_bad_settings_are_refused_with_their_reason(llm: Any, told: str, message: str) -> None:
    from vllm import SamplingParams
    from vllm.exceptions import VLLMValidationError

    with pytest.raises(VLLMValidationError, match=message):
        llm.generate(["x"], SamplingParams(max_tokens=4, extra_args={"bitcal": told}), use_tqdm=False)


def test_profiles_are_named_not_pathed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from bitcal_tts.engines.watching import Settings

    (tmp_path / "served").mkdir()
    (tmp_path / "secret.json").write_text("{}")
    (tmp_path / "served/broken.json").write_text("{")
    monkeypatch.setenv("BITCAL_PROFILES", str(tmp_path / "served"))

    def asking(name: str) -> dict[str, Any]:
        return {"method": "settled", "bits": 4, "budget": 9, "options": {"profile": name}}

    for name in ("../secret", "/etc/passwd", "none", "..", ""):
        with pytest.raises(ValueError, match="there is no profile"):
            Settings(asking(name))
    with pytest.raises(ValueError, match="'broken' on the server cannot be read"):
        Settings(asking("broken"))


def test_what_does_not_hold_here_runs_to_its_end(llm: Any, full: list[Any]) -> None:
    """Neither a conflicting declaration nor a token that does not exist may end the engine."""
    lies = {"method": "complete", "bits": 16, "budget": BUDGET, "declare": {"engine": "another"}}
    beyond = {"method": "complete", "bits": 16, "budget": BUDGET, "stop_token": 10**6}
    done = decode(llm, [lies, beyond, *[None] * (N - 2)])
    assert done[0].token_ids == full[0].token_ids
    assert len(done[1].token_ids) <= len(full[1].token_ids)
    assert [out.token_ids for out in done[2:]] == [out.token_ids for out in full[2:]]
