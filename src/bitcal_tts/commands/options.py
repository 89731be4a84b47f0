"""Options and steps that several commands share."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bitcal_tts.engines.base import EngineError
from bitcal_tts.engines.thinking import parse_markers
from bitcal_tts.halting.answers import FORMATS
from bitcal_tts.halting.methods import METHODS, PAPER, build_method, parameters_of
from bitcal_tts.halting.profile import Profile, ProfileError
from bitcal_tts.halting.rules import RULES
from bitcal_tts.tasks import Task, load_task
from bitcal_tts.tasks.registry import TASKS
from bitcal_tts.tiny import models
from bitcal_tts.traces.replay import answer_options
from bitcal_tts.traces.schema import Trace

DEFAULT_MIN_TOKENS = 128


def add_model_options(parser: argparse.ArgumentParser) -> None:
    """What to decode, and how."""
    group = parser.add_argument_group("model and task")
    group.add_argument(
        "--model", default="tiny-15m", help="tiny-1m, tiny-4m, tiny-15m, a folder, or a hub id (%(default)s)"
    )
    group.add_argument(
        "--bits", type=float, default=4, help="weight precision: 2, 3, 4, 5, 6, 8, 16 or 32 (%(default)s)"
    )
    group.add_argument(
        "--task", default="gsm_symbolic", help=f"{', '.join(TASKS)} or a reasoning-gym name (%(default)s)"
    )
    group.add_argument("--data", metavar="FILE", help="a local JSONL file with question and answer")
    group.add_argument("--split", default="test", help="test, calibration or train (%(default)s)")
    group.add_argument(
        "--style", choices=("instruct", "thinking"), help="what the chat template's enable_thinking is set to"
    )
    group.add_argument("--answers", help=f"answer format: {', '.join(FORMATS)} (the task's own)")
    group.add_argument(
        "--execute", action="store_true", help="task code: run the Python the model writes, in a limited subprocess"
    )
    group.add_argument(
        "--think", metavar="OPEN,CLOSE", help="think markers, or none (found from the tokenizer and chat template)"
    )
    group.add_argument("--prompt", metavar="FILE", help="a prompt template with {question} in it")
    group.add_argument("--n", type=int, default=200, help="number of problems (%(default)s)")
    group.add_argument("--seed", type=int, default=0, help="chooses the problems, and the samples (%(default)s)")
    group.add_argument("--temperature", type=float, default=0.0, help="0 decodes greedily (%(default)s)")
    group.add_argument("--batch", type=int, default=100, help="rows decoded together (%(default)s)")
    group.add_argument("--device", help="cpu or cuda (cuda where there is one)")
    group.add_argument("--compute-dtype", help="float32, bfloat16 or float16 (what the device multiplies natively)")


def add_method_options(parser: argparse.ArgumentParser) -> None:
    """Which methods, with which parameters."""
    group = parser.add_argument_group("methods")
    group.add_argument(
        "--methods", type=_names, default=None,
        help=f"comma-separated: {', '.join(METHODS)}, or a peer's rule: {', '.join(RULES)} "
        "(the paper's three and complete; settled too with --profile)",
    )  # fmt: skip
    group.add_argument("--profile", metavar="FILE", help="what bitcal fit wrote, for the method settled")
    group.add_argument(
        "--force", action="store_true", help="use a profile on what it was not fitted on; its promise is void there"
    )
    group.add_argument(
        "--chunk-size", type=int, help="k: tokens between decisions (16 for the paper's methods, 1 for the others)"
    )
    group.add_argument("--min-tokens", help="the floor: a number, or auto for the mean solution length (by model)")
    group.add_argument(
        "--set", dest="overrides", action="append", default=[], metavar="NAME=VALUE",
        help="any other parameter of the paper, e.g. --set stop_confidence=0.6 --set tail=false",
    )  # fmt: skip


def add_budgets(parser: argparse.ArgumentParser, default: list[int] | None) -> None:
    """Caps on new tokens."""
    shown = ",".join(map(str, default)) if default else "the recorded one"
    parser.add_argument(
        "--budgets", type=_budgets, default=default, help=f"comma-separated caps on new tokens ({shown})"
    )


def add_probes(parser: argparse.ArgumentParser) -> None:
    """Whether to make the model answer along the way."""
    parser.add_argument(
        "--probes", type=int, nargs="?", const=16, metavar="K",
        help="also make the model answer every K tokens (16) and at stated answers, for rules that end thinking; "
        "0 at stated answers only",
    )  # fmt: skip


def add_json(parser: argparse.ArgumentParser) -> None:
    """Machine-readable output."""
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")


def _names(text: str | list[str]) -> list[str]:
    """Names in the order given, each once."""
    names = text if isinstance(text, list) else [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise argparse.ArgumentTypeError("at least one method is needed")
    return list(dict.fromkeys(names))


def _budgets(text: str | list[int]) -> list[int]:
    """Budgets in rising order, each once."""
    try:
        budgets = [int(part) for part in (text if isinstance(text, list) else text.split(","))]
    except (TypeError, ValueError):
        budgets = []
    if not budgets or min(budgets) < 1:
        wanted = "whole numbers of at least 1, separated by commas"
        raise argparse.ArgumentTypeError(f"budgets must be {wanted}, got {text!r}")
    return sorted(set(budgets))


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


def parse_override(text: str) -> tuple[str, Any]:
    """NAME=VALUE of --set."""
    name, equals, value = text.partition("=")
    if not equals:
        raise ValueError(f"--set takes NAME=VALUE, got {text!r}")
    try:
        parsed = json.loads({"True": "true", "False": "false"}.get(value, value))
    except json.JSONDecodeError:
        parsed = value
    return name.strip().replace("-", "_"), tuple(parsed) if isinstance(parsed, list) else parsed


def read_config(path: str) -> dict[str, Any]:
    """Options from a YAML file; names as on the command line."""
    import yaml

    try:
        loaded = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror}") from None
    except yaml.YAMLError as error:
        raise ValueError(f"{path} is not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(loaded, dict):
        raise ValueError(f"{path} must hold a mapping of option names to values")
    return {str(key).replace("-", "_"): value for key, value in loaded.items()}


@contextmanager
def progress(title: str, total: int, *, quiet: bool) -> Iterator[Any]:
    """A progress bar on standard error; yields advance(items, tokens)."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[tokens]:,} tokens"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    if not (quiet or console.is_terminal):
        note(title)
    with Progress(*columns, console=console, disable=quiet or not console.is_terminal) as bar:
        handle = bar.add_task(title, total=total, tokens=0)
        tokens = 0

        def advance(items: int, new_tokens: int = 0) -> None:
            nonlocal tokens
            tokens += new_tokens
            bar.update(handle, advance=items, tokens=tokens)

        yield advance


def note(text: str) -> None:
    """A line for people, on standard error."""
    print(text, file=sys.stderr, flush=True)
