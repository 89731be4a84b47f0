"""`bitcal serve --demo` on a fresh machine: the model is written, served, and halted with the promise it came with."""

from __future__ import annotations

import argparse
import json
from contextlib import ExitStack
from pathlib import Path
from urllib.request import urlopen

import pytest

pytest.importorskip("xllamacpp", reason="the llama.cpp server is not installed")
pytest.importorskip("starlette", reason="the sidecar's packages are not installed")


def test_the_demo_has_a_promise() -> None:
    """Its profile is tied to the bytes of the file, which must come out the same on every machine."""
    from bitcal_tts.commands import serve
    from bitcal_tts.commands.served import fill_in, policy_of
    from bitcal_tts.commands.upstreams import engine_of
    from bitcal_tts.serving import demo

    parser = argparse.ArgumentParser()
    serve.add_options(parser)
    args = parser.parse_args(["--demo"])
    with ExitStack() as opened:
        engine = engine_of(args, opened)
        with urlopen(f"{engine.url}/v1/models") as told:
            assert json.load(told)["data"][0]["id"] == "tiny-15m-Q4_0.gguf"  # not where it lies for the time being
        policy = policy_of(args, engine)
        assert policy.about.method == "settled"
        assert policy.about.promise.startswith("Promised: at most 5 % lost (confidence 0.9, ")
        assert policy.about.examples == demo.EXAMPLES
        assert (policy.budget, policy.temperature) == (demo.BUDGET, demo.TEMPERATURE)
    args = parser.parse_args(["--demo", "--temperature", "0"])
    fill_in(args)
    assert args.temperature == 0  # what was said is not replaced


def test_a_sidecar_with_a_profile_asks_as_the_profile_was_fitted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from bitcal_tts.calibration.store import save_profile
    from bitcal_tts.commands import serve
    from bitcal_tts.commands.served import policy_of
    from bitcal_tts.commands.upstreams import engine_of
    from bitcal_tts.halting.identity import IdentityError
    from bitcal_tts.halting.profile import ProfileError
    from bitcal_tts.serving import demo

    profile = demo.profile()
    assert profile is not None
    save_profile(tmp_path / "p.json", profile)
    parser = argparse.ArgumentParser()
    serve.add_options(parser)
    with ExitStack() as opened:
        url = engine_of(parser.parse_args(["--demo"]), opened).url
        for declared, warned in ((["--declare", f"task={demo.TASK}"], False), ([], True)):
            args = parser.parse_args(["--upstream", url, "--profile", str(tmp_path / "p.json"), *declared])
            engine = engine_of(args, opened)
            capsys.readouterr()
            policy = policy_of(args, engine)
            assert (policy.budget, policy.temperature) == (demo.BUDGET, demo.TEMPERATURE)
            assert engine.template_options == demo.TEMPLATE
            told = capsys.readouterr().err
            assert ("a request that says no more is passed on, not halted" in told) == warned
            assert policy.about.promise.startswith("Of requests that it was fitted for" if warned else "Promised: ")
            assert ("--declare task=VALUE" in told) == warned == ("declaring the task is enough" in told)
            assert "--declare prompt_sha256" not in told
        for mistaken, wrong in (("tsk=stories", "'tsk' cannot be declared"), ("task=gsm8k", "this is 'gsm8k'")):
            args = parser.parse_args(["--upstream", url, "--profile", str(tmp_path / "p.json"), "--declare", mistaken])
            with pytest.raises((ProfileError, IdentityError), match=wrong):
                policy_of(args, engine)
        args = parser.parse_args(["--upstream", url, "--profile", str(tmp_path / "p.json"), "--style", "instruct"])
        assert engine_of(args, opened).template_options == {"enable_thinking": False}


def test_the_demo_refuses_its_profile_for_another_model(gguf: object) -> None:
    from bitcal_tts.engines.base import Decoding
    from bitcal_tts.engines.http import HttpEngine
    from bitcal_tts.engines.llama_server import OwnServer
    from bitcal_tts.halting.profile import ProfileError
    from bitcal_tts.serving import demo

    profile = demo.profile()
    assert profile is not None
    own = OwnServer(gguf, parallel=1, context=256, threads=1)  # type: ignore[arg-type]
    with HttpEngine(own.url, owned=own, template_options=demo.TEMPLATE) as engine:
        served = engine.identity(Decoding(demo.TEMPERATURE)).declare({"task": demo.TASK})
        with pytest.raises(ProfileError, match="no threshold for 16 bits"):
            profile.check(served.with_known(signals=str(engine.signals(1)), budget=demo.BUDGET))
