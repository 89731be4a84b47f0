"""One self-contained HTML page of a run: tables, tests, figures, an item browser, the manifest."""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Sequence
from importlib.resources import files
from itertools import zip_longest
from pathlib import Path
from typing import Any

from bitcal_tts.evaluation.promises import targets
from bitcal_tts.evaluation.tables import ENERGY, joules_cell, lost_cell, name_of, points, split
from bitcal_tts.evaluation.verdict import verdict

Row = dict[str, Any]
_CAPTIONS = {
    "accuracy_and_tokens": "Accuracy with intervals beside average tokens, at the largest budget.",
    "premature_stops": "Problems halted early and wrong, and those of them that the full decode gets right.",
    "pareto": "Accuracy against tokens; labels are budgets, where there are several. Up and left is preferable.",
    "budget_sweep": "Accuracy and tokens as the budget grows.",
}


def render_page(
    *,
    title: str,
    subtitle: str,
    rows: Sequence[Row],
    comparisons: Sequence[Row],
    promises: Sequence[Row],
    figures: Sequence[Path],
    narrow: Sequence[Path] = (),
    runs: Sequence[dict[str, Any]],
    manifest: dict[str, Any],
) -> str:
    """The page as text. Everything from outside is escaped; nothing is loaded from anywhere.

    `runs` are what the item browser shows: name, budgets, methods and items each; without any it is left out. `narrow`
    are the `figures` as a telephone shows them, in the same order, or none.
    """
    template = files("bitcal_tts.evaluation").joinpath("page.html").read_text(encoding="utf-8")
    parts = {
        "TITLE": html.escape(title),
        "SUBTITLE": html.escape(subtitle),
        "HEADLINE": _verdicts(rows, comparisons, promises) + _promises(promises) + _headline(rows, comparisons),
        "NARROW": _narrow(rows, promises),
        "ROWS": _rows(rows),
        "COMPARISONS": _comparisons(comparisons),
        "FIGURES": "\n".join(_figure(*pair) for pair in zip_longest(figures, narrow)),
        "MANIFEST": html.escape(json.dumps(manifest, indent=1, ensure_ascii=False)),
        # Inside a script element only a closing tag could end the data early.
        "DATA": json.dumps({"runs": list(runs)}, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c"),
    }
    # One pass over the template: what is put in is not looked at again.
    return re.sub(r"@([A-Z]+)@", lambda match: parts[match[1]], template)


def _verdicts(rows: Sequence[Row], comparisons: Sequence[Row], promises: Sequence[Row]) -> str:
    """What each run comes to."""
    parts = split(rows)
    told = []
    for name, part in parts.items():
        tests = [test for test in comparisons if test.get("run", name) == name]
        said = verdict(part, tests, [promise for promise in promises if (promise.get("run") or name) == name])
        told.append(f"<p><b>{html.escape(said if len(parts) == 1 else f'{name}: {said}')}</b></p>\n")
    return "".join(told)


def _narrow(rows: Sequence[Row], promises: Sequence[Row]) -> str:
    """What is read first: it fits a telephone."""
    risks = targets(promises)
    several = len(split(rows)) > 1
    head = (*(("decoded",) if several else ()), "method", "budget", "accuracy %", "saved %", "lost %")
    body, last = [], None
    for row in rows:
        cell = (name_of(row), row["budget"])
        rule, last = last is not None and cell != last, cell
        target = risks.get((name_of(row) if several else "", row["method"], row["budget"]))
        lost = lost_cell(row, target)
        name = (name_of(row),) if several else ()
        values = (*name, row["method"], str(row["budget"]), _pc(row["accuracy"]), _pc(row["savings"]), lost)
        body.append((rule, values))
    return _table(head, body, {0, 1} if several else {0})


def _promises(promises: Sequence[Row]) -> str:
    """What was promised and what was seen, a line for each profile that served."""
    return "".join(
        f'<p class="promise {html.escape(one.get("verdict", "none"))}"><b>{html.escape(one["method"])}</b>'
        f"{', ' + html.escape(one['run']) if one.get('run') else ''}, budget {one['budget']}: "
        f"{html.escape(one['line'])}</p>\n"
        for one in promises
    )


def _headline(rows: Sequence[Row], comparisons: Sequence[Row]) -> str:
    """A sentence a method, at the largest budget of each model, that claims only what the corrected test says."""
    parts = split(rows)
    sentences = []
    for name, part in parts.items():
        largest = max(row["budget"] for row in part)
        at = {row["method"]: row for row in part if row["budget"] == largest}
        for method, row in at.items():
            wanted = (largest, method, "fixed")
            tests = [c for c in comparisons if (c["budget"], c["method"], c["against"]) == wanted]
            test = next((c for c in tests if c.get("run", name) == name), None)
            if test is None:
                continue
            where = f"At a budget of {largest}" if len(parts) == 1 else f"{html.escape(name)}, budget {largest}"
            sentences.append(
                f"<p>{where}, <b>{html.escape(method)}</b> uses {_pc(row['savings'])} % fewer tokens than "
                f"<b>fixed</b>; accuracy is {_pc(row['accuracy'])} % against {_pc(at['fixed']['accuracy'])} % "
                f'<span class="whole">({test["verdict"]}, p = {test["p_corrected"]:.2g}, N = {row["n"]}).</span></p>'
            )
    return "\n".join(sentences)


def _table(head: Sequence[str], body: Sequence[tuple[bool, Sequence[str]]], left: set[int]) -> str:
    def cells(tag: str, values: Sequence[str]) -> str:
        return "".join(
            f'<{tag} class="left">{html.escape(v)}</{tag}>' if i in left else f"<{tag}>{html.escape(v)}</{tag}>"
            for i, v in enumerate(values)
        )

    lines = [f"<tr{' class=rule' if rule else ''}>{cells('td', values)}</tr>" for rule, values in body]
    return f"<table><tr>{cells('th', head)}</tr>{''.join(lines)}</table>"


def _rows(rows: Sequence[Row]) -> str:
    several = len(split(rows)) > 1
    head = (*(("decoded",) if several else ()), "budget", "method", "N", "accuracy %", "saved %", "lost %", "tokens",
            "median", "p95", "premature %", "rescued %", "answered %", "overthought %")  # fmt: skip
    energy = any(map(joules_cell, rows))
    body = []
    last = None
    for row in rows:
        cell = (name_of(row), row["budget"])
        rule = last is not None and cell != last
        last = cell
        values = (
            *((name_of(row),) if several else ()), str(row["budget"]), row["method"], str(row["n"]),
            f"{_pc(row['accuracy'])} [{_pc(row['accuracy_low'])}, {_pc(row['accuracy_high'])}]",
            f"{_pc(row['savings'])} [{_pc(row['savings_low'])}, {_pc(row['savings_high'])}]",
            _pc(row["lost_correct_rate"]), f"{row['avg_tokens']:.0f}", f"{row['median_tokens']:.0f}",
            f"{row['p95_tokens']:.0f}", _pc(row["premature_stop_rate"]), _pc(row["rescued_rate"]),
            _pc(row["answer_rate"]), _pc(row["overthinking_rate"]), *((joules_cell(row),) if energy else ()),
        )  # fmt: skip
        body.append((rule, values))
    told = _table((*head, *(("joules",) if energy else ())), body, {0, 2} if several else {1})
    return told + (f"<p>{ENERGY}</p>" if energy else "")


def _comparisons(rows: Sequence[Row]) -> str:
    several = len({row.get("run") for row in rows}) > 1
    head = (
        *(("decoded",) if several else ()),
        "budget",
        "method",
        "against",
        "verdict",
        "points",
        "won : lost",
        "p",
        "detectable",
    )
    body = []
    last = None
    for row in rows:
        cell = (row.get("run"), row["budget"])
        rule = last is not None and cell != last
        last = cell
        effect = row["minimum_detectable_effect"]
        disagree = (row["only_method_right"] + row["only_against_right"]) / row["n"]
        low, high = points(row["difference_low"]), points(row["difference_high"])
        values = (
            *((row["run"],) if several else ()), str(row["budget"]), row["method"], row["against"], row["verdict"],
            f"{points(row['difference'])} [{low}, {high}]",
            f"{row['only_method_right']} : {row['only_against_right']}",
            f"{row['p_corrected']:.2g}",
            _detectable(effect, disagree),
        )  # fmt: skip
        body.append((rule, values))
    return _table(head, body, {0, 2, 3, 4} if several else {1, 2, 3})


def _detectable(effect: float | None, disagree: float) -> str:
    """In points; where no difference would show at this rate of disagreement, that it is more than that."""
    if effect is not None:
        return f"{100 * effect:.1f}"
    return f"> {100 * disagree:.1f}" if disagree else "-"


def _figure(path: Path, narrow: Path | None) -> str:
    alt = html.escape(_CAPTIONS.get(path.stem, path.stem))
    image = f'<img alt="{alt}" src="{_inlined(path)}">'
    if narrow is not None:
        image = f'<picture><source media="(max-width: 600px)" srcset="{_inlined(narrow)}">{image}</picture>'
    return f"<figure>{image}<figcaption>{alt}</figcaption></figure>"


def _inlined(path: Path) -> str:
    return f"data:image/png;base64,{base64.b64encode(path.read_bytes()).decode()}"


def _pc(share: float) -> str:
    return f"{100 * share:.1f}"
