"""Rows to a table in the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def print_rows(rows: Sequence[dict[str, Any]], title: str) -> None:
    """The table of a run: one line a method and budget."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left", title_style="bold")
    for name in ("budget", "method"):
        table.add_column(name, justify="right" if name == "budget" else "left")
    for name in ("accuracy % [95 % interval]", "tokens", "saved %", "premature %", "lost %", "rescued %"):
        table.add_column(name, justify="right")
    last = None
    for row in rows:
        if last is not None and row["budget"] != last:
            table.add_section()
        last = row["budget"]
        table.add_row(
            str(row["budget"]),
            row["method"],
            f"{100 * row['accuracy']:.1f} [{100 * row['accuracy_low']:.1f}, {100 * row['accuracy_high']:.1f}]",
            f"{row['avg_tokens']:.0f}",
            f"{100 * row['savings']:.1f}",
            f"{100 * row['premature_stop_rate']:.1f}",
            f"{100 * row['lost_correct_rate']:.1f}",
            f"{100 * row['rescued_rate']:.1f}",
        )
    Console(width=110).print(table)
