"""Figures past the paper's: reliability, the signal card, the frontier of all rules, why bits matter."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt

from bitcal_tts.evaluation.drawing import draw_to, line, styles_of
from bitcal_tts.evaluation.frontier import TARGETS

Row = dict[str, Any]


def draw_signals(result: dict[str, Any], folder: Path) -> list[Path]:
    """The figures of `bitcal signals`: reliability diagrams, and the signal card where texts were rescored."""
    written = [draw_to(folder / "reliability", lambda: reliability_diagram(result["recorded"]))]
    if result["rescored"]:
        written.append(draw_to(folder / "signal_card", lambda: signal_card(result["rescored"])))
    return written


def reliability_diagram(recorded: Sequence[Row]) -> Any:
    """Share of right answers against confidence, over all boundaries past the floor and over those with an answer."""
    figure, panels = plt.subplots(1, 2, figsize=(7.2, 3.6), sharey=True)
    keys = ("all_boundaries", "answered")
    for axes, key, title in zip(panels, keys, ("all boundaries", "boundaries with an answer"), strict=True):
        axes.plot([0, 1], [0, 1], color="#999999", linewidth=0.8)
        for i, row in enumerate(recorded):
            if row[key] is None:
                continue
            bins = [b for b in row[key]["bins"] if b["n"] >= 20]
            x, y = [b["mean_score"] for b in bins], [b["share_right"] for b in bins]
            area = row[key]["auroc"]
            label = f"{row['bits']:g} bits" + ("" if area is None else f", AUROC {area:.2f}")
            axes.plot(x, y, label=label, **line(i))
        axes.set(title=title, xlabel="confidence", xlim=(0, 1), ylim=(-0.02, 1.02))
        axes.legend(frameon=False, fontsize=7, loc="lower right")
    panels[0].set_ylabel("share right")
    return figure


def frontier_figure(result: Row) -> Any:
    """Accuracy against tokens of every method over its own threshold, the best at every cost, as `compare` tells it.

    The methods that matter and the rules that save most have a colour and a name, the others are grey: the table has
    them all. Rules that coincide are drawn once. Rings are the points of the table, chosen for its lost-correct rate;
    the cross is what the profile was certified for.
    """
    target = result["tests"]["target"] if result["tests"] else _USUAL_TARGET
    figure, axes = plt.subplots(figsize=(7.2, 4.4))
    axes.grid(True, axis="both", alpha=0.3)
    curves = result["curves"]
    full = 100 * max(p["accuracy"] for p in curves.get("fixed") or next(iter(curves.values())))
    lowest = full - 30
    repeated = {name for row in result["rows"] for name in row.get("same_as", ())}
    named = _named(result)
    others = [name for name in curves if name not in {*named, *repeated} and not name.startswith("oracle")]
    for name in others:
        x, y = [p["tokens"] for p in curves[name]], [100 * p["accuracy"] for p in curves[name]]
        label = f"{len(others)} others" if name == others[0] else None
        axes.plot(x, y, color="#bbbbbb", linewidth=0.8, marker="." if len(x) == 1 else "", zorder=1, label=label)
    for name, style in styles_of(named).items():
        x, y = [p["tokens"] for p in curves[name]], [100 * p["accuracy"] for p in curves[name]]
        look = line(style) | {"markersize": 4, "markevery": max(1, len(x) // 12)}
        if name in _OURS:
            look |= {"linewidth": 2.4, "markersize": 6}
        elif name.startswith("oracle"):
            look |= {"marker": "*", "markersize": 10, "linestyle": ""}
        axes.plot(x, y, label=name, **look)
        for row in result["rows"]:
            if row["method"] == name and (row["target"] == target or row["certified"]):
                mark: Row = {"marker": "x"} if row["certified"] else {"marker": "o", "markerfacecolor": "none"}
                color = look["color"]
                axes.plot(row["avg_tokens"], 100 * row["accuracy"], color=color, markersize=11, zorder=5, **mark)
    highest = max(100 * p["accuracy"] for name in named for p in curves[name])
    seen = [p["tokens"] for curve in curves.values() for p in curve if 100 * p["accuracy"] >= lowest]
    told = f"lines: thresholds that no other beats; rings: chosen for {100 * target:g} % lost; cross: as certified"
    axes.set_xlabel(f"tokens a problem, probes and landings included\n({told})")
    axes.set(ylabel="accuracy, %", ylim=(lowest, highest + 1))
    axes.set_xlim(0.9 * min(seen), 1.05 * max(seen))
    axes.set_title("\n".join(textwrap.wrap(result["title"], 80)), fontsize=9)
    figure.legend(loc="outside right upper", frameon=False, fontsize=8)
    return figure


_USUAL_TARGET = 0.01
_OURS = ("settled", "landed", "fixed", "complete")
_BEST = 6  # rules besides those that have a name in a figure


def _named(result: Row) -> list[str]:
    """The methods that matter, and of the rules those that save most where at most 5 % are lost."""
    there = result["curves"]
    saved = {row["method"]: row["savings"] for row in result["rows"] if row["target"] == max(TARGETS)}
    rules = [name for name in there if name in saved and name not in _OURS and not name.startswith("oracle")]
    best = sorted(rules, key=lambda name: -saved[name])[:_BEST]
    oracles = [name for name in ("oracle, our looks", "oracle") if name in there][:1]
    return [*(name for name in _OURS if name in there), *best, *oracles]


def signal_card(card: Sequence[Row]) -> Any:
    """Shift of every signal from the first precision on the same text, with 95 % intervals."""
    titles = {"entropies": "entropy, nats", "logprobs": "log-probability of the text", "margins": "top-2 margin",
              "hidden_similarities": "hidden-state cosine"}  # fmt: skip
    names = [name for name in titles if name in card[0]["signals"]]
    figure, panels = plt.subplots(1, len(names), figsize=(1.9 * len(names), 2.6))
    at = list(range(len(card)))
    for axes, name in zip(panels, names, strict=True):
        told = [row["signals"][name] for row in card]
        errors = [[t["shift"] - t["shift_low"] for t in told], [t["shift_high"] - t["shift"] for t in told]]
        axes.axhline(0, color="#999999", linewidth=0.8)
        axes.errorbar(at, [t["shift"] for t in told], yerr=errors, capsize=3, **line(0))
        axes.set_xticks(at, [f"{row['bits']:g}" for row in card])
        axes.set_title(titles[name], fontsize=8)
        axes.set_xlabel("bits")
        axes.margins(0.1)
    panels[0].set_ylabel(f"shift from {card[0]['bits']:g} bits")
    return figure
