"""What `settled` saves on texts that real reasoning models wrote: the committed results of results/real_texts.

    python scripts/real_texts.py --texts ../shared/real_texts --tokenizer ../shared/tokenizers/qwen2_5

Text only, no model is asked. Folds are by question: no question is in the fitting and in the scored part of a fold, for
any model. Nothing here starts from the starters in the package. An hour on two cores.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from bitcal_tts.auditing.crossfit import candidates_of, crossed, fit_folds
from bitcal_tts.auditing.findings import Audited, scored
from bitcal_tts.auditing.walking import Setting, Walked
from bitcal_tts.calibration.risk import certify
from bitcal_tts.commands.audit import RISKS, walk_log
from bitcal_tts.commands.logs import Log
from bitcal_tts.evaluation.statistics import wilson
from bitcal_tts.files import write_json, write_text
from bitcal_tts.logs import Columns
from bitcal_tts.traces.looks import LookTable
from bitcal_tts.traces.record import environment

Row = dict[str, Any]
THINKING = ("gsm8k-deepseek-r1", "gsm8k-qwq-32b", "gsm8k-s1.1-32b", "gsm8k-r1-distill-qwen-32b")
ROUNDS = 300
FITS = 4
"""Scorers whose mean judges: one alone moves the share at 1 % lost by some 0.03, by chance."""
SPLITS = 200
FIXED_GRID = [float(value) for value in 1 - np.geomspace(1e-4, 1, 250)]
"""Thresholds that were chosen without looking at any item."""


def main() -> None:
    """Measure everything and write it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=Path, required=True)
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--files", default="*", help="which of the texts, such as gsm8k-*")
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "results/real_texts/results.json")
    args = parser.parse_args()
    began = time.perf_counter()
    args.out.parent.mkdir(parents=True, exist_ok=True)
    paths = sorted(args.texts.glob(f"{args.files}.jsonl.xz"))
    logs = {
        path.name.partition(".jsonl")[0]: Log(path, Columns(), gold=True, answers=None, close=None) for path in paths
    }
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        walked = {name: walk_log(pool, log, _setting(log, args.tokenizer)) for name, log in logs.items()}
    result: dict[str, Any] = {
        **(together({name: walked[name] for name in THINKING}) if walked.keys() >= set(THINKING) else {}),
        "own_file": [row for name, part in walked.items() for row in _own(logs[name], part)],
        "shapes": [_audited(logs[name], part).shape() for name, part in walked.items()],
    }
    result |= {"minutes": round((time.perf_counter() - began) / 60, 1), "environment": environment()}
    write_json(args.out, result)
    write_text(args.out.with_suffix(".md"), tables(result))
    print(tables(result))


def together(four: dict[str, Walked]) -> dict[str, Any]:
    """What the texts of the thinking models about the same questions come to when they are fitted together."""
    scorers = fit_folds(list(four.values()), "gold", None, rounds=ROUNDS, most_rows=None, fits=FITS)
    pooled = {name: scored(part, scorers).settled for name, part in four.items()}
    return {
        "pooled": [row for name, table in pooled.items() for row in _curve(name, table, four[name])],
        "certified": [row for name, table in pooled.items() for row in _certified(name, table)],
        "left_out": [_left_out(name, four) for name in four],
        "losses": [_losses(name, table, four[name], risk) for name, table in pooled.items() for risk in (0.01, 0.05)],
    }


def _setting(log: Log, tokenizer: str) -> Setting:
    return Setting(log.answers, log.close, tokenizer, log.opening)


def _audited(log: Log, part: Walked) -> Audited:
    return Audited(log.path.name, log.model, log.answers, log.close, "gold", part, log.faults)


def _curve(name: str, table: LookTable, part: Walked) -> list[Row]:
    """The least share at which no more than a risk is lost: off the curve, and with thresholds from other folds."""
    table = table.rising()
    found = []
    for threshold in candidates_of(table, 800):
        cut = table.cut(threshold)
        found.append((cut.share, part.shape.thinking_share(cut), float(cut.lost.mean())))
    rows = []
    for risk in RISKS:
        best, best_thinking, _ = min([point for point in found if point[2] <= risk], default=(1.0, 1.0, 0.0))
        done = crossed(table, part.folds, risk, "gold").cut
        lost = wilson(int(done.lost.sum()), table.n)
        rows.append({
            "texts": name, "n": table.n, "risk": risk, "share_off_the_curve": best, "thinking_share": best_thinking,
            "share_crossed": done.share, "lost_crossed": float(done.lost.mean()),
            "lost_low": lost.low, "lost_high": lost.high, "accuracy_crossed": float(done.correct.mean()),
            "full_accuracy": float(table.full_right.mean()),
        })  # fmt: skip
    return rows


def _losses(name: str, table: LookTable, part: Walked, risk: float) -> Row:
    """What is lost at a risk off the curve: another value was picked than the right one, or that had not come yet."""
    rising = table.rising()
    cuts = {threshold: rising.cut(threshold) for threshold in candidates_of(rising, 800)}
    allowed = [threshold for threshold, cut in cuts.items() if cut.lost.mean() <= risk]
    threshold = min(allowed, key=lambda one: cuts[one].share)
    places, cut, examples = rising.places(np.full(rising.n, threshold)), cuts[threshold], []
    for i in np.nonzero(cut.lost)[0].tolist():
        (look,) = np.nonzero((table.trace == i) & (table.at == places[i]))[0].tolist()[:1] or [-1]
        stands = bool(table.candidates.right[table.candidates.look == look].any())
        examples.append({
            "line": part.lines[i], "stopped_after": int(places[i]), "tokens": int(table.full_tokens[i]),
            "right_value_stood": stands,
        })  # fmt: skip
    return {
        "texts": name, "risk": risk, "lost": len(examples),
        "picked_another": sum(example["right_value_stood"] for example in examples), "examples": examples,
    }  # fmt: skip


def _left_out(name: str, four: dict[str, Walked]) -> Row:
    """Fitted on the other three models' texts about other questions."""
    others = [part for other, part in four.items() if other != name]
    table = scored(four[name], fit_folds(others, "gold", None, rounds=ROUNDS, fits=FITS)).settled
    return {"texts": name, **{str(row["risk"]): row["share_off_the_curve"] for row in _curve(name, table, four[name])}}


def _certified(name: str, table: LookTable) -> list[Row]:
    """Certified on a random half, measured on the other; and on samples from the texts as a known population."""
    rng, table = np.random.default_rng(0), table.rising()
    grid = [threshold for threshold in FIXED_GRID if threshold < 1]
    cuts = [table.cut(threshold) for threshold in grid]
    lost = np.stack([cut.lost for cut in cuts], axis=1)
    cost = np.stack([cut.cost for cut in cuts], axis=1)
    full, rows = table.full_tokens, []
    for risk in (0.02, 0.05):
        shares, losses, broken = [], [], 0
        for _ in range(SPLITS):
            order = rng.permutation(table.n)
            half, rest = order[: table.n // 2], order[table.n // 2 :]
            at = _chosen(grid, lost[half], cost[half], risk)
            shares.append(cost[rest, at].sum() / full[rest].sum() if at is not None else 1.0)
            losses.append(lost[rest, at].mean() if at is not None else 0.0)
            drawn = rng.integers(0, table.n, table.n // 2)
            at = _chosen(grid, lost[drawn], cost[drawn], risk)
            broken += at is not None and lost[:, at].mean() > risk
        rows.append({
            "texts": name, "risk": risk, "confidence": 0.9, "certifying": table.n // 2, "splits": SPLITS,
            "share": float(np.mean(shares)), "lost": float(np.mean(losses)), "broken": broken / SPLITS,
        })  # fmt: skip
    return rows


def _chosen(grid: Sequence[float], lost: Any, cost: Any, risk: float) -> int | None:
    column = {threshold: i for i, threshold in enumerate(grid)}
    found = certify(
        lambda t: int(lost[:, column[t]].sum()), len(lost), grid, risk=risk, confidence=0.9,
        cost_at=lambda t: float(cost[:, column[t]].mean()),
    )  # fmt: skip
    return column[found.threshold] if math.isfinite(found.threshold) else None


def _own(log: Log, part: Walked) -> list[Row]:
    """Each file by itself, as `bitcal audit --starter none` has it."""
    audited = _audited(log, scored(part, fit_folds([part], "gold", None)))
    keys = ("file", "model", "method", "risk", "n", "full_accuracy", "accuracy", "share", "thinking_share",
            "lost_correct_rate", "lost_low", "lost_high", "certified")  # fmt: skip
    return [{key: row[key] for key in keys} for row in audited.rows(RISKS)]


def tables(result: dict[str, Any]) -> str:
    """The results as Markdown."""
    lines = ["# Real texts, text only", "", "## Four models pooled, five folds by question", ""]
    lines += [
        "| texts | N | risk % | tokens % | thinking tokens % | thresholds from other folds: tokens % | lost % |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in result.get("pooled", ()):
        lines.append(
            f"| {row['texts']} | {row['n']} | {_pc(row['risk'])} | {_pc(row['share_off_the_curve'])} | "
            f"{_pc(row['thinking_share'])} | {_pc(row['share_crossed'])} | "
            f"{_pc(row['lost_crossed'])} [{_pc(row['lost_low'])}, {_pc(row['lost_high'])}] |"
        )
    lines += ["", "## Fitted on the other three models' texts about other questions", ""]
    lines += ["| texts | 0.5 % | 1 % | 2 % | 5 % |", "|---|---|---|---|---|"]
    for row in result.get("left_out", ()):
        lines.append(f"| {row['texts']} | " + " | ".join(_pc(row[str(risk)]) for risk in RISKS) + " |")
    lines += ["", "## Certified on a random half, measured on the other (confidence 0.9, mean of 200 splits)", ""]
    lines += ["| texts | risk % | tokens % | lost % | promise broken in % of draws |", "|---|---|---|---|---|"]
    for row in result.get("certified", ()):
        lines.append(
            f"| {row['texts']} | {_pc(row['risk'])} | {_pc(row['share'])} | {_pc(row['lost'])} | {_pc(row['broken'])} |"
        )
    lines += ["", "## What is lost off the curve", ""]
    lines += ["| texts | at % | lost | the right value stood, another was picked | it had not come yet |"]
    lines += ["|---|---|---|---|---|"]
    for row in result.get("losses", ()):
        picked = row["picked_another"]
        lines.append(f"| {row['texts']} | {_pc(row['risk'])} | {row['lost']} | {picked} | {row['lost'] - picked} |")
    lines += ["", "## Each file by itself, thresholds from other folds", ""]
    lines += ["| file | N | method | risk % | tokens % | lost % | accuracy % (full) |", "|---|---|---|---|---|---|---|"]
    for row in result["own_file"]:
        risk = "" if row["risk"] is None else _pc(row["risk"])
        lines.append(
            f"| {row['file'].partition('.jsonl')[0]} | {row['n']} | {row['method']} | {risk} | {_pc(row['share'])} | "
            f"{_pc(row['lost_correct_rate'])} [{_pc(row['lost_low'])}, {_pc(row['lost_high'])}] | "
            f"{_pc(row['accuracy'])} ({_pc(row['full_accuracy'])}) |"
        )
    return "\n".join([*lines, ""])


def _pc(share: float) -> str:
    return f"{100 * share:.1f}"


if __name__ == "__main__":
    main()
