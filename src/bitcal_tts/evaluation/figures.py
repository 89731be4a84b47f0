"""The paper's four figures from summary rows: PDF and PNG, readable in print and without colour."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt

from bitcal_tts.evaluation.drawing import bar, draw_to, legend, line, offset, styles_of
from bitcal_tts.evaluation.tables import name_of

Row = dict[str, Any]
_Group = tuple[str, float, str | None, float | None]
_WIDE = 5  # groups side by side
_NARROW = 3  # groups that a telephone has room for
_INCHES = 7.2, 3.6  # how wide a figure is on paper, and on a telephone
_Label = tuple[str, tuple[float, float]]


def draw_all(rows: Sequence[Row], folder: Path) -> list[Path]:
    """All figures, as PDF and PNG; returns the PNG files."""
    return [draw_to(folder / name, partial(draw, rows)) for name, draw in _drawings(rows).items()]


def draw_narrow(rows: Sequence[Row], folder: Path) -> list[Path]:
    """The same figures for a telephone, their panels one above the other, as PNG alone; none of many groups."""
    if len(_groups(rows)) > _NARROW:
        return []
    drawings = _drawings(rows).items()
    return [draw_to(folder / name, partial(draw, rows, narrow=True), kinds=("png",)) for name, draw in drawings]


def _drawings(rows: Sequence[Row]) -> dict[str, Callable[..., Any]]:
    drawings: dict[str, Callable[..., Any]] = {
        "accuracy_and_tokens": accuracy_and_tokens,
        "premature_stops": premature_stops,
        "pareto": pareto,
    }
    if any(_several_budgets([row for row in rows if _group(row) == group]) for group in _groups(rows)):
        drawings["budget_sweep"] = budget_sweep  # of one it would be a chart of one point
    return drawings


def accuracy_and_tokens(rows: Sequence[Row], *, narrow: bool = False) -> Any:
    """Accuracy with Wilson intervals beside average tokens, at the largest budget, a group a model and precision."""
    shown = _at_largest_budget(rows)
    groups, methods = _groups(shown), _methods(shown)
    figure, (left, right) = _pair(len(groups), 2.8, narrow=narrow)
    for i, (method, style) in enumerate(styles_of(methods).items()):
        places = _places(shown, groups, method)
        at, cells = [g + offset(i, len(methods)) for g in places], list(places.values())
        errors = [
            [100 * (c["accuracy"] - c["accuracy_low"]) for c in cells],
            [100 * (c["accuracy_high"] - c["accuracy"]) for c in cells],
        ]
        options = bar(style, len(methods), method)
        left.bar(at, [100 * c["accuracy"] for c in cells], yerr=errors, capsize=2, error_kw={"lw": 0.8}, **options)
        right.bar(at, [c["avg_tokens"] for c in cells], **options)
    left.set_ylabel("accuracy, %")
    left.set_ylim(0, 105)
    right.set_ylabel("tokens a problem")
    for axes in (left, right):
        axes.set_xticks(range(len(groups)), _labels(groups))
    legend(figure, left)
    return figure


def premature_stops(rows: Sequence[Row], *, narrow: bool = False) -> Any:
    """Share of problems halted early and wrong, and of those that the full decode gets right."""
    shown = _at_largest_budget(rows)
    groups, methods = _groups(shown), _methods(shown)
    figure, panels = _pair(len(groups), 2.6, narrow=narrow, sharey=True)
    for axes, key, title in zip(
        panels,
        ("premature_stop_rate", "lost_correct_rate"),
        ("halted early and wrong", "of these, right at full length"),
        strict=True,
    ):
        for i, (method, style) in enumerate(styles_of(methods).items()):
            places = _places(shown, groups, method)
            values, at = [100 * cell[key] for cell in places.values()], [g + offset(i, len(methods)) for g in places]
            bars = axes.bar(at, values, **bar(style, len(methods), method))
            crowded = len(groups) > _WIDE
            axes.bar_label(bars, fmt="%.1f", fontsize=6 if crowded else 7, padding=1, rotation=90 if crowded else 0)
        axes.set_xticks(range(len(groups)), _labels(groups))
        axes.set_title(title, fontsize=9)
        axes.margins(y=0.15)
    for axes in panels if narrow else panels[:1]:
        axes.set_ylabel("problems, %")
    legend(figure, panels[0])
    return figure


def pareto(rows: Sequence[Row], *, narrow: bool = False) -> Any:
    """Accuracy against tokens, budgets annotated; a panel a model and precision. Up and left is preferable."""
    groups, joined, styles = _groups(rows), _joined(rows), styles_of(_methods(rows))
    columns = 1 if narrow else min(len(groups), _WIDE)
    figure, panels = _panels(len(groups), columns, _INCHES[narrow])
    several = _several_budgets(rows)
    labels: list[tuple[Any, str, tuple[float, float]]] = []
    for axes, group, name in zip(panels, groups, _labels(groups), strict=False):
        for i, (method, label) in enumerate(joined.items()):
            cells = _over_budgets(rows, group, method)
            x, y = [c["avg_tokens"] for c in cells], [100 * c["accuracy"] for c in cells]
            axes.plot(x, y, label=label, **line(styles[method]))
            if several and (
                len(groups) <= _WIDE or i == 0
            ):  # in small panels the first method's budgets tell the others'
                labels += [(axes, *label) for label in _joined_labels(cells, x, y)]
        axes.set_title(name, fontsize=9)
        axes.set_xlabel("tokens a problem")
        axes.margins(0.15)
    for axes in panels[::columns]:
        axes.set_ylabel("accuracy, %")
    legend(figure, panels[0])
    _place(figure, labels)
    return figure


def budget_sweep(rows: Sequence[Row], *, narrow: bool = False) -> Any:
    """Accuracy with intervals, and tokens, as the budget grows; at the first model and precision that has several."""
    parts = ([row for row in rows if _group(row) == group] for group in _groups(rows))
    rows = next(part for part in parts if _several_budgets(part))
    group, joined, styles = _group(rows[0]), _joined(rows), styles_of(_methods(rows))
    figure, (left, right) = _pair(1, 2.8, narrow=narrow)
    for i, (method, label) in enumerate(joined.items()):
        cells = _over_budgets(rows, group, method)
        budgets = [c["budget"] for c in cells]
        y = [100 * c["accuracy"] for c in cells]
        errors = [
            [100 * (c["accuracy"] - c["accuracy_low"]) for c in cells],
            [100 * (c["accuracy_high"] - c["accuracy"]) for c in cells],
        ]
        shift = 1 + 0.02 * (i - (len(joined) - 1) / 2)  # intervals side by side, not on top of each other
        left.errorbar(
            [b * shift for b in budgets], y, yerr=errors, capsize=2, elinewidth=0.8, label=label, **line(styles[method])
        )
        right.plot(budgets, [c["avg_tokens"] for c in cells], **line(styles[method]))
    for axes, name in ((left, "accuracy, %"), (right, "tokens a problem")):
        axes.set_xscale("log", base=2)
        axes.set_xticks(budgets, [str(b) for b in budgets])
        axes.minorticks_off()
        axes.set_xlabel("budget, tokens")
        axes.set_ylabel(name)
    figure.suptitle(name_of(rows[0]), fontsize=9)
    legend(figure, left)
    return figure


def _place(figure: Any, labels: Sequence[tuple[Any, str, tuple[float, float]]]) -> None:
    """Write labels beside their points where there is room; one that would cover another is left out.

    Methods share their budgets, so that a label left out is told by its neighbours.
    """
    figure.canvas.draw()  # the layout must be final before distances mean anything
    taken: list[tuple[float, float, float, float]] = []
    scale = figure.dpi / 72
    for axes, text, point in labels:
        x, y = axes.transData.transform(point)
        width, height = 4.0 * len(text) * scale, 8.0 * scale
        for dx, dy in ((0, 9), (0, -10), (width / scale / 2 + 6, 0), (-width / scale / 2 - 6, 0), (0, 18), (0, -19)):
            left, bottom = x + dx * scale - width / 2, y + dy * scale - height / 2
            box = (left, bottom, left + width, bottom + height)
            if all(box[2] < o[0] or o[2] < box[0] or box[3] < o[1] or o[3] < box[1] for o in taken):
                taken.append(box)
                axes.annotate(text, point, (dx, dy), textcoords="offset points", fontsize=6.5, ha="center", va="center")
                break


def _joined_labels(cells: Sequence[Row], x: Sequence[float], y: Sequence[float]) -> list[_Label]:
    """Budgets at their points; where two points nearly coincide, one label names both."""
    labels: list[_Label] = []
    for cell, point in zip(cells, zip(x, y, strict=True), strict=True):
        near = labels and abs(point[0] - labels[-1][1][0]) < 6 and abs(point[1] - labels[-1][1][1]) < 3
        if near:
            labels[-1] = (f"{labels[-1][0]}, {cell['budget']}", labels[-1][1])
        else:
            labels.append((str(cell["budget"]), point))
    return labels


def _several_budgets(rows: Sequence[Row]) -> bool:
    return len({row["budget"] for row in rows}) > 1


def _at_largest_budget(rows: Sequence[Row]) -> list[Row]:
    """Of every group at its own, where they share none."""
    budgets = {group: {row["budget"] for row in rows if _group(row) == group} for group in _groups(rows)}
    shared = set.intersection(*budgets.values())
    return [row for row in rows if row["budget"] == max(shared or budgets[_group(row)])]


def _group(row: Row) -> _Group:
    return (row["model"], row["bits"], row.get("style"), row.get("temperature"))


def _groups(rows: Sequence[Row]) -> list[_Group]:
    return list(dict.fromkeys(map(_group, rows)))


def _methods(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(row["method"] for row in rows))


def _joined(rows: Sequence[Row]) -> dict[str, str]:
    """Methods to draw, and their labels: those that come to the same everywhere are one line of several names."""
    same: dict[frozenset[Any], list[str]] = {}
    for method in _methods(rows):
        cells = [row for row in rows if row["method"] == method]
        points = frozenset((_group(c), c["budget"], c["accuracy"], c["avg_tokens"]) for c in cells)
        same.setdefault(points, []).append(method)
    return {names[0]: ", ".join(names) for names in same.values()}


def _places(rows: Sequence[Row], groups: Sequence[_Group], method: str) -> dict[int, Row]:
    """A method's rows by the number of their group: not every group has every method."""
    found = {_group(row): row for row in rows if row["method"] == method}
    return {i: found[group] for i, group in enumerate(groups) if group in found}


def _over_budgets(rows: Sequence[Row], group: _Group, method: str) -> list[Row]:
    cells = [r for r in rows if _group(r) == group and r["method"] == method]
    return sorted(cells, key=lambda r: r["budget"])


def _labels(groups: Sequence[_Group]) -> list[str]:
    """What tells the groups apart: model and bits, style and temperature where they differ."""
    several_styles = len({style for _, _, style, _ in groups}) > 1
    several_temperatures = len({temperature for *_, temperature in groups}) > 1
    labels = []
    for model, bits, style, temperature in groups:
        lines = [model.rpartition("/")[2], f"{bits:g} bits"]
        lines += [str(style)] if several_styles else []
        lines += [f"T={temperature:g}"] if several_temperatures and temperature is not None else []
        labels.append("\n".join(lines))
    return labels


def _pair(groups: int, height: float, *, narrow: bool, **options: Any) -> tuple[Any, Any]:
    """Two panels: side by side, or one above the other where there are many groups or little room."""
    shape, size = (1, 2), (_INCHES[narrow], height)
    if narrow or groups > _WIDE:
        shape, size = (2, 1), (max(_INCHES[narrow], 0.75 * groups), 1.9 * height)
    figure, panels = plt.subplots(*shape, figsize=size, **options)
    return figure, panels


def _panels(count: int, columns: int, width: float) -> tuple[Any, list[Any]]:
    """A panel each, in rows."""
    height = -(-count // columns)
    size = (max(width, 2.6 * columns), 3.2 if height == 1 else 2.5 * height)
    figure, grid = plt.subplots(height, columns, figsize=size, sharey=True, squeeze=False)
    panels = list(grid.flat)
    for unused in panels[count:]:
        unused.set_visible(False)
    return figure, panels[:count]
