"""The paper's released per-item records, read as outcomes under the protocol that made its tables.

A record is a decode of its own, not a cut of a shared trace: `adaptive` and `bitcal_tts` texts are not prefixes of the
`fixed` ones. `full_correct` and `full_tokens` are those of the `fixed` record of the same item and budget.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from bitcal_tts.traces.outcome import Outcome
from bitcal_tts.traces.trace import TraceError

_FIELDS = {
    "task_id": str,
    "method": str,
    "budget": int,
    "bit_width": int,
    "tokens_used": int,
    "correct": bool,
    "n_stops": int,
    "n_escalations": int,
}
_NAME = re.compile(r"exp_(?P<owner>[^_]+)_(?P<model>.+)_\d+")


def is_released(path: Path) -> bool:
    """Whether a file holds such records, by the columns of its first line."""
    try:
        with path.open(encoding="utf-8") as file:
            first = json.loads(file.readline())
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(first, dict) and first.keys() >= {"task_id", "method", "budget", "bit_width"}


def read_released(path: Path) -> list[dict[str, Any]]:
    """The records of one file, checked."""
    try:
        lines = path.read_text(encoding="utf-8").split("\n")  # what else ends a line may stand inside a text
    except (OSError, UnicodeDecodeError) as error:
        raise TraceError(f"cannot read {path}: {error}") from None
    rows = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise TraceError(f"{path}, line {number}: not JSON ({error})") from None
        for key, kind in _FIELDS.items():
            if not isinstance(row, dict) or not isinstance(row.get(key), kind):
                raise TraceError(f"{path}, line {number}: needs {key!r}, a {kind.__name__}")
        rows.append(row)
    if not rows:
        raise TraceError(f"{path} holds no records")
    return rows


def released_outcomes(rows: list[dict[str, Any]]) -> list[Outcome]:
    """Records as outcomes; those without a `fixed` record at the same budget are left out, as nothing compares."""
    fixed = {(row["task_id"], row["budget"]): row for row in rows if row["method"] == "fixed"}
    return [_outcome(row, fixed[key]) for row in rows if (key := (row["task_id"], row["budget"])) in fixed]


def model_of(path: Path) -> str:
    """The model a file is about, from its name."""
    match = _NAME.fullmatch(path.stem)
    return f"{match['owner']}/{match['model']}" if match else path.stem


def _outcome(row: dict[str, Any], full: dict[str, Any]) -> Outcome:
    early = row["tokens_used"] < row["budget"]
    if early and row["n_stops"] > 0:
        finish = "halted"
    elif early and row["n_escalations"] > 0:
        finish = "escalated"  # the paper's premature stops count stops only
    else:
        finish = "eos" if early else "budget"
    return Outcome(
        item=row["task_id"],
        method=row["method"],
        bits=row["bit_width"],
        budget=row["budget"],
        tokens=row["tokens_used"],
        probe_tokens=0,
        finish=finish,
        reason=finish,
        answer=row.get("predicted_answer"),
        correct=row["correct"],
        full_correct=full["correct"],
        full_tokens=full["tokens_used"],
    )
