"""bitcal serve: a sidecar between OpenAI clients and a server, which stops each generation at its answer."""

from __future__ import annotations

import argparse
import logging
import os
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import uvicorn

from bitcal_tts.calibration.store import load_profile
from bitcal_tts.commands import options
from bitcal_tts.commands.options import API_KEY_VARIABLE, declared
from bitcal_tts.commands.progress import note
from bitcal_tts.engines.gguf import export_gguf
from bitcal_tts.engines.http import HttpEngine
from bitcal_tts.engines.llama_server import OwnServer
from bitcal_tts.engines.named_profiles import named_profile
from bitcal_tts.engines.thinking import parse_markers
from bitcal_tts.halting.controller import Controller
from bitcal_tts.halting.methods import build_method, parameters_of
from bitcal_tts.serving.app import Limits, Policy, Sidecar
from bitcal_tts.serving.upstream import Upstream
from bitcal_tts.tiny import models

EXAMPLE = """example:
  bitcal serve --demo
  bitcal serve --upstream http://127.0.0.1:8080 --profile profile.json --declare task=gsm8k
  bitcal serve --upstream http://127.0.0.1:8000 --bits 4 --method complete --answers boxed

Clients change their base URL to http://127.0.0.1:8100/v1 and nothing else. A request says more with
extra_body={"bitcal": {"method": ..., "budget": ..., "profile": ..., "off": true}}. What cannot be controlled (several
answers, tools, a grammar, sampling that a profile was not fitted for) is passed on as it is, and the header x-bitcal
says why."""

_DEMO = "tiny-15m"
_LOCAL = ("127.0.0.1", "localhost", "::1")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of `bitcal serve`."""
    parser.add_argument("--upstream", metavar="URL", help="the server; its key, if it has one, is read from "
                        f"{API_KEY_VARIABLE}")  # fmt: skip
    parser.add_argument("--demo", action="store_true", help=f"{_DEMO}, from the box, as its own upstream")
    parser.add_argument("--host", default="127.0.0.1", help="where to listen; another address needs --api-key")
    parser.add_argument("--port", type=int, default=8100, help="(%(default)s)")
    parser.add_argument("--api", choices=("llamacpp", "vllm", "chat"), help="what the upstream speaks (found)")
    parser.add_argument("--bits", type=float, help="the upstream's weight precision, where it cannot be read")
    parser.add_argument("--think", metavar="OPEN,CLOSE", help="its think markers, or none (found)")
    parser.add_argument("--style", choices=("instruct", "thinking"), help="what enable_thinking is set to by default")
    parser.add_argument("--method", help="how requests are halted (settled with a profile, else complete)")
    parser.add_argument("--profile", type=Path, help="the profile of the method settled")
    parser.add_argument("--profiles", type=Path, metavar="FOLDER", help="profiles that requests may name")
    options.add_answers(parser, "number")
    parser.add_argument("--budget", type=int, default=4096, help="most tokens of any request (%(default)s)")
    parser.add_argument("--temperature", type=float, default=1.0, help="where a client does not say (%(default)s)")
    options.add_declare(parser)
    parser.add_argument("--api-key", metavar="KEY", default=os.environ.get("BITCAL_SERVE_KEY"),
                        help="that clients must send (BITCAL_SERVE_KEY)")  # fmt: skip
    parser.add_argument("--allow-host", action="append", default=[], metavar="NAME",
                        help="another name by which clients address it")  # fmt: skip
    parser.add_argument("--max-open", type=int, default=256, help="requests at once (%(default)s)")
    parser.add_argument("--config", metavar="FILE", help="the same options as YAML")


def run(args: argparse.Namespace) -> None:
    """Serve until it is told to stop; open streams are finished first."""
    if (args.upstream is None) == (not args.demo):
        raise ValueError("say which server: --upstream URL, or --demo for a model in the box")
    if args.host not in _LOCAL and not args.api_key:
        raise ValueError(f"--host {args.host} is open to others: it needs --api-key, or BITCAL_SERVE_KEY")
    with ExitStack() as opened:
        engine = _engine(args, opened)
        policy = policy_of(args, engine)
        sidecar = Sidecar(Upstream(engine, api_key=os.environ.get(API_KEY_VARIABLE)), policy)
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
        logging.getLogger("httpx2").setLevel(logging.WARNING)
        method = policy.build(None, None, args.budget).parameters.name
        note(f"serving {engine.describe()['model']} at {engine.bits:g} bits, halted by {method}")
        note(f"base URL for clients: http://{args.host}:{args.port}/v1")
        uvicorn.run(
            sidecar.application(), host=args.host, port=args.port, log_level="warning", access_log=False,
            server_header=False, timeout_graceful_shutdown=60,
        )  # fmt: skip


def _engine(args: argparse.Namespace, opened: ExitStack) -> HttpEngine:
    """The upstream, or a model in the box behind a server of our own."""
    template = {} if args.style is None else {"enable_thinking": args.style == "thinking"}
    markers: dict[str, Any] = {} if args.think is None else {"markers": parse_markers(args.think)}
    url, owned = args.upstream, None
    if args.demo:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory()))
        note(f"writing {_DEMO} as Q4_K and starting llama.cpp")
        export_gguf(models.resolve(_DEMO), "Q4_K", folder / f"{_DEMO}-Q4_K.gguf")
        owned = OwnServer(folder / f"{_DEMO}-Q4_K.gguf", parallel=4, context=2048)
        url, template = owned.url, template or {"enable_thinking": True}
        if args.answers is None:
            args.answers = "gsm8k"
    engine = HttpEngine(
        url, owned=owned, bits=args.bits, api=args.api, template_options=template,
        api_key=os.environ.get(API_KEY_VARIABLE), **markers,
    )  # fmt: skip
    opened.callback(engine.close)
    return engine


def policy_of(args: argparse.Namespace, engine: HttpEngine) -> Policy:
    """How requests are controlled, by the options."""
    own = None if args.profile is None else load_profile(args.profile)
    usual = args.method or ("complete" if own is None else "settled")
    told = declared(args)
    answers = args.answers or "number"
    opening, close = engine.thinking or (None, None)

    def build(method: str | None, profile: str | None, budget: int) -> Controller:
        name = method or ("settled" if profile is not None else usual)
        known = parameters_of(name)
        given: dict[str, Any] = {"answers": answers, "opening": opening, "close": close}
        if "profile" in known:
            served = own if profile is None else named_profile(args.profiles, profile)
            if served is None:
                raise ValueError(f"{name} needs a profile: start the sidecar with --profile, or name one")
            # What it reads answers by and how thinking is marked are the profile's.
            given = {"profile": served, "declare": told}
        used = {key: value for key, value in given.items() if key in known}
        built: Controller = build_method(name, bits=engine.bits, budget=budget, **used)
        return built

    build(None, None, args.budget)  # what is wrong is said now
    return Policy(
        build=build,
        budget=args.budget,
        temperature=args.temperature,
        hosts=frozenset({*_LOCAL, args.host, *args.allow_host}),
        api_key=args.api_key,
        limits=Limits(open=args.max_open),
    )
