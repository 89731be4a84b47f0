"""What all figures share: how methods are told apart, and how a figure is saved."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from textwrap import fill
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from bitcal_tts.files import write_atomically

# Told apart by lightness, hatch and marker, not by colour alone (Okabe-Ito).
_STYLES = (
    {"color": "#303030", "hatch": "", "marker": "o", "linestyle": "-"},
    {"color": "#E69F00", "hatch": "///", "marker": "s", "linestyle": "--"},
    {"color": "#56B4E9", "hatch": "...", "marker": "^", "linestyle": "-."},
    {"color": "#009E73", "hatch": "xxx", "marker": "D", "linestyle": ":"},
    {"color": "#CC79A7", "hatch": "\\\\\\", "marker": "v", "linestyle": (0, (5, 1))},
    {"color": "#0072B2", "hatch": "++", "marker": "P", "linestyle": (0, (3, 1, 1, 1))},
    {"color": "#D55E00", "hatch": "oo", "marker": "X", "linestyle": (0, (1, 1))},
    {"color": "#8C8C8C", "hatch": "--", "marker": "<", "linestyle": (0, (6, 2))},
    {"color": "#5D3A9B", "hatch": "||", "marker": ">", "linestyle": (0, (3, 2))},
    {"color": "#B58900", "hatch": "**", "marker": "h", "linestyle": (0, (8, 2, 2, 2))},
    {"color": "#882255", "hatch": "//", "marker": "d", "linestyle": (0, (2, 1))},
    {"color": "#117733", "hatch": "..", "marker": "p", "linestyle": (0, (4, 1, 1, 1, 1, 1))},
    {"color": "#88CCEE", "hatch": "xx", "marker": "8", "linestyle": "-"},
    {"color": "#332288", "hatch": "\\\\", "marker": "H", "linestyle": "--"},
    {"color": "#DDCC77", "hatch": "+++", "marker": "*", "linestyle": "-."},
    {"color": "#661100", "hatch": "ooo", "marker": "1", "linestyle": ":"},
)
_KNOWN = ("fixed", "adaptive", "bitcal_tts", "complete", "settled", "landed", "stated")
"""Methods that look the same in every figure, by the order of the styles."""
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


def draw_to(path: Path, draw: Callable[[], Any], kinds: Sequence[str] = ("pdf", "png")) -> Path:
    """Save what `draw` draws as PDF and PNG beside each other; returns the last of these files."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with plt.rc_context(_SETTINGS):
        figure = draw()
        for suffix in kinds:
            target = path.with_name(f"{path.name}.{suffix}")
            write_atomically(target, lambda temporary, s=suffix: _save(figure, temporary, s))  # type: ignore[misc]
        plt.close(figure)
    return target


def _save(figure: Any, path: Path, kind: str) -> None:
    # Without a date in them, the same rows give the same bytes.
    metadata = {"CreationDate": None} if kind == "pdf" else {"Software": None}
    figure.savefig(path, format=kind, dpi=200, metadata=metadata)


def legend(figure: Any, axes: Any) -> None:
    """Below all panels, in as many columns as there is room for."""
    handles, labels = axes.get_legend_handles_labels()
    around, letter, room = 43, 5.2, 72 * figure.get_figwidth()  # points
    columns = max(1, min(len(labels), int(room / (around + letter * max(map(len, labels))))))
    lines = [fill(label, int((room - around) / letter)) for label in labels]
    figure.legend(handles, lines, loc="outside lower center", ncols=columns, frameon=False)


def offset(i: int, count: int) -> float:
    """Where bar i of a group stands."""
    return 0.8 * ((i + 0.5) / count - 0.5)


def styles_of(methods: Sequence[str]) -> dict[str, int]:
    """Which style each method has: those that are well known their own, the others what is left."""
    left = (i for i in range(len(_KNOWN) + len(methods)) if i >= len(_KNOWN) or _KNOWN[i] not in methods)
    return {name: _KNOWN.index(name) if name in _KNOWN else next(left) for name in methods}


def bar(i: int, count: int, method: str) -> dict[str, Any]:
    """The look of the bars of a method of style i."""
    style = _STYLES[i % len(_STYLES)]
    look = {"color": style["color"], "hatch": style["hatch"], "edgecolor": "white", "linewidth": 0.5}
    return {"width": 0.74 / count, "label": method, **look}


def line(i: int) -> dict[str, Any]:
    """The look of the line of a method of style i."""
    style = _STYLES[i % len(_STYLES)]
    return {key: style[key] for key in ("color", "marker", "linestyle")} | {"markersize": 4.5, "linewidth": 1.2}
