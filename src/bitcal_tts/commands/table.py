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


def print_comparisons(rows: Sequence[dict[str, Any]]) -> None:
    """Accuracy differences on the same items, with what the paired tests say of them."""
    from rich.console import Console
    from rich.table import Table

    if not rows:
        return
    table = Table(title="Paired differences in accuracy (exact McNemar, Holm-corrected)", title_justify="left")
    for name in ("budget", "method", "against", "points [95 % interval]", "won : lost", "p", "verdict"):
        table.add_column(name, justify="left" if name in ("method", "against", "verdict") else "right")
    last = None
    for row in rows:
        if last is not None and row["budget"] != last:
            table.add_section()
        last = row["budget"]
        table.add_row(
            str(row["budget"]),
            row["method"],
            row["against"],
            f"{100 * row['difference']:+.1f} [{100 * row['difference_low']:+.1f}, {100 * row['difference_high']:+.1f}]",
            f"{row['only_method_right']} : {row['only_against_right']}",
            f"{row['p_corrected']:.2g}",
            row["verdict"],
        )
    Console(width=110).print(table)
