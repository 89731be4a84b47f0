"""Options -> the task, the engine and the methods that they name."""

from __future__ import annotations

import argparse
import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bitcal_tts.commands.options import parse_override
from bitcal_tts.commands.progress import note
from bitcal_tts.engines.base import EngineError
from bitcal_tts.engines.thinking import parse_markers
from bitcal_tts.halting.gate import Rule
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
    args: argparse.Namespace,
    identity: dict[str, Any],
    budgets: Sequence[int],
    traces: Sequence[Trace],
    *,
    swept: bool = False,
) -> list[Any]:
    """A method for every name and budget; a rule must have a threshold unless it will be swept."""
    overrides = dict(map(parse_override, args.overrides))
    profile = read_profile(args.profile, identity, budgets, force=args.force) if args.profile else None
    names = args.methods or [*PAPER, "complete", *(["settled"] if profile else [])]
    _check_overrides(overrides, names, identity, budgets[0])
    usual = {
        "chunk_size": identity["chunk_size"],
        "min_tokens": floor_of(args.min_tokens, identity, traces),
        "every": every_of(identity),
        **answer_options(identity),
    }
    found = []
    for name in names:
        mine = {key: value for key, value in usual.items() if key in parameters_of(name)}
        if name not in PAPER:
            mine.pop("chunk_size", None)  # these look at every token that an engine hands over
        told = {} if args.chunk_size is None else {"chunk_size": args.chunk_size}
        told |= _overrides_of(name, overrides)
        if name == "settled" and profile is not None:
            _mention_fitted(profile, traces)
            _protect(told, force=args.force)
            mine.pop("every")  # the profile's
            told |= {"profile": profile, "force": args.force}
        made = [build_method(name, bits=identity["bits"], budget=budget, **{**mine, **told}) for budget in budgets]
        if not swept and isinstance(made[0], Rule) and math.isinf(made[0].parameters.threshold):
            some = made[0].thresholds()
            example = f"--set {name}.threshold={some[len(some) // 2]:g}"
            raise ValueError(f"{name} has no threshold of its own: give one, such as {example}, or use bitcal compare")
        found += made
    return sorted(found, key=lambda method: budgets.index(method.parameters.budget))


def _check_overrides(overrides: dict[str, Any], names: Sequence[str], identity: dict[str, Any], budget: int) -> None:
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
                takers[0], bits=identity["bits"], budget=budget, **{parameter: value}
            )  # says what it would take


def _overrides_of(name: str, overrides: dict[str, Any]) -> dict[str, Any]:
    """What is set of a method: NAME of all that have it, then METHOD.NAME."""
    everybody = {key: value for key, value in overrides.items() if key in parameters_of(name)}
    own = {key.removeprefix(f"{name}."): value for key, value in overrides.items() if key.startswith(f"{name}.")}
    return {**everybody, **own}


def every_of(identity: dict[str, Any]) -> int:
    """Tokens between boundaries: 16, or what a recording was probed at where 16 is no multiple of that."""
    probed = identity.get("probes") or 16
    return 16 if 16 % probed == 0 else int(probed)


def _mention_fitted(profile: Profile, traces: Sequence[Trace]) -> None:
    """Say so where a profile meets items that its scorer has seen."""
    from bitcal_tts.calibration.fit import mark_of

    seen = set(profile.identity.get("fitted_questions", ()))
    again = sum(mark_of(trace) in seen for trace in traces)
    if again:
        note(f"warning: the profile was fitted on {again} of these {len(traces)} items, on which it proves nothing")


def _protect(told: dict[str, Any], *, force: bool) -> None:
    """Refuse settings under which a profile's certificate says nothing, or with `force` protest."""
    if not told:
        return
    what = f"the profile was certified with its own {', '.join(told)}"
    if not force:
        raise ProfileError(f"{what}, so that its promise does not hold with another; use --force to do it all the same")
    note(f"warning: {what}. Another was forced: no promise holds for what follows.")


def read_profile(path: str, identity: dict[str, Any], budgets: Sequence[int], *, force: bool) -> Profile:
    """A profile for a recording; one for something else is refused, or with `force` used under protest."""
    from bitcal_tts.calibration.store import load_profile

    profile = load_profile(Path(path))
    bits = float(identity["bits"])
    errors = []
    for budget in budgets:
        try:
            profile.check({key: value for key, value in identity.items() if key != "bits"}, budget)
        except ProfileError as error:
            errors.append(str(error))
    try:
        profile.threshold(bits)
    except ProfileError as error:
        errors.append(str(error))
    if errors and not force:
        raise ProfileError(f"{errors[0]}, or use --force")
    for refusal in dict.fromkeys(errors):
        note(f"warning: {refusal}. It was forced: no promise holds for what follows.")
    if bits not in profile.thresholds:
        nearest = min(profile.thresholds, key=lambda known: abs(known - bits))
        note(f"warning: the threshold of {nearest:g} bits is used at {bits:g} bits.")
        thresholds = {**profile.thresholds, bits: profile.thresholds[nearest]}
        profile = dataclasses.replace(profile, thresholds=thresholds)
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
