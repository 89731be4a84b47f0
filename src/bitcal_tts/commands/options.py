"""Options that several commands share, and how their text is read."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from bitcal_tts.halting.answers import FORMATS
from bitcal_tts.halting.methods import METHODS
from bitcal_tts.halting.rules import RULES
from bitcal_tts.halting.signals import TOP
from bitcal_tts.tasks.registry import TASKS

USUAL_N = 200
USUAL_MODEL = "tiny-15m"
API_KEY_VARIABLE = "BITCAL_API_KEY"


def positive(text: str) -> int:
    """A whole number of at least 1."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, got {text or 'nothing'}")
    return value


def add_model_options(parser: argparse.ArgumentParser) -> None:
    """What to decode, and how."""
    group = parser.add_argument_group("model and task")
    add_engine_options(group)
    group.add_argument(
        "--task",
        default="gsm_symbolic",
        help=f"{', '.join(TASKS)}, or a reasoning-gym name such as chain_sum:max_terms=2 (%(default)s)",
    )
    group.add_argument(
        "--data",
        metavar="FILE",
        help="a local JSONL file with question and answer, for --task jsonl, choice and code; for gsm8k and math, in "
        "place of the hub",
    )
    group.add_argument(
        "--split",
        default="test",
        help="test, calibration or train; of gsm_symbolic also unseen, templates that no model in the box was trained "
        "on (%(default)s)",
    )
    add_answers(group, "the task's own")
    group.add_argument(
        "--execute", action="store_true", help="task code: run the Python the model writes, in a limited subprocess"
    )
    group.add_argument("--prompt", metavar="FILE", help="a prompt template with {question} in it")
    group.add_argument("--n", type=positive, help=f"number of problems ({USUAL_N}, or as many as the task has)")
    group.add_argument("--skip-long", action="store_true", help="leave out problems that do not fit into the model")


def add_engine_options(group: Any) -> None:
    """What decodes, and how it chooses tokens."""
    group.add_argument(
        "--model",
        help=f"tiny-1m, tiny-4m, tiny-15m, a folder, or a hub id ({USUAL_MODEL}); with --url, which of the server's",
    )  # fmt: skip
    group.add_argument(
        "--engine",
        choices=("transformers", "http", "llamacpp"),
        help="what decodes (transformers; http where there is a --url; llamacpp is llama.cpp in this process)",
    )
    group.add_argument("--url", help="an OpenAI-compatible server, such as http://127.0.0.1:8080; its key, "
                       f"if it has one, is read from {API_KEY_VARIABLE}")  # fmt: skip
    group.add_argument("--api", choices=("llamacpp", "vllm", "chat"), help="what the server speaks, chat being what "
                       "all of them share (found by asking it)")  # fmt: skip
    group.add_argument(
        "--top-logprobs", type=int, default=TOP, metavar="K",
        help="likeliest tokens to ask a server for; a whole vocabulary gives the full distribution (%(default)s)",
    )  # fmt: skip
    group.add_argument(
        "--bits", type=float,
        help="weight precision: 2, 3, 4, 5, 6, 8, 16 or 32 (4; a checkpoint that comes quantized has its own)",
    )  # fmt: skip
    group.add_argument(
        "--style", choices=("instruct", "thinking"), help="what the chat template's enable_thinking is set to"
    )
    group.add_argument("--system", metavar="TEXT", help="a system prompt for every problem")
    group.add_argument(
        "--think", metavar="OPEN,CLOSE", help="think markers, or none (found from the tokenizer and chat template)"
    )
    group.add_argument("--seed", type=int, default=0, help="chooses the problems, and the samples (%(default)s)")
    group.add_argument("--temperature", type=float, default=0.0, help="0 decodes greedily (%(default)s)")
    group.add_argument(
        "--top-p", type=float, default=1.0, help="sample from the likeliest with this mass (%(default)s)"
    )
    group.add_argument(
        "--top-k", type=int, default=0, help="sample from so many of the likeliest; 0: all (%(default)s)"
    )
    group.add_argument("--min-p", type=float, default=0.0, help="least probability relative to the best (%(default)s)")
    group.add_argument("--batch", type=positive, default=100, help="rows decoded together (%(default)s)")
    group.add_argument("--device", help="cpu or cuda (cuda where there is one)")
    group.add_argument("--compute-dtype", help="float32, bfloat16 or float16 (what the device multiplies natively)")


def add_method_options(
    parser: argparse.ArgumentParser,
    usual: str = "the paper's three and complete; landed too where traces were probed, settled with --profile",
) -> None:
    """Which methods, with which parameters.

    Args:
        parser: Of a command.
        usual: The methods that it takes where none is named, in words.
    """
    group = parser.add_argument_group("methods")
    group.add_argument(
        "--methods", type=_names, default=None,
        help=f"comma-separated: {', '.join(METHODS)}, or a peer's rule: {', '.join(RULES)} ({usual})",
    )  # fmt: skip
    group.add_argument("--profile", metavar="FILE", help="what bitcal fit wrote, for the method settled")
    group.add_argument(
        "--force", action="store_true", help="use a profile on what it was not fitted on; its promise is void there"
    )
    add_declare(group)
    group.add_argument(
        "--chunk-size", type=positive, help="k: tokens between decisions (16 for the paper's methods, 1 for the others)"
    )
    group.add_argument("--min-tokens", help="the floor: a number, or auto for the mean solution length (by model)")
    group.add_argument(
        "--set", dest="overrides", action="append", default=[], metavar="NAME=VALUE",
        help="any other parameter of the methods that have it, or of one: --set tail=false --set deer.threshold=0.97",
    )  # fmt: skip


def add_answers(parser: Any, usual: str) -> None:
    """How answers are written."""
    parser.add_argument("--answers", metavar="FORMAT", help=f"answer format: {', '.join(FORMATS)} ({usual})")


def add_declare(parser: Any) -> None:
    """What cannot be read, told."""
    parser.add_argument(
        "--declare", action="append", default=[], metavar="KEY=VALUE",
        help="what was recorded or is served, where that is unknown: --declare compute_dtype=bfloat16",
    )  # fmt: skip


def folder(text: str) -> Path:
    """A folder, there or not; a file in its place is named at once."""
    place = Path(text)
    if place.is_file():
        raise argparse.ArgumentTypeError(f"{place} is a file: a folder is meant")
    return place


def file(text: str) -> Path:
    """A file, there or not; a folder in its place is named at once."""
    place = Path(text)
    if text and place.is_dir():
        raise argparse.ArgumentTypeError(f"{place} is a folder: a file is meant, such as {place / 'NAME'}")
    return place


def add_block(parser: Any, usual: str) -> None:
    """How many items are kept together while recording."""
    parser.add_argument("--block", type=positive, help=f"items written together: what an interruption loses ({usual})")


def add_overwrite(parser: Any) -> None:
    """Leave to replace what is there."""
    parser.add_argument("--overwrite", action="store_true", help="replace other results that are there")


def add_full(parser: Any, what: str = "print all of the paper's measures and the paired tests") -> None:
    """All there is to say."""
    parser.add_argument("--full", action="store_true", help=what)


def declared(args: argparse.Namespace) -> dict[str, Any]:
    """What was declared, by key."""
    return dict(parse_override(text, "--declare") for text in args.declare)


def add_budgets(parser: argparse.ArgumentParser, default: list[int] | None) -> None:
    """Caps on new tokens."""
    shown = ",".join(map(str, default)) if default else "the recorded one"
    parser.add_argument(
        "--budgets", type=_budgets, default=default, help=f"comma-separated caps on new tokens ({shown})"
    )


def add_probes(parser: argparse.ArgumentParser) -> None:
    """Whether to make the model answer along the way."""
    parser.add_argument(
        "--probes", type=positive, nargs="?", const=16, metavar="K",
        help="also make the model answer every K tokens (16) and at stated answers, for methods that end thinking",
    )  # fmt: skip


def add_ray(parser: argparse.ArgumentParser) -> None:
    """Whether to decode on a cluster."""
    parser.add_argument(
        "--ray", metavar="ADDRESS", help="decode on a Ray cluster: auto, host:6379, ray://host:10001, or local"
    )
    parser.add_argument(
        "--ray-workers", type=int, metavar="N", help="engines on the cluster (one a GPU, or one for two cores)"
    )


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


def parse_override(text: str, option: str = "--set") -> tuple[str, Any]:
    """NAME=VALUE of --set."""
    name, equals, value = text.partition("=")
    if not equals:
        raise ValueError(f"{option} takes NAME=VALUE, got {text!r}")
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
