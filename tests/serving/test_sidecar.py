"""The sidecar end to end: the official client, a real llama.cpp server, answers, caps, usage, and what is passed on."""

from __future__ import annotations

import argparse
import json
import logging
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import httpx2
import pytest
from short_task import short_task
from sidecar import Running

from bitcal_tts.calibration.store import load_profile, save_profile
from bitcal_tts.commands import serve
from bitcal_tts.commands.served import _choose_budget, policy_of
from bitcal_tts.engines.base import Request
from bitcal_tts.engines.gguf import export_gguf
from bitcal_tts.engines.http import HttpEngine
from bitcal_tts.engines.llama_server import OwnServer
from bitcal_tts.halting.answers import FORMATS
from bitcal_tts.halting.methods import build_method, to_the_end
from bitcal_tts.halting.profile import ProfileError
from bitcal_tts.serving.asked import read_asked
from bitcal_tts.serving.generation import Generation
from bitcal_tts.serving.policy import Planner, Policy
from bitcal_tts.serving.upstream import Upstream
from bitcal_tts.tiny import models

BUDGET = 320
THINKING: dict[str, Any] = {"opening": "<think>", "close": "</think>"}


def problem(i: int = 0) -> str:
    task = short_task()
    return task.prompt(task.items(i + 1, seed=3)[i])


def asked(i: int = 0, **more: Any) -> dict[str, Any]:
    return {"model": "any", "messages": [{"role": "user", "content": problem(i)}], "temperature": 0, **more}


def slots_in_use(url: str) -> int:
    with urllib.request.urlopen(f"{url}/slots", timeout=5) as answer:
        return sum(bool(slot["is_processing"]) for slot in json.load(answer))


def becomes_idle(url: str) -> bool:
    for _ in range(50):
        if slots_in_use(url) == 0:
            return True
        time.sleep(0.1)
    return False


def direct(running: Any, i: int, method: Any) -> Any:
    (done,) = running.engine.decode([Request("0", problem(i), method, question=problem(i))])
    return done


def test_an_answer_is_stopped_landed_and_accounted_for(client: Any, running: Any, upstream_url: str) -> None:
    """As the engine stops it, with the thinking apart, one uninterrupted answer, and a usage that is right."""
    method = build_method("stated", bits=16, budget=BUDGET, answers="gsm8k", **THINKING)
    halted = 0
    for i in range(4):
        raw = client.chat.completions.with_raw_response.create(**asked(i))
        assert raw.headers["x-bitcal"] == "controlled: stated"
        told = raw.parse()
        there = direct(running, i, method)
        message, account = told.choices[0].message, told.bitcal
        whole = f"<think>\n{message.reasoning_content}</think>\n\n{message.content}"
        assert whole == there.text
        assert told.usage.completion_tokens == len(there.token_ids) == account["used"]
        assert told.usage.prompt_tokens == there.prompt_tokens
        assert told.usage.total_tokens == there.prompt_tokens + len(there.token_ids)
        assert account["method"] == "stated" and account["honoured"] and account["cap"] == BUDGET
        assert account["answer"] == there.answer
        if there.finish == "halted":
            halted += 1
            assert account["step"] == there.decision.tokens < account["used"]
            assert "####" in message.content and told.choices[0].finish_reason == "stop"
    assert halted >= 2
    assert becomes_idle(upstream_url)


def test_a_stream_is_the_same_answer(client: Any) -> None:
    whole = client.chat.completions.create(**asked(1))
    thought = said = ""
    events = []
    for event in client.chat.completions.create(**asked(1), stream=True, stream_options={"include_usage": True}):
        events.append(event)
        if event.choices:
            delta = event.choices[0].delta
            thought += getattr(delta, "reasoning_content", None) or ""
            said += delta.content or ""
    assert (thought, said) == (whole.choices[0].message.reasoning_content, whole.choices[0].message.content)
    assert events[0].choices[0].delta.role == "assistant"
    assert events[-2].choices[0].finish_reason == "stop" and events[-2].bitcal == whole.bitcal
    assert events[-1].usage == whole.usage and not events[-1].choices


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
def test_a_generation_is_asked_for_by_post(running: Any, path: str) -> None:
    answer = running.get(path)
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
    assert answer.json()["error"]["message"] == f"GET is not for {path}: POST a request to it, as OpenAI's API has it"


def test_answers_name_the_model_as_the_server_does(running: Any, client: Any) -> None:
    (listed,) = client.models.list()
    answer = client.chat.completions.create(**asked(0, max_tokens=8))
    assert "bitcal" in answer.model_dump() and answer.model == listed.id


def test_the_usual_budget_leaves_room_for_prompts(
    upstream_url: str, start: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """Otherwise no request has all of it, and nothing can be learned from any or promised for one."""
    with closing(start("--risk", "0.05", "--state", "usual")) as running, HttpEngine(upstream_url) as engine:
        assert engine.max_positions == 2048
        answer = httpx2.post(
            f"{running.url}/v1/chat/completions", trust_env=False, timeout=60,
            json={"messages": [{"role": "user", "content": "Tom has 3 apples and buys 4. How many?"}]},
        ).json()  # fmt: skip
        assert answer["bitcal"]["cap"] == 1536 and answer["bitcal"]["method"] == "autopilot"
        (pilot,) = running.get("/bitcal/autopilot").json()["pilots"]
        assert pilot["requests"] == 1
    assert "leaves no room" not in capsys.readouterr().err
    with closing(start("--budget", "2048")):
        assert "a budget of 2,048 tokens leaves no room for a prompt in 2,048 positions" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("positions", "budget", "said"),
    [
        (2048, 1536, ""),
        (40_960, 30_720, ""),
        (1 << 20, 32_768, ""),
        (None, 4096, "a controlled request ends at 4,096 tokens, unless --budget says otherwise"),
    ],
)
def test_the_usual_budget_cuts_no_long_thinking(
    positions: int | None, budget: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Three quarters of what there is room for, as far as that is known: a client need not know of a cap."""
    args: Any = SimpleNamespace(budget=None)
    engine: Any = SimpleNamespace(max_positions=positions)
    _choose_budget(args, engine)
    assert args.budget == budget
    told = " ".join(capsys.readouterr().err.split())
    assert said in told if said else not told


def test_who_is_passed_on_is_asked_in_the_same_style(client: Any) -> None:
    off = {"bitcal": {"off": True}}
    raw = client.chat.completions.with_raw_response.create(**asked(0, max_tokens=8), extra_body=off)
    assert raw.headers["x-bitcal"] == "passed on: the request says so"
    assert raw.parse().choices[0].message.content.startswith("<think>")
    plain = {**off, "chat_template_kwargs": {"enable_thinking": False}}
    told = client.chat.completions.create(**asked(0, max_tokens=8), extra_body=plain)
    assert "<think>" not in told.choices[0].message.content


def test_a_model_that_is_asked_to_think_where_nobody_expects_it_is_left_alone(upstream_url: str) -> None:
    def build(name: str | None, profile: str | None, budget: int) -> Any:
        return build_method("stated", bits=16, budget=budget, answers="gsm8k")

    with HttpEngine(upstream_url, template_options={"enable_thinking": False}) as engine:
        assert engine.thinking is None and engine.thinking_with({}) is None
        planner = Planner(Upstream(engine), Policy(build=build), None, None)
        body = {"messages": [{"role": "user", "content": problem()}]}
        for options, markers in (({}, None), ({"enable_thinking": True}, ("<think>", "</think>"))):
            one = read_asked({**body, "chat_template_kwargs": options}, chat=True, temperature=0)
            assert not isinstance(one, str)
            assert planner.thinking(one) == markers
            prompt = planner.prompt(one)
            if markers is None:
                assert planner.course(one, prompt, None).method == "stated"
            else:
                with pytest.raises(ValueError, match="serve --style thinking"):
                    planner.course(one, prompt, planner.thinking(one))


@pytest.mark.parametrize("cap", [1, 7, 40, 90])
def test_the_cap_is_a_contract(client: Any, cap: int) -> None:
    told = client.chat.completions.create(**asked(0, max_tokens=cap))
    assert told.usage.completion_tokens == told.bitcal["used"] <= cap == told.bitcal["cap"]
    assert told.bitcal["honoured"]


def test_the_smallest_cap_wins(client: Any) -> None:
    body = {"bitcal": {"budget": 30}}
    assert client.chat.completions.create(**asked(0, max_tokens=60), extra_body=body).bitcal["cap"] == 30
    assert client.chat.completions.create(**asked(0, max_tokens=20), extra_body=body).bitcal["cap"] == 20


@pytest.mark.parametrize(
    ("more", "told"),
    [({}, 2), ({"method": "fixed"}, 2), ({"method": "cusum", "budget": 40}, 20), ({"trace": True}, 20)],
)
def test_likeliest_tokens_are_asked_for_where_somebody_reads_them(
    client: Any, running: Any, monkeypatch: pytest.MonkeyPatch, more: dict[str, Any], told: int
) -> None:
    """A server sorts its vocabulary for them: what only reads the text goes without."""
    seen: list[int] = []
    request = running.engine.wire.request

    def noted(standing: Any, limit: int, top: int, *rest: Any) -> Any:
        seen.append(top)
        return request(standing, limit, top, *rest)

    monkeypatch.setattr(running.engine.wire, "request", noted)
    events = list(client.chat.completions.create(**asked(1), stream=True, extra_body={"bitcal": more}))
    assert seen[0] == told
    entropies = [
        entropy for event in events for _, entropy, _ in (getattr(event, "bitcal", None) or {}).get("tokens", [])
    ]
    assert any(entropy is not None for entropy in entropies) == more.get("trace", False)


def test_a_text_is_continued(client: Any, running: Any) -> None:
    told = client.completions.create(model="any", prompt="<think>\nSo we have 3 + 4 = 7.", max_tokens=40, temperature=0)
    assert told.usage.completion_tokens <= 40 and told.bitcal["method"] == "stated"
    assert isinstance(told.choices[0].text, str) and told.choices[0].text


def test_who_names_another_method_gets_it(client: Any, running: Any) -> None:
    full = client.chat.completions.create(**asked(0), extra_body={"bitcal": {"method": "fixed"}})
    there = direct(running, 0, to_the_end(BUDGET))
    assert full.usage.completion_tokens == len(there.token_ids) and full.bitcal["reason"] == there.finish
    probing = client.chat.completions.create(**asked(0), extra_body={"bitcal": {"method": "deer"}})
    assert probing.bitcal["method"] == "deer" and probing.bitcal["honoured"]
    assert probing.bitcal["probe_tokens"] > 0


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"n": 2}, "it has n=2"),
        ({"tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}]}, "it has tools"),
        ({"response_format": {"type": "json_object"}}, "it has response_format"),
        ({"stop": ["x"]}, "it has stop"),
        ({"presence_penalty": 0.5}, "it has presence_penalty=0.5"),
        ({"extra_body": {"bitcal": {"off": True}}}, "the request says so"),
        ({"extra_body": {"grammar": 'root ::= "a"'}}, "it has grammar"),
        ({"extra_body": {"bitcal": {"method": "bitcal_tts"}}}, "needs the hidden state"),
        ({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}, "not the user's"),
    ],
)
def test_what_cannot_be_controlled_is_passed_on_and_says_so(client: Any, more: dict[str, Any], why: str) -> None:
    raw = client.chat.completions.with_raw_response.create(**{**asked(0, max_tokens=8), **more})
    assert raw.headers["x-bitcal"].startswith("passed on: ") and why in raw.headers["x-bitcal"]
    told = raw.parse()
    assert told.choices and not hasattr(told, "bitcal")


@pytest.mark.parametrize(
    ("asks", "cap"),
    [
        ({}, 5),
        ({"max_tokens": 3}, 3),
        ({"max_tokens": 9}, 5),
        ({"max_tokens": -1}, 5),  # without end, for llama.cpp
        ({"max_completion_tokens": 9}, 5),
    ],
)
def test_the_cap_that_a_request_names_goes_with_what_is_passed_on(running: Any, asks: dict[str, int], cap: int) -> None:
    body = {**asked(0), "bitcal": {"off": True, "budget": 5}, **asks}
    status, told = post(running.url, json.dumps(body).encode())
    assert status == 200 and told["usage"]["completion_tokens"] == cap
    body["bitcal"]["budget"] = 0
    status, told = post(running.url, json.dumps(body).encode())
    assert status == 400 and "bitcal.budget must be a whole number of at least 1" in told["error"]["message"]


def test_everything_else_is_passed_on(client: Any, running: Any) -> None:
    assert client.models.list().data[0].id
    with urllib.request.urlopen(f"{running.url}/props", timeout=5) as answer:
        assert "passed on" in answer.headers["x-bitcal"] and json.load(answer)["total_slots"] == 4


def post(url: str, body: bytes, path: str = "/v1/chat/completions", **headers: str) -> tuple[int, dict[str, Any]]:
    request = urllib.request.Request(f"{url}{path}", body, {"Content-Type": "application/json", **headers})
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"{", "the body is not JSON"),
        (b"[" * 100_000, "the body is not JSON"),
        (b"[]", "must be a JSON object"),
        (b"\xff", "the body is not JSON"),
        (b'{"messages": []}', "messages must be a list"),
        (b'{"messages": [{"content": "x"}]}', "an object with role and content"),
        (b'{"messages": [{"role": "user", "content": "x"}], "max_tokens": 0}', "max_tokens must be a whole number"),
        (b'{"messages": [{"role": "user", "content": "x"}], "temperature": "hot"}', "temperature must be a number"),
        (b'{"messages": [{"role": "user", "content": "x"}], "temperature": -1}', "temperature must be"),
        (b'{"messages": [{"role": "user", "content": "x"}], "bitcal": {"metod": "x"}}', "not metod"),
        (b'{"messages": [{"role": "user", "content": "x"}], "bitcal": 3}', "bitcal must be an object"),
        (b'{"messages": [{"role": "user", "content": "x"}], "bitcal": {"method": "x"}}', "unknown method 'x'"),
        (b'{"messages": [{"role": "user", "content": "x"}], "bitcal": {"profile": "../x"}}', "no profile '../x'"),
        (b'{"messages": [{"role": "user", "content": "x"}], "bitcal": {"method": "settled"}}', "needs a profile"),
        (b'{"messages": [{"role": "user", "content": "\\ud800"}]}', "half a character"),
        (b'{"messages": [{"role": "\\ud800", "content": "x"}]}', "half a character"),
        (b'{"messages": [{"role": "user", "content": "x"}], "bitcal": {"\\ud800": 1}}', "half a character"),
        (b'{"messages": [{"role": "user", "content": "x"}], "chat_template_kwargs": {"a": NaN}}', "is not JSON"),
        (
            b'{"messages": [{"role": "user", "content": "x"}], "temperature": 1' + b"0" * 400 + b"}",
            "too large a number",
        ),
        (b'{"messages": [{"role": "user", "content": "' + b"word " * 3000 + b'"}]}', "and the model takes 2,048"),
    ],
)
def test_a_bad_request_is_told_what_is_wrong(running: Any, body: bytes, message: str) -> None:
    status, told = post(running.url, body)
    assert status == 400, told
    assert message in told["error"]["message"]


def test_nobody_comes_in_by_another_name_or_without_the_key(running: Any, start: Any) -> None:
    status, told = post(running.url, b"{}", Host="evil.example")
    assert status == 421 and "evil.example" in told["error"]["message"]
    locked = start("--api-key", "secret")
    try:
        body = json.dumps(asked(0, max_tokens=4)).encode()
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "secre"}):
            assert post(locked.url, body, **headers)[0] == 401
        assert post(locked.url, body, Authorization="Bearer secret")[0] == 200
        for path in ("/metrics", "/healthz"):
            with pytest.raises(urllib.error.HTTPError, match="401"):
                urllib.request.urlopen(f"{locked.url}{path}", timeout=5)
    finally:
        locked.close()


def test_too_much_is_refused(running: Any) -> None:
    status, told = post(running.url, b" " * ((1 << 22) + 1))
    assert status == 413 and "4,194,304 bytes" in told["error"]["message"]


def test_a_client_that_hangs_up_frees_the_slot(client: Any, running: Any, upstream_url: str) -> None:
    stream = client.chat.completions.create(**asked(0), stream=True, extra_body={"bitcal": {"method": "fixed"}})
    for n, _ in enumerate(stream):
        if n == 5:
            break
    stream.close()
    assert becomes_idle(upstream_url)
    for _ in range(50):
        if _value(running, "bitcal_open_requests") == 0:
            break
        time.sleep(0.1)
    assert _value(running, "bitcal_open_requests") == 0


def test_what_is_passed_on_ends_where_the_client_hangs_up(running: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the upstream has said a word: one that never does stands for a long generation in one piece."""
    began, ended = threading.Event(), threading.Event()

    async def never(*_: Any) -> None:
        began.set()
        try:
            await anyio.sleep_forever()
        finally:
            ended.set()

    monkeypatch.setattr(running.sidecar._upstream, "passed_on", never)
    body = json.dumps({**asked(0), "bitcal": {"off": True}}).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", running.port)) as connection:
        connection.sendall(head.encode() + body)
        assert began.wait(30)
    assert ended.wait(30)


def test_a_client_that_gives_up_waiting_is_no_error(running: Any, upstream_url: str) -> None:
    said: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    log = logging.getLogger("uvicorn.error")
    log.addHandler(handler)
    body = json.dumps({**asked(0), "bitcal": {"method": "fixed"}}).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n\r\n"
    before = _value(running, "bitcal_requests_total")
    try:
        with socket.create_connection(("127.0.0.1", running.port)) as gone:
            gone.sendall(head.encode() + body)
        for _ in range(100):
            if _value(running, "bitcal_requests_total") > before and _value(running, "bitcal_open_requests") == 0:
                break
            time.sleep(0.1)
        assert becomes_idle(upstream_url)
    finally:
        log.removeHandler(handler)
    assert _value(running, "bitcal_requests_total") == before + 1 and said == []


def test_a_profile_of_something_else_is_refused_at_the_start(running: Any) -> None:
    """Not at the first request: what every request has in common is known by then."""
    profile = Path(__file__).parents[2] / "results/box/profiles/tiny-15m-0.01.json"
    parser = argparse.ArgumentParser()
    serve.add_options(parser)
    args = parser.parse_args(["--upstream", "any", "--profile", str(profile), "--budget", "1536"])
    with pytest.raises(ProfileError, match=r"does not hold here: fitted for engine 'transformers', this is 'llama.cpp"):
        policy_of(args, running.engine)


def test_a_profile_of_logs_is_never_served(running: Any, tmp_path: Path) -> None:
    own = load_profile(Path(__file__).parents[2] / "results/box/profiles/tiny-15m-0.01.json")
    save_profile(tmp_path / "p.json", replace(own, identity=own.identity.with_known(engine="log")))
    parser = argparse.ArgumentParser()
    serve.add_options(parser)
    args = parser.parse_args(["--upstream", "any", "--profile", str(tmp_path / "p.json")])
    with pytest.raises(ProfileError, match="was fitted on logs, .* is never served. Fit one on what was recorded"):
        policy_of(args, running.engine)


@pytest.mark.parametrize(
    ("chat", "messages", "system", "template"),
    [
        (True, [], None, None),
        (True, [{"role": "system", "content": "You are a pirate."}], "You are a pirate.", None),
        (True, [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}], "2 earlier messages", None),
        (False, [], None, "a raw prompt"),
    ],
)
def test_a_promise_is_checked_against_what_a_client_really_asks(
    upstream_url: str, chat: bool, messages: list[Any], system: str | None, template: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """A profile that was fitted on plain questions promises nothing for a pirate, a conversation or a raw prompt."""
    seen: list[Any] = []
    monkeypatch.setattr(
        "bitcal_tts.halting.session.Session.__init__", lambda self, *_, identity, **__: seen.append(identity)
    )
    body = {"messages": [*messages, {"role": "user", "content": problem()}]} if chat else {"prompt": problem()}
    one = read_asked(body, chat=chat, temperature=0)
    assert not isinstance(one, str)
    with HttpEngine(upstream_url) as engine:
        planner = Planner(
            Upstream(engine), Policy(build=lambda *_: build_method("fixed", bits=16, budget=64)), None, None
        )
        planner.course(one, planner.prompt(one), planner.thinking(one))
        usual = engine.identity(one.decoding)
    (identity,) = seen
    assert identity["system"] == system
    assert identity["template_sha256"] == (template or usual["template_sha256"])
    assert set(usual.differences(identity)) - set(usual.differences(usual)) == (
        {"system"} if system else {"template_sha256"} if template else set()
    )


def test_a_log_names_what_differs_and_nothing_that_a_client_said(
    running: Any, client: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refused(*_: Any) -> Any:
        raise ProfileError(
            "fitted for no system, this is 'my secret'; it takes a profile that was fitted for this", ["system", "task"]
        )

    monkeypatch.setattr(Planner, "course", refused)
    monkeypatch.setattr(logging.getLogger("bitcal.serve"), "propagate", True)
    with caplog.at_level(logging.INFO, logger="bitcal.serve"):
        raw = client.chat.completions.with_raw_response.create(**asked(0, max_tokens=8))
    assert raw.headers["x-bitcal"].startswith("passed on: fitted for no system")
    (told,) = (record for record in caplog.records if record.getMessage() == "passed on")
    assert told.__dict__["differs"] == ["system", "task"]
    assert "my secret" not in str(told.__dict__)


@pytest.mark.parametrize("stream", [False, True])
def test_what_the_sidecar_itself_takes_is_counted_for_every_piece(
    running: Any, client: Any, monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    took, read = Generation.took, list[float]()

    def a_second_more(generation: Generation) -> float:
        read.append(took(generation))
        return 1.0

    monkeypatch.setattr(Generation, "took", a_second_more)
    names = ("bitcal_own_seconds_per_token_count", "bitcal_own_seconds_per_token_sum")
    before = [_value(running, name) for name in names]
    answer = client.chat.completions.create(**asked(0, max_tokens=24), stream=stream)
    if stream:
        assert list(answer)
    pieces, seconds = (_value(running, name) - was for name, was in zip(names, before, strict=True))
    assert 12 <= pieces == len(read) <= 25  # some tokens are not a piece of their own
    assert seconds >= pieces  # reading and judging, not the wording alone
    assert sum(second > 0 for second in read) >= len(read) - 1  # a landing puts its own words in


def _value(running: Any, name: str) -> float:
    with urllib.request.urlopen(f"{running.url}/metrics", timeout=5) as answer:
        lines = answer.read().decode().splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith((f"{name} ", f"{name}{{")))


def test_what_happens_is_counted(client: Any, running: Any) -> None:
    before = _value(running, "bitcal_requests_total"), _value(running, "bitcal_tokens_total")
    used = client.chat.completions.create(**asked(2)).usage.completion_tokens
    after = _value(running, "bitcal_requests_total"), _value(running, "bitcal_tokens_total")
    assert after[0] == before[0] + 1 and after[1] >= before[1] + used
    with urllib.request.urlopen(f"{running.url}/healthz", timeout=5) as answer:
        assert json.load(answer) == {"status": "ok"}


@contextmanager
def of_its_own(path: Path) -> Iterator[tuple[OwnServer, Running]]:
    """A server that no other test needs, with a small model at this path, and a sidecar before it."""
    export_gguf(models.resolve("tiny-1m"), "F16", path)
    own = OwnServer(path, parallel=2, context=1024, threads=1)
    one = Running(own.url, "--method", "stated", "--budget", "64")
    try:
        yield own, one
    finally:
        one.close()
        own.close()


def test_an_upstream_that_is_gone_is_told_in_one_line(tmp_path: Path) -> None:
    with of_its_own(tmp_path / "tiny.gguf") as (own, one):
        body = json.dumps(asked(0)).encode()
        assert post(one.url, body)[0] == 200
        own.close()
        for more in (asked(0), asked(0, stream=True), asked(0, n=2)):
            status, told = post(one.url, json.dumps(more).encode())
            assert status == 502 and told["error"]["type"] == "upstream_error"
            assert "127.0.0.1" not in told["error"]["message"] and "\n" not in told["error"]["message"]
        assert _value(one, "bitcal_open_requests") == 0


def test_too_many_at_once_and_too_long_are_refused(start: Any) -> None:
    few = start("--max-open", "1", "--method", "fixed", "--budget", "320")
    few.sidecar._policy = replace(few.sidecar._policy, limits=replace(few.sidecar._policy.limits, seconds=0.05))
    try:
        status, told = post(few.url, json.dumps(asked(0)).encode())
        assert status == 502 and "took longer than 0.05 seconds" in told["error"]["message"]
        few.sidecar._places.total_tokens = 0
        status, told = post(few.url, json.dumps(asked(0)).encode())
        assert status == 429 and "1 requests are open already" in told["error"]["message"]
    finally:
        few.close()


def gives_up(budget: int) -> Any:
    """Gives up every trace once its window is full: a method that always escalates."""
    return build_method("deepconf", bits=16, budget=budget, threshold=-1e9, window=16, **THINKING)


def halts_by(one: Running, method: Any) -> None:
    one.sidecar._policy = replace(one.sidecar._policy, build=lambda *_: method)


def escalating(start: Any, second: OwnServer) -> Running:
    one: Running = start("--budget", str(BUDGET), "--escalate-to", second.url)
    halts_by(one, gives_up(BUDGET))
    return one


def test_what_is_escalated_goes_on_at_the_second_upstream(start: Any, tmp_path: Path) -> None:
    """The same text is continued there, under the same cap, and the response says so."""
    path = tmp_path / "second.gguf"
    export_gguf(models.resolve("tiny-4m"), "Q8_0", path)
    second = OwnServer(path, parallel=2, context=1024, threads=1)
    one = escalating(start, second)
    try:
        status, told = post(one.url, json.dumps(asked(0)).encode())
        assert status == 200
        account = told["bitcal"]
        assert account["escalated"] and account["step"] == 16 and account["escalated_tokens"] > 20
        assert account["used"] == told["usage"]["completion_tokens"] == 16 + account["escalated_tokens"]
        assert account["honoured"] and account["used"] <= BUDGET
        message = told["choices"][0]["message"]
        begun = direct(one, 0, to_the_end(16)).text.removeprefix("<think>\n")
        assert message["reasoning_content"].startswith(begun)
        assert "####" in message["content"]
        assert account["answer"] == FORMATS["gsm8k"].value(message["content"]) is not None
        assert _value(one, 'bitcal_tokens_total{kind="answered"}') == account["used"]
        halts_by(one, gives_up(30))
        status, told = post(one.url, json.dumps(asked(0)).encode())
        assert told["choices"][0]["finish_reason"] == "length" and told["usage"]["completion_tokens"] == 30
    finally:
        one.close()
        second.close()


@pytest.mark.parametrize(
    ("name", "options", "reason", "goes_on"),
    [
        ("complete", {}, "budget", True),  # it has no answer yet
        ("landed", {}, "reserve", True),  # it would have been made to answer
        ("truncate", {"threshold": 16.0}, "exit", False),  # a stop is a stop
    ],
)
def test_what_is_not_settled_goes_on_at_the_second_upstream(
    start: Any, tmp_path: Path, name: str, options: dict[str, Any], reason: str, goes_on: bool
) -> None:
    path = tmp_path / "second.gguf"
    export_gguf(models.resolve("tiny-4m"), "Q8_0", path)
    second = OwnServer(path, parallel=2, context=1024, threads=1)
    one = start("--budget", str(BUDGET), "--escalate-to", second.url, "--escalate-after", "64")

    handed_to: list[Any] = []

    def build(_: Any, __: Any, budget: int) -> Any:
        """With a promise, so that it is told what it would be tied to."""
        made = build_method(name, bits=16, budget=budget, answers="gsm8k", **THINKING, **options)
        told = {"promises": True, "check": lambda _, identity: handed_to.append(identity["handed_to"])}
        return type("Promising", (type(made),), told)(made.parameters)

    one.sidecar._policy = replace(one.sidecar._policy, build=build)
    try:
        status, told = post(one.url, json.dumps(asked(0)).encode())
        assert status == 200
        account = told["bitcal"]
        assert (account["reason"], account["escalated"]) == (reason, goes_on)
        assert name == "complete" or handed_to == ["second at 8 bits"]  # `complete` cannot be made to promise
        assert account["used"] == told["usage"]["completion_tokens"] <= account["cap"] == BUDGET
        if not goes_on:
            assert account["landing_tokens"] > 0
            return
        begun = account["used"] - account["escalated_tokens"]
        assert begun <= 64 and account["landing_tokens"] == 0 and account["escalated_tokens"] > 20
        message = told["choices"][0]["message"]
        assert message["reasoning_content"].startswith(direct(one, 0, to_the_end(begun)).text.removeprefix("<think>\n"))
        status, told = post(one.url, json.dumps(asked(0, max_tokens=32)).encode())  # less than the first one's share
        assert not told["bitcal"]["escalated"] and told["bitcal"]["cap"] == 32
        assert name == "complete" or handed_to[-1] is None
    finally:
        one.close()
        second.close()


def test_a_second_upstream_that_is_gone_is_told(start: Any, tmp_path: Path) -> None:
    path = tmp_path / "second.gguf"
    export_gguf(models.resolve("tiny-1m"), "F16", path)
    second = OwnServer(path, parallel=1, context=1024, threads=1)
    one = escalating(start, second)
    second.close()
    try:
        status, told = post(one.url, json.dumps(asked(0)).encode())
        assert status == 502 and second.url not in told["error"]["message"]
        assert _value(one, "bitcal_open_requests") == 0
    finally:
        one.close()


def test_an_upstream_that_comes_back_as_another_is_not_controlled(tmp_path: Path) -> None:
    """What was found out at the start, a promise among it, does not hold for another model at the same address."""
    for name in ("tiny-1m", "tiny-4m"):
        export_gguf(models.resolve(name), "F16", tmp_path / f"{name}.gguf")
    own = OwnServer(tmp_path / "tiny-1m.gguf", parallel=1, context=1024, threads=1)
    port = int(own.url.rpartition(":")[2])
    one = Running(own.url, "--method", "stated", "--budget", "64")
    body = json.dumps(asked(0, max_tokens=8)).encode()
    try:
        for served, controlled in (("tiny-1m", True), ("tiny-4m", False), ("tiny-1m", True)):
            own.close()
            assert post(one.url, body)[0] == 502
            own = OwnServer(tmp_path / f"{served}.gguf", parallel=1, context=1024, threads=1, port=port)
            status, told = post(one.url, body)
            assert status == 200 and ("bitcal" in told) == controlled
    finally:
        one.close()
        own.close()


def test_another_model_in_the_same_file_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    with of_its_own(path) as (_, one):
        assert one.engine.changed() is None
        path.unlink()
        export_gguf(models.resolve("tiny-1m"), "Q8_0", path)
        assert "is not what it was" in (one.engine.changed() or "")
