"""Servers that fail: what they do is told in one line, nothing recorded is lost, and recording goes on."""

from __future__ import annotations

import json
import math
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from bitcal_tts.cli import main
from bitcal_tts.engines import llama_server
from bitcal_tts.engines.base import EngineWarning, Fork, Place, Request
from bitcal_tts.engines.http import HttpEngine
from bitcal_tts.engines.wire import ServerError
from bitcal_tts.halting.answers import FORMATS
from bitcal_tts.halting.landing import landing
from bitcal_tts.halting.methods import to_the_end

PROPS = {"model_alias": "fake", "chat_template": "{{x}}", "default_generation_settings": {"n_ctx": 512}}
MODELS = {"data": [{"id": "fake", "meta": {"n_vocab": 100}}]}


def event(ids: list[int], text: str, *, probabilities: bool = True) -> bytes:
    likeliest = [{"logprob": -0.1}, {"logprob": -3.0}]
    known = [{"logprob": -0.1, "top_logprobs": likeliest}] if probabilities else []
    told = {"content": text, "tokens": ids, "completion_probabilities": known}
    return b"data: " + json.dumps(told).encode() + b"\n\n"


class Fake:
    """A server that is like llama.cpp's until it writes."""

    def __init__(self) -> None:
        self.write: Callable[[BaseHTTPRequestHandler, int], None] = lambda handler, n: None
        self.completions = 0
        self.props: Any = PROPS
        self.tokens: Any = {"tokens": [1, 2, 3]}
        fake = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_: Any) -> None:
                pass

            def _json(self, value: Any) -> None:
                body = json.dumps(value).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def do_GET(self) -> None:
                self._json(fake.props if self.path == "/props" else MODELS)

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                if self.path == "/apply-template":
                    self._json({"prompt": "x"})
                elif self.path == "/tokenize":
                    self._json(fake.tokens)
                else:
                    fake.completions += 1
                    fake.write(self, fake.completions)

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def fake() -> Iterator[Fake]:
    one = Fake()
    yield one
    one.server.shutdown()
    one.server.server_close()


def streaming(*parts: bytes, then: Callable[[], object] | None = None) -> Callable[[BaseHTTPRequestHandler, int], None]:
    def write(handler: BaseHTTPRequestHandler, n: int) -> None:
        handler.send_response(200)
        handler.end_headers()
        for part in parts:
            handler.wfile.write(part)
            handler.wfile.flush()
        if then:
            then()

    return write


def status(code: int, body: bytes) -> Callable[[BaseHTTPRequestHandler, int], None]:
    def write(handler: BaseHTTPRequestHandler, n: int) -> None:
        handler.send_response(code)
        handler.end_headers()
        handler.wfile.write(body)

    return write


def decode(fake: Fake, patience: float = 5.0) -> Any:
    with HttpEngine(fake.url, bits=4, markers=None, patience=patience) as engine:
        (done,) = engine.decode([Request("1", "How many?", to_the_end(20))])
        return done


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (status(500, b'{"error": {"message": "out of\\nmemory"}}'), "answers 500: out of memory"),
        (status(503, b"loading"), "answers 503: loading"),
        (streaming(b"data: {not json\n\n"), "sent what is no JSON: '{not json'"),
        (streaming(b'data: {"error": {"message": "context"}}\n\n'), "reports {'message': 'context'}"),
        (streaming(event([5], "a", probabilities=False)), "sends no log-probabilities"),
        (streaming(b'data: {"tokens": [5], "completion_probabilities": [{"logprob": -1}]}\n\n'), "lacks 'content'"),
        (streaming(b'data: {"tokens": "x", "content": ""}\n\n'), "sent an event that lacks"),
    ],
)
def test_a_server_that_errs(fake: Fake, write: Any, message: str) -> None:
    fake.write = write
    with pytest.raises(ServerError) as told:
        decode(fake)
    assert message in str(told.value)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize(
    ("props", "tokens", "message"),
    [
        ([], {}, "answers what is no object"),
        (PROPS, {}, "answers without tokens"),
        (PROPS, {"tokens": ["a"]}, "tokens that are no numbers"),
        (PROPS, [1], "answers what is no object"),
    ],
)
def test_a_server_that_is_another_than_it_seemed(fake: Fake, props: Any, tokens: Any, message: str) -> None:
    fake.props, fake.tokens = props, tokens
    with pytest.raises(ServerError) as told:
        decode(fake)
    assert message in str(told.value)


def test_a_server_that_hangs(fake: Fake) -> None:
    fake.write = streaming(event([5], "a"), then=lambda: time.sleep(5))
    began = time.monotonic()
    with pytest.raises(ServerError, match="does not answer any more"):
        decode(fake, patience=0.5)
    assert time.monotonic() - began < 4


def several(fake: Fake, n: int, patience: float) -> Any:
    with HttpEngine(fake.url, bits=4, markers=None, patience=patience) as engine:
        requests = [Request(str(i), "How many?", to_the_end(20)) for i in range(n)]
        return list(engine.decode(requests, batch_size=2))


def test_once_a_server_hangs_nothing_more_is_asked_of_it(fake: Fake) -> None:
    woken = threading.Event()
    fake.write = streaming(event([5], "a"), then=lambda: woken.wait(20))
    with pytest.raises(ServerError, match="nothing came for 0.5 seconds"):
        several(fake, 6, patience=0.5)
    woken.set()
    assert fake.completions == 2


def test_an_error_is_told_while_another_request_hangs(fake: Fake) -> None:
    woken, waited, begun = threading.Event(), threading.Event(), threading.Barrier(2)

    def write(handler: BaseHTTPRequestHandler, n: int) -> None:
        begun.wait(20)
        if n == 1:
            woken.wait(20)
            waited.set()
        else:
            status(500, b"broken")(handler, n)

    fake.write = write
    with pytest.raises(ServerError, match="answers 500: broken"):
        several(fake, 2, patience=60.0)
    assert not waited.is_set()
    woken.set()


def test_a_server_that_is_silent_is_named_before_it_is_given_up(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bitcal_tts.engines.together.SILENCE", 0.5)
    whole = streaming(event([5], "a"), event([], ""))

    def slow(handler: BaseHTTPRequestHandler, n: int) -> None:
        time.sleep(2)
        whole(handler, n)

    fake.write = slow
    with pytest.warns(EngineWarning, match=r"has said nothing for 0.5 seconds: .*; after 9 it is given up"):
        assert len(several(fake, 1, patience=9.0)) == 1


def test_who_asks_late_for_what_is_done_is_told_of_no_silence(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A warning is an error in these tests."""
    monkeypatch.setattr("bitcal_tts.engines.together.SILENCE", 0.5)
    fake.write = streaming(event([5], "a"), event([], ""))
    with HttpEngine(fake.url, bits=4, markers=None, patience=5.0) as engine:
        done = engine.decode([Request(str(i), "How many?", to_the_end(20)) for i in range(2)])
        next(done)
        time.sleep(1.5)
        next(done)


def test_a_server_that_does_not_even_say_what_it_is_is_given_up_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bitcal_tts.engines.wire._AT_ONCE", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(ServerError, match="does not answer: nothing came for 0.5 seconds"):
            HttpEngine(url, bits=4, markers=None, patience=20.0)


def test_tokens_that_end_inside_a_character_come_together(fake: Fake) -> None:
    fake.write = streaming(event([5], "a"), event([7, 8, 9], "é"), event([6], "b"), event([], ""))
    done = decode(fake)
    assert done.token_ids == [5, 7, 8, 9, 6]
    assert done.token_texts == ["a", "é", "", "", "b"]
    assert [entropy != entropy for entropy in done.entropies] == [False, False, True, True, False]
    assert done.finish == "eos"


def test_what_is_not_told_of_a_probes_tokens_is_not_taken_for_certain(fake: Fake) -> None:
    """Of tokens that come together the first is told; of a thinking's closing nothing, where the model ends there."""

    def write(handler: BaseHTTPRequestHandler, n: int) -> None:
        streaming(*((event([], ""),) if n == 1 else (event([7, 8], " é"), event([6], "\n"), event([], ""))))(handler, n)

    fake.write = write
    place = Place(1, landing("a", "</think>", "####"), FORMATS["gsm8k"])
    with HttpEngine(fake.url, bits=4, markers=None, patience=5.0) as engine:
        ((written,),) = engine.probe([Fork("How many?", [5], [place], ["a"])])
    assert math.isnan(written.entropy)
    assert [math.isnan(one) for one in written.logprobs] == [False, True, False]


def test_what_was_recorded_is_kept_and_recording_goes_on(
    fake: Fake, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The server dies at the third problem; after it is back the same command records the rest."""
    whole = streaming(event([5], "#### 4\n"), event([], ""))

    def dies(handler: BaseHTTPRequestHandler, n: int) -> None:
        if n >= 3:
            handler.connection.close()
        else:
            whole(handler, n)

    fake.write = dies
    record = ["record", "--url", fake.url, "--bits", "4", "--think", "none", "--n", "4", "--batch", "1"]
    record += ["--budget", "8", "--out", "t"]
    assert main(record) == 2
    error = capsys.readouterr().err
    assert f"bitcal: {fake.url} is gone" in error
    assert "Traceback" not in error
    assert len(list((tmp_path / "t").glob("part-*.parquet"))) == 2
    fake.write = whole
    asked = fake.completions
    assert main(record) == 0
    assert fake.completions - asked == 2
    assert "4 traces" in capsys.readouterr().out


def test_a_server_of_our_own_that_does_not_end_is_ended(gguf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """llama.cpp's waits for requests that are open; whoever closes it may be the one who has them open."""
    monkeypatch.setattr(llama_server, "_ENDS_WITHIN", 0.2)
    own = llama_server.OwnServer(gguf, parallel=1, context=256, threads=1)
    os.kill(own._process.pid, signal.SIGSTOP)
    os.waitpid(own._process.pid, os.WUNTRACED)  # it has stopped: of two signals that wait, the other would come first
    own.close()
    assert own._process.returncode == -signal.SIGKILL
