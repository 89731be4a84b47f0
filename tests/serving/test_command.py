"""`bitcal serve` as people start it: a process with a file of settings, which ends when it is told to."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx2
import pytest
from environments import environment

from bitcal_tts.cli import main
from bitcal_tts.engines.llama_server import free_port
from bitcal_tts.files import locked

STORY = "Grace buys 5 packs with 19 candles in each. Then she finds 9 more. She sells all for $8 each. How many?"

SETTINGS = """\
upstream: {url}
port: {port}
method: stated
answers: gsm8k
budget: 64
allow-host: sidecar.test
declare: [task=gsm8k]
"""


def wait_for(url: str, process: subprocess.Popen[bytes]) -> None:
    while process.poll() is None:
        try:
            httpx2.get(f"{url}/healthz", trust_env=False)
            return
        except httpx2.HTTPError:
            time.sleep(0.1)
    pytest.fail("it has ended")


def test_it_needs_no_more_than_its_extras(upstream_url: str, tmp_path: Path) -> None:
    """As the Dockerfile installs it: a sidecar that learns from its traffic, without Parquet and torch."""
    python, port = environment(tmp_path / "venv", ["serve", "fit"]), free_port()
    url = f"http://127.0.0.1:{port}"
    arguments = ["serve", "--upstream", upstream_url, "--port", str(port), "--risk", "0.05", "--state", "state"]
    process = subprocess.Popen([str(python), "-I", "-m", "bitcal_tts.cli", *arguments])
    try:
        wait_for(url, process)
        asked = {"messages": [{"role": "user", "content": "Tom has 3 apples and buys 4. How many?"}], "max_tokens": 64}
        answer = httpx2.post(f"{url}/v1/chat/completions", json=asked, trust_env=False, timeout=60)
        assert answer.status_code == 200 and "bitcal" in answer.json()
    finally:
        process.terminate()
        process.wait(20)


LOGGED = """
import logging
from asyncio import CancelledError
from bitcal_tts.serving.journal import log_as_json

def failing(error):
    try:
        raise error
    except BaseException:
        logging.getLogger("uvicorn.error").exception("Exception in ASGI application\\n")

log_as_json()
logging.getLogger("bitcal.serve").info("ended", extra={"tokens": 7})
failing(ValueError("what somebody asked"))
failing(CancelledError())
logging.getLogger("asyncio").warning("socket.send() raised exception.")
logging.getLogger("asyncio").warning("something else")
logging.getLogger("httpx2").info("HTTP Request")
"""


def test_whatever_is_logged_is_a_json_object_a_line_without_what_anybody_wrote() -> None:
    done = subprocess.run([sys.executable, "-c", LOGGED], capture_output=True, text=True, check=True)
    told = [json.loads(line) for line in done.stderr.splitlines()]
    assert [one["event"] for one in told] == ["ended", "Exception in ASGI application", "something else"]
    assert told[0]["tokens"] == 7
    assert told[1]["error"] == "ValueError" and "in failing" in told[1]["traceback"][0]
    assert "somebody" not in done.stderr


def test_what_one_sidecar_knows_is_its_own(
    upstream_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    serve = ["serve", "--upstream", upstream_url, "--port", str(free_port()), "--risk", "0.05", "--state"]
    with locked(tmp_path):
        assert main([*serve, str(tmp_path)]) == 2
    assert "choose another --state" in capsys.readouterr().err
    assert main([*serve, "/proc/state"]) == 2
    assert "nothing can be written to /proc/state" in (told := capsys.readouterr().err) and "--state" in told


def test_settings_come_from_a_file(upstream_url: str, tmp_path: Path) -> None:
    port = free_port()
    config = tmp_path / "serve.yaml"
    config.write_text(SETTINGS.format(url=upstream_url, port=port))
    command = [sys.executable, "-m", "bitcal_tts", "serve", "--config", str(config), "--budget", "48"]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
        try:
            url = f"http://127.0.0.1:{port}"
            wait_for(url, process)
            body: Any = {"model": "m", "messages": [{"role": "user", "content": "How many is 3 + 4?"}]}
            told = httpx2.post(f"{url}/v1/chat/completions", json=body, trust_env=False, timeout=60).json()["bitcal"]
            assert (told["method"], told["cap"]) == ("stated", 48)  # what the command line says is heeded first
            named = {"host": "sidecar.test"}
            assert httpx2.get(f"{url}/healthz", headers=named, trust_env=False).status_code == 200
            named = {"host": "s"}
            assert httpx2.get(f"{url}/healthz", headers=named, trust_env=False).status_code == 421
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) in (0, -signal.SIGTERM)
            assert process.stderr is not None
            assert "nothing is promised, and nothing learned: --risk" in process.stderr.read().decode()
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ("upstreem: http://127.0.0.1:1", "sets unknown options: upstreem"),
        ("keep-texts: 'no'", "keep_texts must be true or false, got 'no'"),
        ("api: grpc", "api must be one of llamacpp, vllm, chat"),
        ("budget: many", "budget: "),
    ],
)
def test_a_file_of_settings_is_checked_like_a_command_line(
    settings: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "serve.yaml"
    config.write_text(settings)
    with pytest.raises(SystemExit):
        main(["serve", "--config", str(config)])
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("told", [signal.SIGTERM, signal.SIGINT])
def test_a_demo_that_is_told_to_end_leaves_nothing_behind(told: signal.Signals, tmp_path: Path) -> None:
    pytest.importorskip("xllamacpp", reason="the llama.cpp server is not installed")
    port = free_port()
    command = [sys.executable, "-m", "bitcal_tts", "serve", "--demo", "--port", str(port)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, env={**os.environ, "TMPDIR": str(tmp_path)}) as process:
        try:
            wait_for(f"http://127.0.0.1:{port}", process)
            assert list(tmp_path.glob("*/*.gguf"))
            process.send_signal(told)
            assert process.wait(30) == 0
        finally:
            process.kill()
    assert not list(tmp_path.glob("*/*"))


def test_ctrl_c_in_a_terminal_finishes_the_streams_that_are_open() -> None:
    """It reaches every process of the terminal: a server of our own writes on until its clients have their answers."""
    pytest.importorskip("xllamacpp", reason="the llama.cpp server is not installed")
    port = free_port()
    command = [sys.executable, "-m", "bitcal_tts", "serve", "--demo", "--port", str(port)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, start_new_session=True) as process:
        try:
            url = f"http://127.0.0.1:{port}"
            wait_for(url, process)
            body = {"messages": [{"role": "user", "content": STORY}], "stream": True, "bitcal": {"off": True}}
            asked = httpx2.stream("POST", f"{url}/v1/chat/completions", json=body, trust_env=False, timeout=60)
            with asked as response:
                lines = response.iter_lines()
                begun = [next(lines) for _ in range(3)]
                os.killpg(process.pid, signal.SIGINT)
                assert [*begun, *lines][-2:] == ["data: [DONE]", ""]
            assert process.wait(30) == 0
            assert process.stderr is not None
            assert "finishing 1 request" in (said := process.stderr.read().decode()) and "Traceback" not in said
            assert "Promised: at most 5 % lost (confidence 0.9, " in said  # at its start
        finally:
            process.kill()
