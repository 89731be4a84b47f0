"""What people see while they wait, on standard error."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


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
