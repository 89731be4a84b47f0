"""The paper's four figures from summary rows: PDF and PNG, readable in print and without colour."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from bitcal_tts.files import write_atomically

Row = dict[str, Any]
_Label = tuple[str, tuple[float, float]]
# Told apart by lightness, hatch and marker, not by colour alone (Okabe-Ito).
_STYLES = (
    {"color": "#303030", "hatch": "", "marker": "o", "linestyle": "-"},
    {"color": "#E69F00", "hatch": "///", "marker": "s", "linestyle": "--"},
    {"color": "#56B4E9", "hatch": "...", "marker": "^", "linestyle": "-."},
    {"color": "#009E73", "hatch": "xxx", "marker": "D", "linestyle": ":"},
    {"color": "#CC79A7", "hatch": "\\\\\\", "marker": "v", "linestyle": (0, (5, 1))},
)
_SETTINGS = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.alpha": 0.3,
    "axes.axisbelow": True,
    "figure.constrained_layout.use": True,
    "pdf.fonttype": 42,
    "svg.hashsalt": "bitcal",
}


def draw_all(rows: Sequence[Row], folder: Path) -> list[Path]:
    """All figures, as PDF and PNG; returns the PNG files."""
    folder.mkdir(parents=True, exist_ok=True)
    drawings = {
        "accuracy_and_tokens": accuracy_and_tokens,
        "premature_stops": premature_stops,
        "pareto": pareto,
        "budget_sweep": budget_sweep,
    }
    written = []
    with plt.rc_context(_SETTINGS):
        for name, draw in drawings.items():
            figure = draw(rows)
            for suffix in ("pdf", "png"):
                path = folder / f"{name}.{suffix}"
                write_atomically(path, lambda temporary, f=figure, s=suffix: _save(f, temporary, s))  # type: ignore[misc]
            written.append(path)
            plt.close(figure)
    return written


def accuracy_and_tokens(rows: Sequence[Row]) -> Any:
    """Accuracy with Wilson intervals beside average tokens, at the largest budget, a group a model and precision."""
    shown = _at_largest_budget(rows)
    groups, methods = _groups(shown), _methods(shown)
    figure, (left, right) = plt.subplots(1, 2, figsize=(7.2, 2.8))
    for i, method in enumerate(methods):
        cells = [_cell(shown, group, method) for group in groups]
        at = [g + _offset(i, len(methods)) for g in range(len(groups))]
        errors = [
            [100 * (c["accuracy"] - c["accuracy_low"]) for c in cells],
            [100 * (c["accuracy_high"] - c["accuracy"]) for c in cells],
        ]
        options = _bar(i, len(methods), method)
        left.bar(at, [100 * c["accuracy"] for c in cells], yerr=errors, capsize=2, error_kw={"lw": 0.8}, **options)
        right.bar(at, [c["avg_tokens"] for c in cells], **options)
    left.set_ylabel("accuracy, %")
    left.set_ylim(0, 105)
    right.set_ylabel("tokens a problem")
    for axes in (left, right):
        axes.set_xticks(range(len(groups)), [_label(g) for g in groups])
    _legend(figure, left)
    return figure


def premature_stops(rows: Sequence[Row]) -> Any:
    """Share of problems halted early and wrong, and of those that the full decode gets right."""
    shown = _at_largest_budget(rows)
    groups, methods = _groups(shown), _methods(shown)
    figure, panels = plt.subplots(1, 2, figsize=(7.2, 2.6), sharey=True)
    for axes, key, title in zip(
        panels,
        ("premature_stop_rate", "lost_correct_rate"),
        ("halted early and wrong", "of these, right at full length"),
        strict=True,
    ):
        for i, method in enumerate(methods):
            values = [100 * _cell(shown, group, method)[key] for group in groups]
            at = [g + _offset(i, len(methods)) for g in range(len(groups))]
            bars = axes.bar(at, values, **_bar(i, len(methods), method))
            axes.bar_label(bars, fmt="%.1f", fontsize=7, padding=1)
        axes.set_xticks(range(len(groups)), [_label(g) for g in groups])
        axes.set_title(title, fontsize=9)
        axes.margins(y=0.15)
    panels[0].set_ylabel("problems, %")
    _legend(figure, panels[0])
    return figure


def pareto(rows: Sequence[Row]) -> Any:
    """Accuracy against tokens, budgets annotated; a panel a model and precision. Up and left is preferable."""
    groups, methods = _groups(rows), _methods(rows)
    figure, panels = _panels(len(groups))
    look = {"textcoords": "offset points", "fontsize": 6.5, "ha": "center"}
    for axes, group in zip(panels, groups, strict=False):
        for i, method in enumerate(methods):
            cells = _over_budgets(rows, group, method)
            x, y = [c["avg_tokens"] for c in cells], [100 * c["accuracy"] for c in cells]
            axes.plot(x, y, label=method, **_line(i))
            for label, point in _joined_labels(cells, x, y):
                axes.annotate(label, point, (0, 6 if i % 2 == 0 else -13), **look)
        axes.set_title(_label(group), fontsize=9)
        axes.set_xlabel("tokens a problem")
        axes.margins(0.15)
    panels[0].set_ylabel("accuracy, %")
    _legend(figure, panels[0])
    return figure


def budget_sweep(rows: Sequence[Row]) -> Any:
    """Accuracy with intervals, and tokens, as the budget grows; at the first model and precision."""
    group, methods = _groups(rows)[0], _methods(rows)
    figure, (left, right) = plt.subplots(1, 2, figsize=(7.2, 2.8))
    for i, method in enumerate(methods):
        cells = _over_budgets(rows, group, method)
        budgets = [c["budget"] for c in cells]
        y = [100 * c["accuracy"] for c in cells]
        errors = [
            [100 * (c["accuracy"] - c["accuracy_low"]) for c in cells],
            [100 * (c["accuracy_high"] - c["accuracy"]) for c in cells],
        ]
        shift = 1 + 0.02 * (i - (len(methods) - 1) / 2)  # intervals side by side, not on top of each other
        left.errorbar([b * shift for b in budgets], y, yerr=errors, capsize=2, elinewidth=0.8, label=method, **_line(i))
        right.plot(budgets, [c["avg_tokens"] for c in cells], **_line(i))
    for axes, name in ((left, "accuracy, %"), (right, "tokens a problem")):
        axes.set_xscale("log", base=2)
        axes.set_xticks(budgets, [str(b) for b in budgets])
        axes.minorticks_off()
        axes.set_xlabel("budget, tokens")
        axes.set_ylabel(name)
    figure.suptitle(_label(group).replace("\n", ", "), fontsize=9)
    _legend(figure, left)
    return figure


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


def _save(figure: Any, path: Path, kind: str) -> None:
    # Without a date in them, the same rows give the same bytes.
    metadata = {"CreationDate": None} if kind == "pdf" else {"Software": None}
    figure.savefig(path, format=kind, dpi=200, metadata=metadata)


def _legend(figure: Any, axes: Any) -> None:
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)


def _at_largest_budget(rows: Sequence[Row]) -> list[Row]:
    largest = max(row["budget"] for row in rows)
    return [row for row in rows if row["budget"] == largest]


def _groups(rows: Sequence[Row]) -> list[tuple[str, float]]:
    return list(dict.fromkeys((row["model"], row["bits"]) for row in rows))


def _methods(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(row["method"] for row in rows))


def _cell(rows: Sequence[Row], group: tuple[str, float], method: str) -> Row:
    return next(r for r in rows if (r["model"], r["bits"]) == group and r["method"] == method)


def _over_budgets(rows: Sequence[Row], group: tuple[str, float], method: str) -> list[Row]:
    cells = [r for r in rows if (r["model"], r["bits"]) == group and r["method"] == method]
    return sorted(cells, key=lambda r: r["budget"])


def _label(group: tuple[str, float]) -> str:
    return f"{group[0].rpartition('/')[2]}\n{group[1]:g} bits"


def _offset(i: int, count: int) -> float:
    return 0.8 * ((i + 0.5) / count - 0.5)


def _bar(i: int, count: int, method: str) -> dict[str, Any]:
    style = _STYLES[i % len(_STYLES)]
    look = {"color": style["color"], "hatch": style["hatch"], "edgecolor": "white", "linewidth": 0.5}
    return {"width": 0.74 / count, "label": method, **look}


def _line(i: int) -> dict[str, Any]:
    style = _STYLES[i % len(_STYLES)]
    return {key: style[key] for key in ("color", "marker", "linestyle")} | {"markersize": 4.5, "linewidth": 1.2}


def _panels(count: int) -> tuple[Any, list[Any]]:
    figure, grid = plt.subplots(1, count, figsize=(max(4.6, 2.6 * count), 3.2), sharey=True, squeeze=False)
    return figure, list(grid[0])
