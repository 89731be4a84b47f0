"""bitcal serve: a sidecar between OpenAI clients and a server, which stops each generation at its answer."""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import sys
from contextlib import ExitStack, suppress
from pathlib import Path
from textwrap import fill

import uvicorn

from bitcal_tts.calibration.boosting import load_lightgbm
from bitcal_tts.commands import options
from bitcal_tts.commands.options import API_KEY_VARIABLE, declared
from bitcal_tts.commands.places import check_writable
from bitcal_tts.commands.progress import note
from bitcal_tts.commands.served import BUDGET, MOST, policy_of
from bitcal_tts.commands.table import NARROW
from bitcal_tts.commands.upstreams import engine_of, second_of
from bitcal_tts.files import locked
from bitcal_tts.halting.methods import parameters_of
from bitcal_tts.serving import demo
from bitcal_tts.serving.app import Sidecar
from bitcal_tts.serving.autopilot import Autopilot
from bitcal_tts.serving.door import LOCAL
from bitcal_tts.serving.journal import log_as_json
from bitcal_tts.serving.memory import TEXTS, Memory, states
from bitcal_tts.serving.state import Terms
from bitcal_tts.serving.status import described, in_words
from bitcal_tts.serving.upstream import Upstream

EXAMPLE = """example:
  bitcal serve --demo
  bitcal serve --upstream http://127.0.0.1:8080 --profile profile.json --declare task=gsm8k
  bitcal serve --upstream http://127.0.0.1:8000 --bits 4 --method complete --answers boxed
  bitcal serve --upstream http://127.0.0.1:8080 --risk 0.02        # no profile: it earns its promise
  bitcal serve status

Clients change their base URL to http://127.0.0.1:8100/v1 and nothing else. A request says more with
extra_body={"bitcal": {"method": ..., "budget": ..., "profile": ..., "off": true}}. What cannot be controlled (several
answers, tools, a grammar, sampling that a profile was not fitted for) is passed on as it is, and the header x-bitcal
says why."""


_FINISHING = 60
"""Seconds for what is under way when it is told to end."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of `bitcal serve`."""
    parser.add_argument("action", nargs="?", choices=("status",), help="what the autopilot knows, and no serving")
    parser.add_argument("--upstream", metavar="URL",
                        help=f"the server; its key, if it has one, is read from {API_KEY_VARIABLE}")  # fmt: skip
    parser.add_argument("--model", metavar="NAME",
                        help="which of the upstream's models is halted, where it has several")  # fmt: skip
    parser.add_argument("--demo", action="store_true", help=f"{demo.MODEL}, from the box, as its own upstream")
    parser.add_argument("--host", default="127.0.0.1", help="where to listen; another address needs --api-key")
    parser.add_argument("--port", type=int, default=8100, help="where to listen (%(default)s)")
    parser.add_argument("--api", choices=("llamacpp", "vllm", "chat"), help="what the upstream speaks (found)")
    parser.add_argument("--bits", type=float, help="the upstream's weight precision, where it cannot be read")
    parser.add_argument("--think", metavar="OPEN,CLOSE", help="its think markers, or none (found)")
    parser.add_argument(
        "--escalate-to", metavar="URL", help="a second server, which goes on with what a method escalates"
    )
    parser.add_argument("--escalate-model", metavar="NAME", help="which of its models, where it has several")
    parser.add_argument("--escalate-bits", type=float, help="its weight precision, where it cannot be read")
    parser.add_argument("--escalate-after", type=options.positive, metavar="TOKENS",
                        help="and with what is not settled after so many tokens")  # fmt: skip
    parser.add_argument("--style", choices=("instruct", "thinking"),
                        help="what enable_thinking is set to by default (the profile's)")  # fmt: skip
    parser.add_argument("--method", help="how requests are halted (settled with a profile, else complete)")
    parser.add_argument("--profile", type=Path, help="the profile of the method settled")
    parser.add_argument("--profiles", type=Path, metavar="FOLDER", help="profiles that requests may name")
    pilot = parser.add_argument_group("autopilot", "a promise without a profile, earned from the traffic")
    pilot.add_argument("--risk", type=float, help="most of the answers that may change; learn, and then stop")
    pilot.add_argument("--confidence", type=float, default=0.9, help="how surely that holds (%(default)s)")
    pilot.add_argument("--shadow", type=float, default=0.05, metavar="SHARE",
                       help="of the requests, that runs to its end for ever, to measure by (%(default)s)")  # fmt: skip
    pilot.add_argument("--learn", type=float, default=0.5, metavar="SHARE",
                       help="that is tried by side requests while learning (%(default)s)")  # fmt: skip
    pilot.add_argument("--first", type=int, default=150, metavar="N",
                       help="requests that the first scorer is fitted on (%(default)s)")  # fmt: skip
    pilot.add_argument("--state", type=Path, metavar="FOLDER", default=_usual_state(),
                       help="where what it knows is kept; no texts (%(default)s)")  # fmt: skip
    pilot.add_argument("--keep-texts", action="store_true",
                       help=f"keep the texts of the sampled requests too, as {TEXTS} in the same folder, a log that "
                       "bitcal audit reads")  # fmt: skip
    options.add_answers(parser, "number")
    parser.add_argument("--budget", type=options.positive,
                        help="most tokens of a controlled request (the profile's; else three quarters of what the "
                        f"model has room for, {MOST} at most, and {BUDGET} where that is not known)")  # fmt: skip
    parser.add_argument("--temperature", type=float, help="where a client does not say (1, or the profile's)")
    options.add_declare(parser)
    parser.add_argument("--api-key", metavar="KEY", default=os.environ.get("BITCAL_SERVE_KEY"),
                        help="that clients must send (BITCAL_SERVE_KEY)")  # fmt: skip
    parser.add_argument("--allow-host", action="append", default=[], metavar="NAME",
                        help="another name by which clients address it")  # fmt: skip
    parser.add_argument(
        "--max-open", type=options.positive, default=256, help="controlled requests at once (%(default)s)"
    )
    parser.add_argument("--json", action="store_true", help="status as JSON")
    parser.add_argument("--config", metavar="FILE", help="the same options as YAML")


def run(args: argparse.Namespace) -> None:
    """Serve until it is told to stop; open streams are finished first."""
    if args.action == "status":
        _status(args)
        return
    if args.upstream is not None and args.demo:
        raise ValueError("--demo brings its own server: leave it out, or --upstream")
    if args.model is not None and args.demo:
        raise ValueError(f"--demo brings {demo.MODEL}: leave it out, or --model")
    if args.upstream is None and not args.demo:
        raise ValueError("say which server: --upstream URL, or --demo for a model in the box")
    if args.host not in LOCAL and not args.api_key:
        raise ValueError(f"--host {args.host} is open to others: it needs --api-key, or BITCAL_SERVE_KEY")
    if args.method is not None:
        parameters_of(args.method)  # a misspelt one is named before a model is loaded
    if args.risk is not None and not 0 < args.risk < 1:
        raise ValueError(f"--risk must lie above 0 and below 1, got {args.risk:g}")
    if args.escalate_after is not None and (args.escalate_to is None or args.risk is not None):
        raise ValueError("--escalate-after needs a second server, --escalate-to URL, and no --risk")
    declared(args)  # a declaration that cannot be read, likewise
    _check_port(args.host, args.port)
    with ExitStack() as opened:
        # Being told to end is an end like any other: files and servers of our own are cleared away.
        opened.callback(signal.signal, signal.SIGTERM, signal.signal(signal.SIGTERM, lambda *_: sys.exit(0)))
        engine = engine_of(args, opened)
        policy = policy_of(args, engine)
        pilot = autopilot_of(args, opened)
        key = os.environ.get(API_KEY_VARIABLE)
        sidecar = Sidecar(Upstream(engine, api_key=key), policy, pilot, second_of(args, engine, opened))
        log_as_json()
        method = "the autopilot" if pilot else policy.build(None, None, args.budget).parameters.name
        note(
            f"serving {engine.describe()['model']} at {engine.bits:g} bits, halted by {method}, at most "
            f"{args.budget:,} tokens a controlled request"
        )
        if policy.about.promise:
            note(policy.about.promise)
        elif pilot is None:
            note("nothing is promised, and nothing learned: --risk 0.02 earns a promise, --profile brings one")
        else:
            note("nothing is stopped before that is proven to be safe: bitcal serve status says how far it is")
        where = f"http://{f'[{args.host}]' if ':' in args.host else args.host}:{args.port}"
        note(f"base URL for clients: {where}/v1, playground: {where}/")
        config = uvicorn.Config(
            sidecar.application(), host=args.host, port=args.port, log_level="warning", access_log=False,
            server_header=False, timeout_graceful_shutdown=_FINISHING, log_config=None,
        )  # fmt: skip
        with suppress(KeyboardInterrupt):  # told to end, it has ended
            _Server(config).run()


class _Server(uvicorn.Server):
    """Says what it waits for once it is told to end."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if n := len(self.server_state.tasks):
            requests = "1 request" if n == 1 else f"{n} requests"
            note(f"finishing {requests}, for {_FINISHING} seconds at most; Ctrl-C again ends at once")
        await super().shutdown(sockets)


def _check_port(host: str, port: int) -> None:
    """Refuse, before a model is loaded, where nobody can listen."""
    if not 0 < port < 1 << 16:
        raise ValueError(f"--port must be 1 to 65535, got {port}")
    try:
        with socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET):
            pass
    except OSError as error:
        why = str(error.strerror).partition(" (while")[0]  # the address follows, which is said already
        raise ValueError(f"nobody can listen at {host}:{port} ({why}): choose another --port") from None


def autopilot_of(args: argparse.Namespace, opened: ExitStack) -> Autopilot | None:
    """The autopilot, where a risk is named; its state is this process's alone."""
    if args.risk is None:
        return None
    if args.profile is not None or args.method is not None:
        raise ValueError("--risk earns a promise of its own: leave out --profile and --method, or leave out --risk")
    load_lightgbm()  # where it is not to be had, nothing could ever be promised
    terms = Terms(args.risk, args.confidence, args.shadow, args.learn, args.first)
    check_writable(args.state, "--state")
    memory = Memory(args.state, keep_texts=args.keep_texts)
    try:
        opened.enter_context(locked(args.state))
    except BlockingIOError as error:
        raise ValueError(f"{error}: one sidecar's evidence is its own; choose another --state") from None
    return Autopilot(terms, memory, answers=args.answers or "number")


def _usual_state() -> Path:
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state") / "bitcal"


def _status(args: argparse.Namespace) -> None:
    """What the autopilot knows, in words."""
    known = [described(name, told) for name, told in states(args.state).items()]
    if args.json:
        print(json.dumps({"schema": 1, "pilots": known}))
        return
    if not known:
        print("nothing has been learned from a request yet")
    for one in known:
        print("\n".join(fill(line, NARROW, subsequent_indent="  ") for line in in_words(one)), end="\n\n")
    if known:
        note("as of the last request that was learned from; /metrics of a sidecar that runs is of now")
