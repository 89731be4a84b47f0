"""Rows to tables in the terminal."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from textwrap import fill
from typing import Any

from bitcal_tts.evaluation.tables import ENERGY, joules_cell, lost_cell, points

Row = dict[str, Any]
WORDS = ("model", "traces", "method", "against", "verdict", "signal", "boundaries", "rule", "setting")
"""Columns that are no numbers."""
NARROW = 80
WIDE = 110


def print_narrow(rows: Sequence[Row], title: str, targets: Mapping[tuple[str, int], float]) -> None:
    """The table of a run that fits anywhere: what was lost stands against what was promised, where anything was."""
    several = _several_budgets(rows)
    cells = []
    for row in rows:
        lost = lost_cell(row, targets.get((row["method"], row["budget"])))
        cells.append((
            *((str(row["budget"]),) if several else ()), row["method"], f"{100 * row['accuracy']:.1f}",
            f"{row['avg_tokens']:.0f}", f"{100 * row['savings']:.1f}", lost,
        ))  # fmt: skip
    names = (*(("budget",) if several else ()), "method", "accuracy %", "tokens", "saved %", "lost %")
    print_table(title, names, cells, sections=several, width=NARROW)


def print_rows(rows: Sequence[Row], title: str) -> None:
    """The table of a run with all of the paper's measures: one line a method and budget."""
    energy, several = any(map(joules_cell, rows)), _several_budgets(rows)
    names = ("accuracy % [95 % interval]", "tokens", "saved %", "premature %", "lost %", "rescued %")
    cells = [
        (
            *((str(row["budget"]),) if several else ()),
            row["method"],
            f"{100 * row['accuracy']:.1f} [{100 * row['accuracy_low']:.1f}, {100 * row['accuracy_high']:.1f}]",
            f"{row['avg_tokens']:.0f}",
            f"{100 * row['savings']:.1f}",
            f"{100 * row['premature_stop_rate']:.1f}",
            f"{100 * row['lost_correct_rate']:.1f}",
            f"{100 * row['rescued_rate']:.1f}",
            *((joules_cell(row),) if energy else ()),
        )
        for row in rows
    ]
    head = (*(("budget",) if several else ()), "method", *names, *(("joules",) if energy else ()))
    print_table(title, head, cells, sections=several)
    if energy:
        print(fill(ENERGY, NARROW))


def print_comparisons(rows: Sequence[Row]) -> None:
    """Accuracy differences on the same items, with what the paired tests say of them."""
    if not rows:
        return
    several = _several_budgets(rows)
    cells = [
        (
            *((str(row["budget"]),) if several else ()),
            row["method"],
            row["against"],
            f"{points(row['difference'])} [{points(row['difference_low'])}, {points(row['difference_high'])}]",
            f"{row['only_method_right']} : {row['only_against_right']}",
            f"{row['p_corrected']:.2g}",
            row["verdict"],
        )
        for row in rows
    ]
    names = ("method", "against", "points [95 % interval]", "won : lost", "p", "verdict")
    title = "Paired differences in accuracy (exact McNemar, Holm-corrected over this table)"
    print_table(title, (*(("budget",) if several else ()), *names), cells, sections=several)


def _several_budgets(rows: Sequence[Row]) -> bool:
    return len({row["budget"] for row in rows}) > 1


def print_table(
    title: str,
    names: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    sections: bool = True,
    width: int = WIDE,
    words: Collection[str] = WORDS,
) -> None:
    """A table, with a rule wherever the first column changes unless told otherwise; no wider than a terminal is.

    Where there is little room, names of columns, intervals and words go on in the next line; where that is
    still too little, lines between columns are left out. Nothing is cut off, and no number is broken.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    terminal = Console()
    width = min(width, max(NARROW, terminal.width)) if terminal.is_terminal else width
    columns = list(zip(names, *rows, strict=True))
    narrow = sum(3 + max(map(len, column)) for column in columns) >= width
    if narrow:
        columns = [(name, *(cell.replace(" [", "\n[") for cell in cells)) for name, *cells in columns]
    worded = [name in words for name in names]
    lines, widths = True, _widths(columns, worded, width - 1 - 3 * len(columns))
    if sum(widths) > width - 1 - 3 * len(columns):
        lines, widths = False, _widths(columns, worded, width - 2 * len(columns))
    table = Table(
        box=box.HEAVY_HEAD if lines else box.SIMPLE_HEAD, pad_edge=lines, padding=(0, 1) if lines else (0, 1, 0, 0)
    )
    for i, ((name, *cells), word) in enumerate(zip(columns, worded, strict=True)):
        head = fill(name, widths[i]) if narrow else name
        table.add_column(head, justify="left" if word else "right", overflow="fold", no_wrap=word)
        if word and narrow:
            columns[i] = (name, *(_folded(cell, widths[i]) for cell in cells))
    for i, row in enumerate(rows):
        if sections and i and row[0] != rows[i - 1][0]:
            table.add_section()
        table.add_row(*(Text(column[1 + i]) for column in columns))  # no text is markup
    console = Console(width=width)
    if title:
        console.print(Text(fill(title, width), style="bold"))  # a line of its own, which may be wider than the table
    console.print(table)


def _widths(columns: Sequence[Sequence[str]], words: Sequence[bool], room: int) -> list[int]:
    """How wide columns are: numbers as they need it, words as far as there is room, but never broken."""
    widths = [
        max([_longest(name), *(len(line) for cell in cells for line in cell.split("\n"))]) for name, *cells in columns
    ]
    least = [
        max(map(_longest, column)) if word else width
        for column, word, width in zip(columns, words, widths, strict=True)
    ]
    while sum(widths) > room and widths != least:
        spare = [width if width > need else 0 for width, need in zip(widths, least, strict=True)]
        widths[spare.index(max(spare))] -= 1
    return widths


def _folded(cell: str, room: int) -> str:
    """Words in lines; of names that are equal, each stays in one where there is room."""
    names = cell.split(" = ")
    together = " = ".join(name.replace(" ", "\0") for name in names)
    return fill(together if max(map(len, names)) + 2 <= room else cell, room).replace("\0", " ")


def _longest(text: str) -> int:
    """Letters of its longest word, at least one."""
    return max(map(len, text.split()), default=1)
