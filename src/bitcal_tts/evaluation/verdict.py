"""What a run comes to, in a sentence or two."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bitcal_tts.evaluation.comparison import BASELINES, MARGIN
from bitcal_tts.evaluation.promises import caution
from bitcal_tts.evaluation.tables import points

Row = dict[str, Any]
WORTH = 0.005
"""Share of the tokens from which on a method is said to save any."""
MANY = 0.1
"""Share of the texts that are cut off at the budget from which on it is said."""


def verdict(rows: Sequence[Row], comparisons: Sequence[Row], promises: Sequence[Row] = ()) -> str:
    """The method that saves most at the largest budget and is not shown to be worse than decoding to the end.

    Args:
        rows: What each method came to.
        comparisons: Paired tests between them.
        promises: Of those that have a profile: whether it has met these items.
    """
    budget = max(row["budget"] for row in rows)
    at = {row["method"]: row for row in rows if row["budget"] == budget}
    base = next((name for name in BASELINES if name in at), None)
    if base is None or len(at) == 1:
        only = at[base] if base is not None else max(at.values(), key=lambda row: row["accuracy"])
        return (
            f"{only['method']} is right in {_pc(only['accuracy'])} % with {only['avg_tokens']:,.0f} tokens an answer."
        )
    full = at[base]
    cut_off, how = full.get("cut_off_rate", 0.0) >= MANY, "to the end"
    if base == "landed":
        how = "to the end, and landed where the budget runs out"
    elif cut_off:
        how = "to the end or the budget"
    begin = (
        f"Decoded {how}, {_pc(full['accuracy'])} % are right with {full['avg_tokens']:,.0f} tokens an "
        f"answer (budget {budget:,}, N = {full['n']:,})."
    )
    if not any(row["accuracy"] for row in at.values()):
        return (
            f"{begin} At that budget nothing is right under any method, so that nothing can be lost, and this says "
            "nothing about halting. Are answers written as they are read (--answers)?"
        )
    end = _cut_off(full) if cut_off else ""
    tests = {test["method"]: test for test in comparisons if test["budget"] == budget and test["against"] == base}
    saved = {name: 1 - row["avg_tokens"] / max(1.0, full["avg_tokens"]) for name, row in at.items()}
    saving = [row for name, row in at.items() if name != base and saved[name] >= WORTH]
    fine = [row for row in saving if row["method"] in tests and tests[row["method"]]["verdict"] != "worse"]
    if not fine:
        if not saving:
            return f"{begin} No method here saves anything to speak of.{end}"
        return f"{begin} Every method that saves tokens against that costs accuracy.{end}"
    # What keeps the accuracy comes first; where nothing does, what comes nearest.
    kept = [row for row in fine if tests[row["method"]]["difference"] >= -MARGIN]
    best = (
        max(kept, key=lambda row: saved[row["method"]])
        if kept
        else max(fine, key=lambda row: tests[row["method"]]["difference"])
    )
    test = tests[best["method"]]
    saves, loses = _pc(saved[best["method"]]), _pc(best["lost_correct_rate"])
    shown = f"{points(test['difference'])} points ({test['verdict']}, corrected p = {test['p_corrected']:.2g})"
    met = caution(promise for promise in promises if promise["method"] == best["method"])
    return (
        f"{begin} {best['method']} saves {saves} % of them and loses {loses} % of the answers; accuracy {shown}."
        f"{met}{end}"
    )


def _cut_off(full: Row) -> str:
    """How many texts the budget cuts off: that what is lost is not measured by what they had no time for."""
    what = (
        ", where landing answers for them; lost counts only what they have right by themselves."
        if full["method"] == "landed"
        else ": what they had no time to answer is not counted as lost."
    )
    return f" {_pc(full['cut_off_rate'])} % of the texts are cut off at the budget{what}"


def _pc(share: float) -> str:
    return f"{100 * share:.1f}"
