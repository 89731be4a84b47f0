"""What people see while they wait, on standard error."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from shutil import get_terminal_size
from textwrap import fill
from typing import Any, TextIO

_EVERY = 15.0  # seconds between lines
_NUMBERS = 56  # columns that a bar and its numbers take
_TITLE = 30  # what a title may take at least
_SETTLING = 2.0  # seconds in which what was there already is counted
_TELLING = 0.1, 50  # the share, and the number, that tell how long the rest takes: what is over first is the short ones


@contextmanager
def progress(title: str, total: int | None, *, quiet: bool, then: str | None = None) -> Iterator[Any]:
    """A progress bar on standard error; yields advance(items, tokens).

    Args:
        title: What is being done.
        total: How much of it there is; None where that is not known.
        quiet: Show nothing.
        then: What else is done with each, on a bar of its own: advance(items, after=True).
    """
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[tokens]}"),
        TimeElapsedColumn(),
        TextColumn("[cyan]{task.fields[left]}"),
    )
    console = _console()
    if console.is_terminal and not quiet and len(title) > max(_TITLE, console.width - _NUMBERS):
        note(title)
        title = f"{title[: _TITLE - 4]} ..."
    titles = [title] if then is None else [title, then]
    remaining = _Remaining(len(titles) * (total or 0))
    lines = [] if quiet or console.is_terminal else [_Lines(one, total) for one in titles]
    if lines:
        note(title)
    with Progress(*columns, console=console, disable=quiet or not console.is_terminal) as bar:
        handles = [bar.add_task(one, total=total, tokens="", left="") for one in titles]
        tokens = 0

        def advance(items: int, new_tokens: int = 0, *, after: bool = False) -> None:
            nonlocal tokens
            tokens += new_tokens
            bar.update(handles[after], advance=items, tokens="" if after or not tokens else f"{tokens:,} tokens")
            remaining.advance(items)
            bar.update(handles[-1], left=str(remaining))
            if lines:
                lines[after].advance(items)

        over = threading.Event()
        if lines:
            threading.Thread(target=_tell, args=(lines, over), daemon=True).start()
        try:
            yield advance
        finally:
            over.set()
            for one in lines:
                one.end()


def _console() -> Any:
    """Standard error but for two columns: a terminal echoes ^C behind a bar, and one that wraps is drawn twice."""
    from rich.console import Console, ConsoleDimensions

    class Narrower(Console):
        @property  # type: ignore[misc]  # nobody sets it
        def size(self) -> ConsoleDimensions:
            width, height = super().size
            return ConsoleDimensions(max(1, width - 2), height)

    return Narrower(stderr=True)


class _Remaining:
    """How long the rest will take, by what was done so far: of two kinds of work that take turns, for both together."""

    def __init__(self, work: int) -> None:
        self._left, self._done = work, 0
        self._enough = min(_TELLING[0] * work, _TELLING[1])
        self._began = time.monotonic() + _SETTLING

    def advance(self, items: int) -> None:
        """Some more is done."""
        self._left -= items
        if time.monotonic() > self._began:
            self._done += items

    def __str__(self) -> str:
        if not self._done or self._done < self._enough:
            return "-:--:--"
        seconds = (time.monotonic() - self._began) * max(0, self._left) / self._done
        return str(timedelta(seconds=round(seconds)))


def _tell(lines: Sequence[_Lines], over: threading.Event) -> None:
    """Say now and then how far it is, also where for long nothing is finished."""
    while not over.wait(1.0):
        next((one for one in lines if not one.finished), lines[-1]).tell()


class _Lines:
    """A line now and then, where there is no terminal to draw a bar on: a log that somebody watches."""

    def __init__(self, title: str, total: int | None) -> None:
        self._title, self._total, self._done = title, total, 0
        self._began = self._said = time.monotonic()
        self._told: int | None = None
        """How much was done when that was last said; None where nobody has waited so long."""

    def advance(self, items: int) -> None:
        """Some more is done."""
        self._done += items
        self.tell()

    @property
    def finished(self) -> bool:
        """Whether there is no more to do, as far as that is known."""
        return self._total is not None and self._done >= self._total

    def tell(self) -> None:
        """Say how far it is, if nobody has for a while."""
        if time.monotonic() - self._said >= _EVERY:
            self._say()

    def end(self) -> None:
        """Say that all is done, to those who have waited for it."""
        if self.finished and self._told is not None and self._told != self._done:
            self._say()

    def _say(self) -> None:
        self._said, self._told = time.monotonic(), self._done
        of = "" if not self._total else f" of {self._total:,} ({100 * self._done // self._total} %)"
        note(f"{self._title}: {self._done:,}{of}, {self._said - self._began:.0f} s")


def note(text: str) -> None:
    """A line for people, on standard error."""
    print(_between_words(text, sys.stderr), file=sys.stderr, flush=True)


def mention_met(met: Mapping[str, int], n: int, what: str) -> None:
    """Warn of what a profile proves nothing on: by what was done on them, how many."""
    for done, again in met.items():
        if again:
            note(f"warning: the profile was {done} on {again} of these {n} {what}, on which it proves nothing")


def say(text: str) -> None:
    """A line for people, on standard output."""
    print(_between_words(text, sys.stdout))


def suggest(step: str) -> None:
    """What one would do next; a command stays in one piece, so that it can be taken and pasted."""
    line = f"next: {step}"
    if not step.startswith("bitcal "):
        say(line)
        return
    fits = not sys.stdout.isatty() or len(line) <= get_terminal_size().columns
    print(line if fits else f"next:\n{step}")


def _between_words(text: str, stream: TextIO) -> str:
    """A text as a terminal shows it, its lines broken between words; elsewhere as it is: whoever reads it breaks it."""
    if not stream.isatty():
        return text
    width = get_terminal_size().columns
    return "\n".join(fill(line, width, break_long_words=False, break_on_hyphens=False) for line in text.split("\n"))
