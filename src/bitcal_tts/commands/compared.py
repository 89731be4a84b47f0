"""What a comparison says in the terminal: the verdict, then who needs how many tokens, then all of it where asked."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill
from typing import Any

from bitcal_tts.commands.table import NARROW, Row, print_table
from bitcal_tts.evaluation.comparison import MARGIN
from bitcal_tts.evaluation.frontier import TARGETS
from bitcal_tts.evaluation.promises import caution
from bitcal_tts.evaluation.tables import points


def show(result: Row, *, full: bool) -> None:
    """Print what `bitcal compare` has found."""
    for promise in result["promises"]:
        print(fill(f"{promise['method']}: {promise['line']}", NARROW))
    rows, tests = result["rows"], result["tests"]
    if tests and tests["tokens"]:
        print(fill(_verdict(rows, tests) + caution(result["promises"]), NARROW))
    most = max(TARGETS) if full or not tests else tests["target"]
    shown = rows if full else [row for row in rows if row["certified"] or row["target"] in (None, most)]
    (_print_points if full else _print_narrow)(result["title"], shown)
    if not any(row["accuracy"] for row in rows):
        print("no answer is right anywhere, so that nothing can be lost: these points say nothing about halting")
    there = {name for row in shown for name in _names(row)}
    left = [name for name in result["curves"] if name not in there]
    if left:
        print(fill(f"at every threshold more than {100 * most:g} % is lost by {'; '.join(left)}", NARROW))
    if full and tests:
        _print_tests(tests)
    elif not full:
        print("thresholds, settings, other targets and the paired tests: --full")


def _names(row: Row) -> list[str]:
    """A rule, and those that do the same."""
    return [row["method"], *row.get("same_as", ())]


def _verdict(rows: Sequence[Row], tests: Row) -> str:
    """Ours against the best other rule, where any loses so little."""
    mine, best, target = tests["tokens"][0]["method"], tests["best_other"], tests["target"]
    at = {name: row for row in rows if row["target"] in (None, target) and not row["certified"] for name in _names(row)}
    saves = (
        f"With at most {100 * target:g} % lost (--target), each rule at its best threshold on these items, {mine} "
        f"saves {100 * at[mine]['savings']:.1f} % of the tokens"
    )
    for row in rows:
        if row["certified"] and row["method"] == mine:
            saves += f" ({100 * row['savings']:.1f} % at the threshold that its profile certified beforehand)"
    if mine != "settled":
        saves = f"settled is compared where --profile names its profile. {saves}"
    if best is None:
        return f"{saves}; no other rule that saves any loses so little."
    fewer = next(test["fewer_tokens"] for test in tests["tokens"] if test["against"] == best)
    accuracy = next(test for test in tests["accuracy"] if test["against"] == best)
    value, *interval = (100 * fewer[key] for key in ("value", "low", "high"))
    word, (low, high) = ("fewer", interval) if value >= 0 else ("more", [-end for end in reversed(interval)])
    told = (
        f"{saves}, the best other rule, {best}, {100 * at[best]['savings']:.1f} %. {mine} needs {abs(value):.1f} % "
        f"{word} tokens than {best} [{low:.1f}, {high:.1f}]; its accuracy differs by "
        f"{points(accuracy['difference'])} points ({accuracy['verdict']}, corrected p = {accuracy['p_corrected']:.2g})."
    )
    waits = at.get("complete")
    if waits is None or waits["savings"] <= max(at[mine]["savings"], at[best]["savings"]):
        return told
    return (
        f"{told} complete, which waits until the answer is written out, saves {100 * waits['savings']:.1f} % and loses "
        f"{100 * waits['lost_correct_rate']:.1f} %."
    )


def _print_narrow(title: str, rows: Sequence[Row]) -> None:
    """Who saves most first."""
    cells = [
        (
            " = ".join(_names(row)) + (" (certified)" if row["certified"] else ""),
            f"{100 * row['accuracy']:.1f}",
            f"{100 * row['savings']:.1f}",
            f"{100 * row['savings_probes_free']:.1f}",
            f"{100 * row['lost_correct_rate']:.2f}",
        )
        for row in sorted(rows, key=lambda row: -row["savings"])
    ]
    names = ("method", "accuracy %", "saved %", "probes free", "lost %")
    print_table(title, names, cells, sections=False, width=NARROW)


def _print_points(title: str, rows: Sequence[Row]) -> None:
    """Every method at every target."""
    cells = [
        (
            " = ".join(_names(row)),
            "certified" if row["certified"] else "" if row["target"] is None else f"{100 * row['target']:g} %",
            ("never stops" if row["certified"] else "") if row["threshold"] is None else _typed(row["threshold"]),
            ", ".join(f"{name} {_short(value)}" for name, value in row["setting"].items()),
            f"{100 * row['accuracy']:.1f}",
            f"{100 * row['savings']:.1f}",
            f"{100 * row['savings_probes_free']:.1f}",
            f"{100 * row['lost_correct_rate']:.2f}",
        )
        for row in rows
    ]
    names = ("method", "target", "threshold", "setting", "accuracy %", "saved %", "probes free", "lost %")
    print_table(title, names, cells)


def _typed(threshold: float) -> str:
    """In as many digits as tell it from the whole number next to it, so that it can be set."""
    if threshold >= 100:
        return f"{threshold:.0f}"
    return f"{threshold:.3g}" if threshold == round(threshold) or float(f"{threshold:.3g}") % 1 else f"{threshold:.9g}"


def _short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _print_tests(tests: Row) -> None:
    """Ours against the baseline, `complete` and the best other rule."""
    fewer = {test["against"]: test["fewer_tokens"] for test in tests["tokens"]}
    cells = []
    for test in tests["accuracy"]:
        tokens = fewer[test["against"]]
        cells.append((
            test["method"], test["against"],
            f"{points(test['difference'])} [{points(test['difference_low'])}, {points(test['difference_high'])}]",
            f"{test['p_corrected']:.2g}",
            test["verdict"],
            f"{test['p_not_worse']:.2g}",
            f"{100 * tokens['value']:.1f} [{100 * tokens['low']:.1f}, {100 * tokens['high']:.1f}]",
        ))  # fmt: skip
    names = (
        "method", "against", "accuracy, points [95 %]", "p (Holm)", "verdict", f"p, {100 * MARGIN:g} worse (Holm)",
        "fewer tokens % [95 %]",
    )  # fmt: skip
    print_table(f"Paired tests at a lost-correct rate of {100 * tests['target']:g} %", names, cells)
