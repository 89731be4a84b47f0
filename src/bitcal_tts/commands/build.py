"""Options -> the task, the engine and the methods that they name."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bitcal_tts.commands.options import parse_override
from bitcal_tts.commands.progress import note
from bitcal_tts.engines.base import EngineError
from bitcal_tts.engines.thinking import parse_markers
from bitcal_tts.halting.methods import PAPER, build_method, parameters_of
from bitcal_tts.halting.profile import Profile, ProfileError
from bitcal_tts.tasks import Task, load_task
from bitcal_tts.tiny import models
from bitcal_tts.traces.replay import answer_options
from bitcal_tts.traces.schema import Trace

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


def style_of(args: argparse.Namespace) -> str | None:
    """The style asked for; the models in the box have one always."""
    if args.style is None and args.model in models.available():
        return "instruct"
    style: str | None = args.style
    return style


def engine_of(args: argparse.Namespace) -> Any:
    """The engine the options name."""
    options = {} if args.style is None else {"enable_thinking": args.style == "thinking"}
    markers = {} if args.think is None else {"markers": parse_markers(args.think)}
    return engine_for(
        args.model,
        args.bits,
        template_options=options,
        device=args.device,
        compute_dtype=args.compute_dtype,
        **markers,
    )


def engine_for(
    model: str,
    bits: float,
    *,
    template_options: dict[str, Any],
    device: str | None,
    compute_dtype: str | None,
    **more: Any,
) -> Any:
    """A model by name, folder or hub id at a precision."""
    from bitcal_tts.engines.checkpoint import load_checkpoint
    from bitcal_tts.engines.transformers import TransformersEngine

    _quiet_transformers()
    try:
        checkpoint = load_checkpoint(
            models.resolve(model),
            bits=bits,
            device=device,
            compute_dtype=compute_dtype,
            template_options=template_options,
            name=model,
            **more,
        )
    except EngineError as error:
        if "/" in model or model in models.available():
            raise
        raise EngineError(f"{error}; models in the box: {', '.join(models.available())}") from error
    return TransformersEngine(checkpoint)


def _quiet_transformers() -> None:
    """Its bars and notes would stand between ours."""
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()


def methods_of(
    args: argparse.Namespace, identity: dict[str, Any], budgets: Sequence[int], traces: Sequence[Trace]
) -> list[Any]:
    """A method for every name and budget."""
    overrides = dict(map(parse_override, args.overrides))
    fixed = {"bits", "budget"} & overrides.keys()
    if fixed:
        raise ValueError(f"{fixed.pop()} cannot be set: bits come with the traces, budgets with --budgets")
    profile = read_profile(args.profile, identity, budgets, force=args.force) if args.profile else None
    names = args.methods or [*PAPER, "complete", *(["settled"] if profile else [])]
    taken = {key for name in names for key in parameters_of(name)}
    for key in overrides.keys() - taken:
        # Nobody takes it: the first method says what it would take instead.
        build_method(names[0], bits=identity["bits"], budget=budgets[0], **{key: overrides[key]})
    usual = {**_defaults(args, identity, traces), **overrides}
    if profile is not None:
        usual["profile"] = profile
    found = []
    for budget in budgets:
        for name in names:
            mine = {key: value for key, value in usual.items() if key in parameters_of(name)}
            if name not in PAPER and args.chunk_size is None and "chunk_size" not in overrides:
                mine.pop("chunk_size", None)  # these look at every token that an engine hands over
            found.append(build_method(name, bits=identity["bits"], budget=budget, **mine))
    return found


def _defaults(args: argparse.Namespace, identity: dict[str, Any], traces: Sequence[Trace]) -> dict[str, Any]:
    return {
        "chunk_size": identity["chunk_size"] if args.chunk_size is None else args.chunk_size,
        "min_tokens": floor_of(args.min_tokens, identity, traces),
        **answer_options(identity),
    }


def read_profile(path: str, identity: dict[str, Any], budgets: Sequence[int], *, force: bool) -> Profile:
    """A profile for a recording; one for something else is refused, or with `force` used under protest."""
    from bitcal_tts.calibration.store import load_profile

    profile = load_profile(Path(path))
    try:
        for budget in budgets:
            profile.check(identity, budget)
    except ProfileError as error:
        if not force:
            raise
        bits = float(identity["bits"])
        if bits not in profile.thresholds:  # the nearest precision it knows
            nearest = min(profile.thresholds, key=lambda known: abs(known - bits))
            thresholds = {**profile.thresholds, bits: profile.thresholds[nearest]}
            profile = dataclasses.replace(profile, thresholds=thresholds)
        note(f"warning: {error}. It was forced: no promise holds for what follows.")
    return profile


def floor_of(asked: str | int | None, identity: dict[str, Any], traces: Sequence[Trace]) -> int:
    """The floor m: as asked, by model, or `auto`: the mean number of tokens up to the first marker."""
    if asked is None:
        return models.MIN_TOKENS if str(identity["model"]).startswith(models.PREFIX) else DEFAULT_MIN_TOKENS
    if asked != "auto":
        try:
            return int(asked)
        except ValueError:
            raise ValueError(f"min_tokens must be a whole number or auto, got {asked!r}") from None
    lengths = [_solution_length(trace) for trace in traces]
    return round(sum(lengths) / len(lengths))


def _solution_length(trace: Trace) -> int:
    at = trace.text.find("####")
    if at < 0:
        return len(trace)
    return int((trace.offsets <= at).sum())
