"""The program `bitcal`."""

from __future__ import annotations

import argparse
import os
import re
import sys
import textwrap
import warnings
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from importlib import import_module
from keyword import iskeyword
from pathlib import Path
from typing import Any, NoReturn

from bitcal_tts import __version__
from bitcal_tts.commands.places import check_writable
from bitcal_tts.commands.progress import note
from bitcal_tts.engines.base import EngineWarning
from bitcal_tts.halting.checks import did_you_mean
from bitcal_tts.halting.drift import DriftWarning
from bitcal_tts.halting.parameters import UnreachableStopWarning
from bitcal_tts.halting.settled import ProfileWarning
from bitcal_tts.openmp import let_go_soon

COMMANDS = {
    "run": "record, replay every method, report: the whole experiment",
    "record": "model x task -> a trace folder (resumable)",
    "replay": "trace folder x methods x budgets -> outcomes",
    "fit": "trace folders -> a profile for the method settled, with its guarantee",
    "compare": "every method and rule of the field on the same traces",
    "cascade": "a cheap and a dear recording of the same items -> what handing over between them comes to",
    "report": "runs -> figures and one HTML page",
    "signals": "how far the confidence can be trusted, and what the precision does to the signals",
    "explain": "one item: its trace, signals, decisions, and what each method would have done",
    "serve": "a sidecar before an OpenAI-compatible server, which stops each generation when its answer is settled",
    "audit": "texts a model has written -> what could have been saved, and what could be promised",
    "import": "logged texts -> a trace folder; released per-item records -> outcomes",
    "export": "a model as a GGUF file for llama.cpp, at one of its precisions",
    "lm-eval": "tasks of lm-evaluation-harness under any method, live",
    "completion": "a script that completes commands and options in your shell",
    "doctor": "what this machine can run, and how to install the rest",
}


_NOTED = (UnreachableStopWarning, DriftWarning, ProfileWarning, EngineWarning)


_START = f"""bitcal {__version__}: stops a reasoning model when its answer is settled,
and promises how often that will be too early.

  bitcal run                    the whole experiment on a model in the box
  bitcal audit LOGS.jsonl       what could be saved on texts that you have
  bitcal serve --demo           a sidecar before a server, with a page to try it
  bitcal serve --upstream URL   the same before your own server
  bitcal doctor                 what this machine can run, and what is missing

All commands: bitcal --help. Each has an example: bitcal COMMAND --help."""


_NUMBERS: dict[Any, str] = {int: "a whole number", float: "a number"}


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """What stands below the options is as wide as they are: sentences are filled, commands go on in the next line."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "\n\n".join(self._filled(part, width) for part in text.split("\n\n"))

    def _filled(self, part: str, width: int) -> str:
        lines = part.splitlines()
        if not any(line.startswith("  ") for line in lines):
            return textwrap.fill(part, width, break_on_hyphens=False)
        return "\n".join(one for line in lines for one in self._command(line, width))

    def _command(self, line: str, width: int) -> list[str]:
        """A command of an example, with a backslash wherever it goes on; what is said of it stands above it then."""
        if len(line) <= width:
            return [line]
        command, _, comment = line.partition("  # ")
        together = re.sub(r"(?<= )(-\S+) (?=[^-])", r"\1\0", command.rstrip())  # an option and its value
        parts = textwrap.wrap(
            together, width - 2, subsequent_indent="      ", break_on_hyphens=False, break_long_words=False
        )
        written = [f"{one} \\" for one in parts[:-1]] + parts[-1:]
        return [*([f"  # {comment}"] if comment else []), *(one.replace("\0", " ") for one in written)]


class _Parser(argparse.ArgumentParser):
    """Errors in one line, options spelled out."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(allow_abbrev=False, **kwargs)

    def error(self, message: str) -> NoReturn:
        note(f"{self.prog}: {message}; see {self.prog} --help")
        raise SystemExit(2)

    def _get_value(self, action: argparse.Action, arg_string: str) -> Any:
        """As argparse does; an empty value is a variable of a script that was not set."""
        try:
            value = super()._get_value(action, arg_string)
        except argparse.ArgumentError:
            kind = _NUMBERS.get(action.type)
            if kind is None:
                raise
            raise argparse.ArgumentError(action, f"must be {kind}, got {arg_string!r}") from None
        if not arg_string.strip() and action.nargs != argparse.PARSER:  # a command's arguments are its own parser's
            raise argparse.ArgumentError(action, "must not be empty")
        return value

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """As argparse does, and with the choice that was perhaps meant."""
        if action.choices is not None and value not in action.choices:
            choices = [str(choice) for choice in action.choices]
            meant = did_you_mean(str(value), choices)
            raise argparse.ArgumentError(action, f"there is no {value!r}{meant or ', only ' + ', '.join(choices)}")

    @property
    def known(self) -> list[str]:
        """The options that there are."""
        return [name for action in self._actions for name in action.option_strings]

    def knows(self, argument: str) -> bool:
        """Whether there is such an option; a lone `--` ends the options."""
        return argument == "--" or argument.partition("=")[0] in self.known

    def refuse_unknown(self, unknown: Sequence[str]) -> NoReturn:
        """Name arguments that there is no option for, and the options that were perhaps meant."""
        misspelt = [text.partition("=")[0] for text in unknown if text.startswith("-") and text not in ("-", "--")]
        if not misspelt:
            self.error(f"takes no more arguments: {' '.join(unknown)} is too much")
        self.error("; ".join(f"there is no option {name}{did_you_mean(name, self.known, '--')}" for name in misspelt))


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; 0 done, 2 bad input, 130 interrupted."""
    let_go_soon()
    os.environ.setdefault("HF_HUB_VERBOSITY", "error")  # it has a note for each time that it tries again
    try:
        return _main(argv)
    except BrokenPipeError:  # whoever read has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt as interrupt:
        note("\n" + "; ".join(["interrupted", *map(str, interrupt.args)]))
        return 130


def _main(argv: Sequence[str] | None) -> int:
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments:
        print(_START, flush=True)
        return 0
    if arguments[0] == "help":
        arguments = [*arguments[1:2], "--help"]
    args = parse(arguments)
    with warnings.catch_warnings():
        for kind in _NOTED:
            warnings.simplefilter("always", kind)
        warnings.showwarning = _notes(full=getattr(args, "full", False))
        return _run(args)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """What a command line asks for; a bad one ends the program with a line that says why."""
    # Only the command that runs is imported: `bitcal doctor` must work where nothing else is installed.
    parser, filled = parser_for(arguments[:1], arguments)
    if not arguments[0].startswith("-") and arguments[0] not in COMMANDS:
        parser.error(f"there is no command {arguments[0]!r}{did_you_mean(arguments[0], COMMANDS)}")
    command = filled.get(arguments[0], parser)
    # What is misspelt before what is missing: the one is often the other.
    own = arguments if command is parser else arguments[1:]
    misspelt = [one for one in own if one.startswith("--") and not command.knows(one)]
    if misspelt:
        command.refuse_unknown(misspelt)
    args, unknown = parser.parse_known_args(arguments)
    if unknown:
        command.refuse_unknown(unknown)
    return args


def parser_for(names: Collection[str], arguments: Sequence[str] = ()) -> tuple[_Parser, dict[str, _Parser]]:
    """The parser of the program, and those of some commands, which alone know their options."""
    parser = _Parser(prog="bitcal", description="Stops a quantized reasoning model when its answer is settled.")
    parser.add_argument("--version", action="version", version=f"bitcal {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True, parser_class=_Parser)
    filled = {}
    for name, summary in COMMANDS.items():
        sub = commands.add_parser(name, help=summary, formatter_class=_Formatter)
        sub.set_defaults(command=name)
        if name in names:
            _fill(sub, name, list(arguments))
            filled[name] = sub
    return parser, filled


def _module(command: str) -> Any:
    """`import` is a word of the language, so its file has another name."""
    return import_module(f"bitcal_tts.commands.{command.replace('-', '_')}{'_' * iskeyword(command)}")


def that_can_run() -> list[str]:
    """Commands for which everything is installed."""
    found = []
    for name in COMMANDS:
        with suppress(ModuleNotFoundError):
            _module(name)
            found.append(name)
    return found


def _fill(sub: argparse.ArgumentParser, name: str, arguments: list[str]) -> None:
    try:
        module = _module(name)
    except ModuleNotFoundError as error:
        if not {"-h", "--help"}.isdisjoint(arguments):
            print(f"bitcal {name}: {COMMANDS[name]}\n\nIts options are shown when it can run: {_missing(error, name)}")
            raise SystemExit(0) from None
        note(f"bitcal {name}: {_missing(error, name)}")
        raise SystemExit(2) from None
    module.add_options(sub)
    told = (module.__doc__ or "").partition(": ")[2].strip()
    sub.description = told[:1].upper() + told[1:]
    sub.epilog = module.EXAMPLE
    config = _config_file(arguments)
    if config is not None:
        _use_config(sub, config)


def _config_file(arguments: list[str]) -> str | None:
    finder = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    finder.add_argument("--config")
    found: str | None = finder.parse_known_args(arguments)[0].config
    return found


def _use_config(sub: argparse.ArgumentParser, path: str) -> None:
    from bitcal_tts.commands.options import read_config

    if not path.strip():
        sub.error("argument --config: must not be empty")
    try:
        values = read_config(path)
    except ValueError as error:
        sub.error(str(error))
    # By the names options have on the command line, checked like a command line.
    actions = {name.lstrip("-").replace("-", "_"): a for a in sub._actions for name in a.option_strings}
    unknown = sorted(values.keys() - actions.keys())
    if unknown:
        sub.error(f"{path} sets unknown options: {', '.join(unknown)}")
    for name, value in values.items():
        action = actions[name]
        if value == "" or value is None:
            sub.error(f"{path}: {name} must not be empty: leave it out")
        many = isinstance(action, argparse._AppendAction)
        if action.type is None and action.nargs != 0:
            if not all(map(_is_plain, value if many and isinstance(value, list) else [value])):
                sub.error(f"{path}: {name} must be {'a text, or a list of them' if many else 'a text'}, got {value!r}")
            value = list(map(str, value)) if isinstance(value, list) else str(value)
        if action.const is True and not isinstance(value, bool):
            sub.error(f"{path}: {name} must be true or false, got {value!r}")
        if many and not isinstance(value, list):
            value = [value]
        if action.choices is not None and value not in action.choices:
            sub.error(f"{path}: {name} must be one of {', '.join(map(str, action.choices))}, got {value!r}")
        try:
            parsed = action.type(_as_typed(value)) if callable(action.type) else value
        except argparse.ArgumentTypeError as error:
            sub.error(f"{path}: {name}: {error}")
        except (TypeError, ValueError):
            sub.error(f"{path}: {name} must be {_NUMBERS.get(action.type, 'one value')}, got {value!r}")
        sub.set_defaults(**{action.dest: parsed})


def _is_plain(value: Any) -> bool:
    """Whether a value could have been typed as a word."""
    return isinstance(value, (str, int, float)) and not isinstance(value, bool)


def _as_typed(value: Any) -> Any:
    """What the option's own reader takes: a list as it is, anything else as text."""
    return value if isinstance(value, list) else str(value)


def _run(args: argparse.Namespace) -> int:
    module = _module(args.command)
    try:
        if isinstance(getattr(args, "out", None), Path):
            check_writable(args.out)
        module.run(args)
    except ModuleNotFoundError as error:
        return _fail(_missing(error, args.command))
    except Exception as error:
        if not _expected(error):
            raise
        return _fail(str(error))
    return 0


def _missing(error: ModuleNotFoundError, command: str) -> str:
    """Which package is not here, and what installs it."""
    from bitcal_tts.commands.doctor import what_installs

    package = (error.name or "").partition(".")[0]
    return (
        f"this needs the package {package}: {what_installs(package, command)} (bitcal doctor says what else is missing)"
    )


def _expected(error: Exception) -> bool:
    """Errors that are about the input or the machine, and say so in one line."""
    names = {"EngineError", "LogError", "TaskError", "TraceError"}
    kinds = {kind.__name__ for kind in type(error).__mro__}
    ours = bool(kinds & names) or isinstance(error, (ValueError, OSError))
    return ours and not isinstance(error, BrokenPipeError)


def _fail(message: str) -> int:
    note(f"bitcal: {message}")
    return 2


def _notes(*, full: bool) -> Callable[..., None]:
    """Shows each warning about a configuration once; what is no more than a note where all is asked for."""
    shown: set[str] = set()

    def show(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
        # What is said of one of the paper's methods holds for the others.
        key = category.__name__ if issubclass(category, UnreachableStopWarning) else str(message)
        if issubclass(category, _NOTED) and key not in shown:
            shown.add(key)
            if not issubclass(category, UnreachableStopWarning):
                note(f"warning: {message}")
            elif full:
                note(f"note: {message}")

    return show


if __name__ == "__main__":
    sys.exit(main())
