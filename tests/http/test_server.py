"""The HTTP engine on a real llama.cpp server: the same tokens, signals, stops and landings as in process."""

from __future__ import annotations

import json
import time
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conformance import Conformance, requests, same_tokens

from bitcal_tts.cli import main
from bitcal_tts.engines.base import Decoding, EngineError, Fork, Place
from bitcal_tts.engines.http import HttpEngine
from bitcal_tts.halting.answers import FORMATS
from bitcal_tts.halting.landing import landing
from bitcal_tts.halting.methods import to_the_end


class TestLlamaCppServer(Conformance):
    """All of it."""

    widest_gap = 0.8
    parting = 4  # wordings of the box's texts are often as likely as each other, and its arithmetic is another

    def in_use(self, served: Any) -> int:
        for _ in range(50):
            with urllib.request.urlopen(f"{served.url}/slots", timeout=5) as answer:
                busy = sum(bool(slot["is_processing"]) for slot in json.load(answer))
            if not busy:
                break
            time.sleep(0.1)
        return busy


def test_a_whole_vocabulary_gives_the_full_distribution(server: str, served: Any, local: Any) -> None:
    with HttpEngine(server, template_options={"enable_thinking": True}, top=10**6) as whole:
        assert str(whole.signals(16)) == "full"
        (done,) = whole.decode(requests(to_the_end(40), 1))
    (few,) = served.decode(requests(to_the_end(40), 1))
    (here,) = local.decode(requests(to_the_end(40), 1))
    n = same_tokens(done, few, here)
    assert n >= 20
    exact, truncated = here.entropies[:n], few.entropies[:n]
    assert np.abs(np.array(done.entropies[:n]) - exact).max() < 5e-3
    # What is missing is spread evenly, which is a bound; batches of another size differ in the last digits.
    assert (np.array(truncated) >= np.array(done.entropies[:n]) - 5e-3).all()


def test_what_is_served_is_reported_read_or_refused(server: str, served: Any, gguf: Path) -> None:
    about = served.describe()
    assert about["bits"] == 16
    assert about["scheme"] == "GGUF F16"
    assert about["engine"].startswith("llama.cpp server")
    assert {"engine", "model", "template_sha256"} <= set(about["reported"])
    assert about["declared"] == []
    assert about["thinking"] == ["<think>", "</think>"]
    with pytest.raises(EngineError, match="the server has '.*tiny-4m-F16.gguf', not 'tiny-15m'"):
        HttpEngine(server, model="tiny-15m")
    with pytest.raises(EngineError, match=r"has 16 bits \(GGUF F16\), not 4"):
        HttpEngine(server, bits=4)
    gguf.rename(gguf.with_suffix(".moved"))
    try:
        with pytest.raises(EngineError, match="say it with --bits"):
            HttpEngine(server)
        with HttpEngine(server, bits=16) as told:
            assert told.describe()["declared"] == ["bits"]
            identity = told.identity(Decoding())
        assert "model_sha256" not in identity.known
        assert "bits" in identity.declared
    finally:
        gguf.with_suffix(".moved").rename(gguf)


def test_probes_come_as_they_are_made(served: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made, write = [], served.write

    def noted(*args: Any, **kwargs: Any) -> Any:
        made.append(1)
        return write(*args, **kwargs)

    monkeypatch.setattr(served, "write", noted)
    format = FORMATS["gsm8k"]
    place = Place(0, landing("", "</think>", format.cue), format)
    forks = [Fork("What is 3 + 4?", [], [place] * 2) for _ in range(4)] + [Fork("What is 3 + 4?", [], [])]
    answers = served.probe(forks, batch_size=1)
    first = next(answers)
    assert len(first) == 2 and len(made) <= 4
    assert [len(one) for one in answers] == [2, 2, 2, 0] and len(made) == 8


def test_bad_arguments_are_told(server: str, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, message in (
        (["--url", "http://127.0.0.1:9"], "no server at http://127.0.0.1:9"),
        *(
            (["--url", url], f"a server is named by a URL such as http://127.0.0.1:8080, got {url!r}")
            for url in (
                "ftp://x",
                "http://",
                "http://[::1",
                "http://here:80x",
                "http://here:0",
                "http://here:70000",
                "http://he re",
                "http://\u202e",
            )
        ),
        (["--model", "no.gguf"], "there is no file no.gguf"),
        (["--engine", "http"], "--engine http and --url go together"),
        (["--url", server, "--hidden"], "a server gives no hidden states"),
        (["--url", server, "--device", "cpu"], "--device is the server's to choose"),
        (["--url", server, "--top-logprobs", "1"], "at least the 2 likeliest"),
    ):
        assert main(["record", *arguments, "--n", "1", "--budget", "8", "--out", "t"]) == 2
        assert message in capsys.readouterr().err
