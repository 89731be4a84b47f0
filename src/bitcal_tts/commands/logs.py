"""A log as commands take it: its columns found, its faults told, its format known."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bitcal_tts.commands.progress import note
from bitcal_tts.halting.answers import FORMATS
from bitcal_tts.logs import Columns, Fault, LoggedText, read_texts
from bitcal_tts.logs.guessing import closing_of, format_of, opening_of
from bitcal_tts.logs.texts import NO_QUESTION

_SCANNED = 500
_TOLD_FAULTS = 5
_LARGE = 1 << 26
_COLUMNS = (
    ("question", "the question"),
    ("response", "the response"),
    ("answer", "the gold answer"),
    ("model", "the model's name"),
    ("id", "the record's name"),
)


def add_columns(parser: Any) -> None:
    """How the records of a log are read."""
    group = parser.add_argument_group("how a log is read (found, where it is not told)")
    for name, what in _COLUMNS:
        group.add_argument(f"--{name}", metavar="NAME", help=f"column with {what}; dots lead inside")
    group.add_argument("--tokenizer", metavar="FILE|HUB_ID", help="counts the tokens (default: an approximation)")
    group.add_argument(
        "--answers", choices=tuple(FORMATS), metavar="FORMAT", help=f"how answers are written: {', '.join(FORMATS)}"
    )
    group.add_argument("--close", metavar="MARK", help="what ends the thinking, such as </think>")


def columns_of(args: argparse.Namespace) -> Columns:
    """The columns that were told."""
    return Columns(args.question, args.response, args.answer, args.model, args.id)


def as_told(args: argparse.Namespace) -> str:
    """The same options for another command, as one would type them."""
    names = (*(name for name, _ in _COLUMNS), "tokenizer", "answers", "close")
    told = [f" --{name} {shlex.quote(value)}" for name in names if (value := getattr(args, name)) is not None]
    return "".join(told)


class Log:
    """A file of texts, read once to know what it holds, and then as often as needed.

    Args:
        path: The file.
        columns: Names of its columns, as far as they are told.
        gold: Whether records need a gold answer.
        answers: The answer format; None is found.
        close: What ends the thinking; None is found.

    Attributes:
        n: Texts that can be used.
        characters: Of their responses.
        faults: Records that cannot.
        model: What wrote them, as far as the log says.
        opening: What begins the thinking; None where texts begin inside it, or do not think.
    """

    def __init__(self, path: Path, columns: Columns, *, gold: bool, answers: str | None, close: str | None) -> None:
        self.path, self._columns, self._gold = path, columns, gold
        first: list[LoggedText] = []
        told: list[Fault] = []
        self.n = self.characters = self.faults = 0
        size = path.stat().st_size if path.is_file() else 0
        if size >= _LARGE:
            note(f"looking through {path}, {size / 2**20:,.0f} MiB")
        for text in read_texts(path, columns, gold=gold):
            if isinstance(text, LoggedText):
                self.n += 1
                self.characters += len(text.response)
                first += [text] * (len(first) < _SCANNED)
            else:
                self.faults += 1
                told += [text] * (len(told) < _TOLD_FAULTS)
        if not first:
            why = f"; record {told[0].line} of {self.faults} {told[0].why}" if told else ""
            if told and told[0].why == NO_QUESTION:
                why += " (--question NAME says which column it is in; OpenAI's batch output has none, its input has)"
            raise ValueError(f"{path} holds no text that can be used{why}")
        for fault in told:
            note(f"note: {path}, record {fault.line} {fault.why}: it is left out")
        if self.faults > len(told):
            note(f"note: {path}: {self.faults} of {self.n + self.faults} records are left out in all")
        self.model = next((text.model for text in first if text.model), None)
        self.answers = answers or format_of(first)
        responses = [text.response for text in first]
        self.close = close or closing_of(responses)
        self.opening = opening_of(responses, self.close)

    def texts(self) -> Iterator[LoggedText]:
        """The texts that can be used, in order."""
        return (text for text in read_texts(self.path, self._columns, gold=self._gold) if isinstance(text, LoggedText))
