"""Options -> the task, the engine and the methods that they name."""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from bitcal_tts.calibration.recording import boundaries_of, mark_of
from bitcal_tts.calibration.store import load_profile
from bitcal_tts.commands.options import API_KEY_VARIABLE, USUAL_MODEL, USUAL_N, declared, parse_override
from bitcal_tts.commands.progress import mention_met, note
from bitcal_tts.commands.recordings import Opened
from bitcal_tts.engines.base import Decoding, EngineError
from bitcal_tts.engines.llama_server import OwnServer, gguf_of
from bitcal_tts.engines.thinking import parse_markers
from bitcal_tts.halting.gate import Rule
from bitcal_tts.halting.methods import PAPER, build_method, parameters_of
from bitcal_tts.halting.profile import Profile
from bitcal_tts.halting.signals import Signal
from bitcal_tts.tasks import Task, load_task
from bitcal_tts.tiny import models
from bitcal_tts.traces.trace import Trace

DEFAULT_MIN_TOKENS = 128


def task_of(args: argparse.Namespace) -> Task:
    """The task the options name."""
    return load_task(
        args.task,
        data=args.data,
        split=args.split,
        template=args.prompt,
        answers=args.answers,
        execute=args.execute,
    )


def items_asked(args: argparse.Namespace, task: Task) -> int:
    """How many problems: as asked, else the usual number or all that there are."""
    if args.n is not None:
        return int(args.n)
    return USUAL_N if task.size is None else min(USUAL_N, task.size)


def decoding_of(args: argparse.Namespace) -> Decoding:
    """How tokens are chosen."""
    return Decoding(args.temperature, args.seed, args.top_p, args.top_k, args.min_p)


def style_of(args: argparse.Namespace) -> str | None:
    """The style asked for; the models in the box have one always."""
    if args.model is None and args.url is None:
        args.model = USUAL_MODEL
    if args.style is None and args.model in models.available():
        return "instruct"
    style: str | None = args.style
    return style


def engine_of(args: argparse.Namespace) -> Any:
    """The engine the options name."""
    options = {} if args.style is None else {"enable_thinking": args.style == "thinking"}
    markers = {} if args.think is None else {"markers": parse_markers(args.think)}
    if args.engine is not None and (args.engine == "http") != (args.url is not None):
        raise ValueError("--engine http and --url go together")
    file = None if args.url is not None else gguf_of(args.model)
    if args.engine == "llamacpp":
        return _checked_style(args, _in_process(args, file, options, markers))
    if args.url is not None or file is not None:
        return _checked_style(args, _server(args, file, options, markers))
    engine = engine_for(
        args.model,
        args.bits,
        template_options=options,
        device=args.device,
        compute_dtype=args.compute_dtype,
        system=args.system,
        **markers,
    )
    return _checked_style(args, engine)


def _in_process(args: argparse.Namespace, file: Path | None, options: dict[str, Any], markers: dict[str, Any]) -> Any:
    """A GGUF file in this process."""
    if file is None:
        raise ValueError(
            f"--engine llamacpp runs GGUF files, and {args.model} is none: --model FILE.gguf, as bitcal export "
            f"{args.model if args.model in models.available() else USUAL_MODEL} --gguf Q4_K --out FILE.gguf writes it"
        )
    try:
        from bitcal_tts.engines.gguf_engine import LlamaCppEngine
    except ImportError as error:
        raise EngineError(
            f"--engine llamacpp needs llama-cpp-python ({error}): pip install llama-cpp-python, which takes some ten "
            "minutes to build; without --engine the same file runs in a server that comes as a wheel"
        ) from None
    return LlamaCppEngine(file, bits=args.bits, system=args.system, template_options=options, **markers)


def _server(args: argparse.Namespace, file: Path | None, options: dict[str, Any], markers: dict[str, Any]) -> Any:
    """The server that was named, or one of our own for a GGUF file."""
    from bitcal_tts.engines.http import HttpEngine

    for name in ("device", "compute_dtype"):
        if getattr(args, name) is not None:
            raise ValueError(f"--{name.replace('_', '-')} is the server's to choose: leave it out with --url")
    owned = None if file is None else OwnServer(file, parallel=min(args.batch, 8))
    return HttpEngine(
        args.url if owned is None else owned.url,
        owned=owned,
        model=args.model if owned is None else None,
        bits=args.bits,
        top=args.top_logprobs,
        system=args.system,
        template_options=options,
        api=args.api,
        api_key=os.environ.get(API_KEY_VARIABLE),
        **markers,
    )


def _checked_style(args: argparse.Namespace, engine: Any) -> Any:
    """The engine, where its model is rendered as it was asked for."""
    read = engine.style
    if args.style is not None and args.style != read:
        raise EngineError(
            f"--style {args.style} was asked for, but {args.model or args.url} is rendered as {read}: its chat "
            "template has no say in that; leave --style out, or name its think markers with --think OPEN,CLOSE"
        )
    return engine


def engine_for(
    model: str,
    bits: float | None,
    *,
    template_options: dict[str, Any],
    device: str | None,
    compute_dtype: str | None,
    **more: Any,
) -> Any:
    """A model by name, folder or hub id at a precision; None is 4 bits, or what a quantized checkpoint has."""
    source = models.resolve(model)  # a name that is wrong is told before the seconds that the imports take
    from bitcal_tts.engines.checkpoint import load_checkpoint
    from bitcal_tts.engines.transformers import TransformersEngine

    _quiet_transformers()
    if not Path(source).exists():
        note(f"{source} is no folder here: asking the hub for it")
    try:
        checkpoint = load_checkpoint(
            source,
            bits=bits,
            usual_bits=4,
            device=device,
            compute_dtype=compute_dtype,
            template_options=template_options,
            name=model,
            **more,
        )
    except EngineError as error:
        if "/" in model or model in models.available():
            raise
        raise EngineError(f"{str(error).rstrip('.')}; models in the box: {', '.join(models.available())}") from error
    return TransformersEngine(checkpoint)


def _quiet_transformers() -> None:
    """Its bars and notes would stand between ours."""
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()


def budgets_of(asked: Sequence[int] | None, profile: Path | None, opened: Opened) -> list[int]:
    """Caps on new tokens: as asked, as a profile was fitted for, or as recorded.

    Of a log nobody knows a cap: its longest text stands for it, and another log has another. A recording that was cut
    off earlier than the profile allows is not replayed past its end.
    """
    if asked:
        return list(asked)
    recorded: int = opened.description["budget"]
    fitted = None if profile is None else load_profile(profile).identity["budget"]
    if not isinstance(fitted, int) or (fitted > recorded and not opened.identity.is_log):
        return [recorded]
    if fitted != recorded and not opened.identity.is_log:
        note(f"note: at {fitted:,} tokens, the budget that {profile} was fitted for; --budgets {recorded} is all of it")
    return [fitted]


def methods_of(args: argparse.Namespace, opened: Opened, budgets: Sequence[int], *, swept: bool = False) -> list[Any]:
    """A method for every name and budget; a rule must have a threshold unless it will be swept."""
    description = opened.description
    overrides = dict(map(parse_override, args.overrides))
    profile = load_profile(args.profile) if args.profile else None
    names = args.methods or _usual_methods(opened, settled=profile is not None)
    _check_overrides(overrides, names, description, budgets[0])
    opening, close = description.get("thinking") or (None, None)
    usual = {
        "chunk_size": description["chunk_size"],
        "min_tokens": floor_of(args.min_tokens, description, opened.traces),
        "every": every_of(description),
        "answers": opened.task.format.name,
        "opening": opening,
        "close": close,
    }
    methods = []
    for name in names:
        if name == "settled" and profile is not None:
            _mention_fitted(profile, opened.traces)
        given = _parameters(args, name, usual, overrides, profile)
        made = [build_method(name, bits=description["bits"], budget=budget, **given) for budget in budgets]
        for method in made:  # a profile that is refused should not cost a replay
            method.check(opened.identity.with_known(budget=method.parameters.budget))
        if not swept and isinstance(made[0], Rule) and math.isinf(made[0].parameters.threshold):
            some = made[0].thresholds()
            example = f"--set {name}.threshold={some[len(some) // 2]:g}"
            raise ValueError(f"{name} has no threshold of its own: give one, such as {example}, or use bitcal compare")
        methods += made
    return sorted(methods, key=lambda method: budgets.index(method.parameters.budget))


def live_methods(args: argparse.Namespace, engine: Any) -> list[Any]:
    """The methods the options name, for requests that are decoded now."""
    markers = engine.thinking
    description = {"bits": engine.bits, "model": args.model or args.url}
    overrides = dict(map(parse_override, args.overrides))
    profile = load_profile(args.profile) if args.profile else None
    names = args.methods or ["landed"]
    _check_overrides(overrides, names, description, args.budget)
    usual = {
        "min_tokens": floor_of(args.min_tokens, description, []),
        "answers": args.answers or "gsm8k",
        "opening": None if markers is None else markers.opening,
        "close": None if markers is None else markers.close,
    }
    given = {name: _parameters(args, name, usual, overrides, profile) for name in names}
    return [build_method(name, bits=engine.bits, budget=args.budget, **given[name]) for name in names]


def _parameters(
    args: argparse.Namespace,
    name: str,
    usual: dict[str, Any],
    overrides: dict[str, Any],
    profile: Profile | None,
) -> dict[str, Any]:
    """Of what is usual what a method takes, or its profile; then what the options ask for."""
    mine = {key: value for key, value in usual.items() if key in parameters_of(name)}
    if name not in PAPER:
        mine.pop("chunk_size", None)  # these look at every token that an engine hands over
    if name == "settled" and profile is not None:
        mine = {"profile": profile, "force": args.force, "declare": declared(args)}  # the rest is the profile's
    asked = {} if args.chunk_size is None else {"chunk_size": args.chunk_size}
    return {**mine, **asked, **_overrides_of(name, overrides)}


def _usual_methods(opened: Opened, *, settled: bool) -> list[str]:
    """The paper's, ours, and where it is known what the model answers when its budget runs out, the baseline.

    Those that need signals which were not recorded are left out, and named.
    """
    probed = bool(opened.traces) and opened.traces[0].probes is not None
    lacking = opened.traces[0].signals.lacks({Signal.ENTROPY, Signal.HIDDEN}) if opened.traces else []
    paper = [name for name in PAPER if name == "fixed" or not lacking]
    if lacking:
        words = " and ".join(signal.words for signal in lacking)
        note(f"note: without {words}, {' and '.join(PAPER[1:])} cannot be replayed: left out")
    return [*(["landed"] if probed else []), *paper, "complete", *(["settled"] if settled else [])]


def _check_overrides(overrides: dict[str, Any], names: Sequence[str], description: dict[str, Any], budget: int) -> None:
    """Refuse what no method takes."""
    for key, value in overrides.items():
        method, _, parameter = key.rpartition(".")
        if parameter in ("bits", "budget"):
            raise ValueError(f"{parameter} cannot be set: bits come with the traces, budgets with --budgets")
        if method and method not in names:
            raise ValueError(f"--set {key}: {method!r} is none of the methods, {', '.join(names)}")
        takers = [method] if method else names
        if not any(parameter in parameters_of(name) for name in takers):
            build_method(
                takers[0], bits=description["bits"], budget=budget, **{parameter: value}
            )  # says what it would take


def _overrides_of(name: str, overrides: dict[str, Any]) -> dict[str, Any]:
    """What is set of a method: NAME of all that have it, then METHOD.NAME."""
    everybody = {key: value for key, value in overrides.items() if key in parameters_of(name)}
    own = {key.removeprefix(f"{name}."): value for key, value in overrides.items() if key.startswith(f"{name}.")}
    return {**everybody, **own}


def every_of(description: dict[str, Any]) -> int:
    """Tokens between boundaries: 16, or what a recording was probed at where 16 is no multiple of that."""
    probed = boundaries_of(description)
    return 16 if 16 % probed == 0 else probed


def known_items(method: Any, traces: Sequence[Trace]) -> frozenset[str]:
    """The items among traces that a method's profile was fitted or certified on."""
    profile = getattr(method.parameters, "profile", None)
    return frozenset() if profile is None else frozenset(chain(*_met(profile, traces).values()))


def _met(profile: Profile, traces: Sequence[Trace]) -> dict[str, list[str]]:
    """Items of traces that a profile has met, by what was done on them."""
    marks = [(trace.item.id, mark_of(trace)) for trace in traces]
    return {done: [item for item, mark in marks if mark in questions] for done, questions in profile.met.items()}


def _mention_fitted(profile: Profile, traces: Sequence[Trace]) -> None:
    """Say so where a profile meets items that its scorer has seen."""
    mention_met({done: len(again) for done, again in _met(profile, traces).items()}, len(traces), "items")


def floor_of(asked: str | int | None, description: dict[str, Any], traces: Sequence[Trace]) -> int:
    """The floor m: as asked, by model, or `auto`: the mean number of tokens up to the first marker."""
    if asked is None:
        return models.MIN_TOKENS if str(description["model"]).startswith(models.PREFIX) else DEFAULT_MIN_TOKENS
    if asked != "auto":
        try:
            return int(asked)
        except ValueError:
            raise ValueError(f"min_tokens must be a whole number or auto, got {asked!r}") from None
    if not traces:
        raise ValueError("min_tokens auto is the mean of recorded solutions: give a number where nothing is recorded")
    lengths = [_solution_length(trace) for trace in traces]
    return round(sum(lengths) / len(lengths))


def _solution_length(trace: Trace) -> int:
    at = trace.text.find("####")
    if at < 0:
        return len(trace)
    return int((trace.offsets <= at).sum())
