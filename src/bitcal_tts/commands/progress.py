"""What people see while they wait, on standard error."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_EVERY = 15.0  # seconds between lines


@contextmanager
def progress(title: str, total: int | None, *, quiet: bool) -> Iterator[Any]:
    """A progress bar on standard error; yields advance(items, tokens). No total: how much there is, is not known."""
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
    lines = None if quiet or console.is_terminal else _Lines(title, total)
    with Progress(*columns, console=console, disable=quiet or not console.is_terminal) as bar:
        handle = bar.add_task(title, total=total, tokens=0)
        tokens = 0

        def advance(items: int, new_tokens: int = 0) -> None:
            nonlocal tokens
            tokens += new_tokens
            bar.update(handle, advance=items, tokens=tokens)
            if lines is not None:
                lines.advance(items)

        yield advance


class _Lines:
    """A line now and then, where there is no terminal to draw a bar on: a log that somebody watches."""

    def __init__(self, title: str, total: int | None) -> None:
        self._title, self._total, self._done = title, total, 0
        self._began = self._said = time.monotonic()
        note(title)

    def advance(self, items: int) -> None:
        """Some more is done."""
        self._done += items
        now = time.monotonic()
        if now - self._said >= _EVERY:
            self._said = now
            of = "" if not self._total else f" of {self._total:,} ({100 * self._done // self._total} %)"
            note(f"{self._title}: {self._done:,}{of}, {now - self._began:.0f} s")


def note(text: str) -> None:
    """A line for people, on standard error."""
    print(text, file=sys.stderr, flush=True)
