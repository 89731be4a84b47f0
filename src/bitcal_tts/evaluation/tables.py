"""The paper's three tables from summary rows, in its layout, as Markdown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

Row = dict[str, Any]
_CONTROLLED = ("adaptive", "bitcal_tts")
ENERGY = (
    "joules: energy an answer, measured for decoding to the end; ~ in proportion to the tokens, which is more than "
    "stopping saves where a device is not full"
)


def paper_tables(rows: Sequence[Row]) -> str:
    """Table 1 at the largest budget that all models share, or of each at its own; then their sweeps over budgets."""
    models = split(rows)
    shared = set.intersection(*map(_budgets, models.values()))
    parts = ["# Tables in the paper's layout"]
    if shared:
        parts.append(f"## Table 1: B = {max(shared)}\n\n{main_table(rows, max(shared))}")
    else:
        largest = {name: max(_budgets(part)) for name, part in models.items()}
        parts += [f"## {name}: B = {b}\n\n{main_table(models[name], b)}" for name, b in largest.items()]
    for name, part in models.items():
        if len(_budgets(part)) > 1:
            parts.append(f"## {name} across budgets\n\n{budget_sweep(part)}")
            parts.append(f"## {name} across budgets, savings\n\n{partial_sweep(part)}")
    return "\n\n".join(parts) + "\n"


def split(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Rows by what was decoded: model, bits, and style and temperature where they are told."""
    parts: dict[str, list[Row]] = {}
    for row in rows:
        parts.setdefault(name_of(row), []).append(row)
    return parts


def name_of(row: Row) -> str:
    """What was decoded, in a few words."""
    style = f", {row['style']}" if row.get("style") else ""
    temperature = f", T={row['temperature']:g}" if row.get("temperature") else ""
    return f"{row['model']} at {row['bits']:g} bits{style}{temperature}"


def main_table(rows: Sequence[Row], budget: int) -> str:
    """Table 1: accuracy with interval, tokens, savings and premature stops at one budget.

    As in the paper, the controlled method with the highest accuracy and the one with the lowest premature-stop rate
    are set in bold within each block. That is typography: whether a difference is resolved, the paired tests say.
    """
    head = ("Model", "Method", "N", "Acc. (%) [95% CI]", "Avg. toks", "Savings (%)", "Prem. stop (%)")
    body: list[Sequence[str] | None] = []
    for name, part in split(rows).items():
        cells = [row for row in part if row["budget"] == budget]
        best = _best(cells, lambda row: row["accuracy"])
        calmest = _best(cells, lambda row: -row["premature_stop_rate"])
        for row in cells:
            accuracy, premature = _pc(row["accuracy"]), _pc(row["premature_stop_rate"])
            interval = f"[{_pc(row['accuracy_low'])}, {_pc(row['accuracy_high'])}]"
            body.append((
                name, row["method"], str(row["n"]), f"{_bold(accuracy, row is best)} {interval}",
                f"{row['avg_tokens']:.0f}", _savings(row), _bold(premature, row is calmest),
            ))  # fmt: skip
        body.append(None)
    return _markdown(head, body)


def budget_sweep(rows: Sequence[Row]) -> str:
    """The budget sweep: accuracy, tokens and premature stops of each method at each budget."""
    head = ("Method", "B", "N", "Acc. (%)", "Avg toks", "Prem. stop (%)")
    return _markdown(head, _swept(rows, lambda row: _pc(row["premature_stop_rate"])))


def partial_sweep(rows: Sequence[Row]) -> str:
    """The partial sweep: accuracy, tokens and savings of each method at each budget."""
    head = ("Method", "B", "N", "Acc. (%)", "Avg toks", "Savings (%)")
    return _markdown(head, _swept(rows, _savings))


def _swept(rows: Sequence[Row], last: Callable[[Row], str]) -> list[Sequence[str] | None]:
    body: list[Sequence[str] | None] = []
    for budget in sorted(_budgets(rows)):
        for row in rows:
            if row["budget"] == budget:
                body.append((
                    row["method"], str(budget), str(row["n"]), _pc(row["accuracy"]), f"{row['avg_tokens']:.0f}",
                    last(row),
                ))  # fmt: skip
        body.append(None)
    return body


def test_cells(test: Row | None) -> tuple[str, str, str]:
    """Points, corrected p-value and verdict of a paired test; empty where there is none."""
    if test is None:
        return ("", "", "")
    return (points(test["difference"]), f"{test['p_corrected']:.2g}", test["verdict"])


def lost_cell(row: Row, target: float | None) -> str:
    """What was lost, in percent, against what was promised where anything was."""
    lost = _pc(row["lost_correct_rate"])
    return lost if target is None else f"{lost} (at most {100 * target:g})"


def joules_cell(row: Row) -> str:
    """Energy an answer; a wave before what was not measured but follows from the tokens."""
    joules = row.get("joules_per_item")
    return "" if joules is None else f"{'' if row['joules_measured'] else '~'}{joules:.3g}"


def points(share: float) -> str:
    """A difference in percentage points, with its sign; none where it rounds to nothing."""
    return f"{round(100 * share, 1) + 0.0:+.1f}"


def _markdown(head: Sequence[str], body: Sequence[Sequence[str] | None]) -> str:
    """A table; None is a rule between blocks, which Markdown draws as an empty row."""
    kept = list(body)
    while kept and kept[-1] is None:
        kept.pop()
    lines = [head, ["---" if i < 2 else "---:" for i in range(len(head))]]
    lines += [row if row is not None else [""] * len(head) for row in kept]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _best(cells: Sequence[Row], key: Callable[[Row], float]) -> Row | None:
    """The one controlled row that beats the others on `key`; None where two share the place."""
    rows = sorted((row for row in cells if row["method"] in _CONTROLLED), key=key, reverse=True)
    if not rows or (len(rows) > 1 and key(rows[0]) == key(rows[1])):
        return None
    return rows[0]


def _budgets(rows: Sequence[Row]) -> set[int]:
    return {row["budget"] for row in rows}


def _bold(text: str, bold: bool) -> str:
    return f"**{text}**" if bold else text


def _savings(row: Row) -> str:
    return "---" if row["method"] == "fixed" else _pc(row["savings"])


def _pc(share: float) -> str:
    return f"{100 * share:.1f}"
