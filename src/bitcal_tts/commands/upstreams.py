"""The servers that `bitcal serve` stands in front of, by its options."""

from __future__ import annotations

import argparse
import os
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bitcal_tts.commands.options import API_KEY_VARIABLE
from bitcal_tts.commands.progress import note
from bitcal_tts.commands.served import fill_in, fitted_on
from bitcal_tts.engines.gguf import export_gguf
from bitcal_tts.engines.http import HttpEngine
from bitcal_tts.engines.llama_server import OwnServer
from bitcal_tts.engines.thinking import parse_markers
from bitcal_tts.serving import demo
from bitcal_tts.serving.upstream import Upstream
from bitcal_tts.tiny import models


def engine_of(args: argparse.Namespace, opened: ExitStack) -> HttpEngine:
    """The upstream, or a model in the box behind a server of our own."""
    fill_in(args)
    fitted = fitted_on(args)["template_options"]
    template = dict(fitted) if isinstance(fitted, dict) else {}
    if args.style is not None:
        template["enable_thinking"] = args.style == "thinking"
    markers: dict[str, Any] = {} if args.think is None else {"markers": parse_markers(args.think)}
    url, owned = args.upstream, None
    if args.demo:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory()))
        note(f"writing {demo.MODEL} as {demo.KIND} and starting llama.cpp")
        file = folder / f"{demo.MODEL}-{demo.KIND}.gguf"
        export_gguf(models.resolve(demo.MODEL), demo.KIND, file)
        # One thread is as quick for so small a model, and does not wait for a core that something else has.
        owned = OwnServer(file, parallel=4, context=2 * demo.BUDGET, threads=1)
        url, template = owned.url, template or demo.TEMPLATE
        args.answers = args.answers or "gsm8k"
        args.budget = min(args.budget or demo.BUDGET, demo.BUDGET)
        args.declare = [f"task={demo.TASK}", *(args.declare or [])]
    if owned is None:
        note(f"asking {url} what it serves")
    engine = HttpEngine(
        url, owned=owned, model=args.model, bits=args.bits, api=args.api, template_options=template,
        api_key=os.environ.get(API_KEY_VARIABLE), **markers,
    )  # fmt: skip
    opened.callback(engine.close)
    return engine


def second_of(args: argparse.Namespace, first: HttpEngine, opened: ExitStack) -> Upstream | None:
    """The server that escalated requests go on with."""
    if args.escalate_to is None:
        return None
    key = os.environ.get(API_KEY_VARIABLE)
    engine = HttpEngine(
        args.escalate_to, model=args.escalate_model, bits=args.escalate_bits, api_key=key,
        template_options=first.template_options, markers=first.thinking,
    )  # fmt: skip
    opened.callback(engine.close)
    return Upstream(engine, api_key=key)
