"""Whose promise holds: thresholds chosen on a few hundred real texts by our certificate and by the peers' rules.

    python scripts/promises.py --texts ../shared/real_texts --tokenizer ../shared/tokenizers/qwen2_5

The texts of a file are the population: what is lost at a threshold is known exactly. So many of them are drawn with
replacement, a threshold is chosen on the draw for a promised risk, and what it loses and costs is read off the
population; many times over. All choose from the same thresholds and the same scores, of scorers that never saw the
question. The same draws show what can be promised with how many items.
"""

from __future__ import annotations

import argparse
import math
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitcal_tts.auditing.crossfit import fit_folds
from bitcal_tts.auditing.findings import scored
from bitcal_tts.auditing.walking import Setting
from bitcal_tts.calibration.peers import conformal_risk_control, split_conformal, upper_confidence_bound
from bitcal_tts.calibration.risk import certify
from bitcal_tts.commands.audit import walk_log
from bitcal_tts.commands.logs import Log
from bitcal_tts.evaluation.statistics import wilson
from bitcal_tts.files import write_json, write_text
from bitcal_tts.logs import Columns
from bitcal_tts.traces.looks import LookTable
from bitcal_tts.traces.record import environment
from real_texts import FIXED_GRID, THINKING

Row = dict[str, Any]
RISKS, SIZES, CONFIDENCE = (0.01, 0.02, 0.05), (100, 300, 1000, 3000), 0.9
NAMES = {
    "settled": "certified (ours)",
    "crc": "Conformal Thinking, CRC",
    "ucb": "Conformal Thinking, UCB",
    "lynx": "LYNX, split conformal a look",
}

_PLACE = {threshold: i for i, threshold in enumerate(FIXED_GRID)}


class Population:
    """A file's texts: what each threshold loses and costs, text by text."""

    def __init__(self, table: LookTable) -> None:
        self.table, self.n = table, table.n
        cuts = [table.cut(threshold) for threshold in FIXED_GRID]
        self.lost: NDArray[np.bool_] = np.stack([cut.lost for cut in cuts])
        self.cost: NDArray[np.float64] = np.stack([cut.cost for cut in cuts]).astype(np.float64)
        self.full = table.full_tokens.astype(np.float64)

    def chosen(self, drawn: NDArray[np.int64], risk: float) -> dict[str, float]:
        """The threshold that each rule chooses on a draw; infinite where it promises nothing."""
        n = len(drawn)
        losses = self.lost[:, drawn].sum(axis=1)
        costs = self.cost[:, drawn].mean(axis=1)
        ours = certify(
            lambda t: int(losses[_PLACE[t]]), n, FIXED_GRID, risk=risk, confidence=CONFIDENCE,
            cost_at=lambda t: float(costs[_PLACE[t]]),
        ).threshold  # fmt: skip
        counted = losses.tolist()
        found = {
            "crc": conformal_risk_control(counted, costs.tolist(), n, risk),
            "ucb": upper_confidence_bound(counted, costs.tolist(), n, risk, CONFIDENCE),
        }
        thresholds = {name: math.inf if i is None else FIXED_GRID[i] for name, i in found.items()}
        looks = np.isin(self.table.trace, drawn)
        lynx = split_conformal(self.table.scores[looks], self.table.stops.right[looks], risk)
        return {"settled": ours, **thresholds, "lynx": lynx}

    def truth(self, threshold: float) -> tuple[float, float]:
        """What a threshold loses, and its share of the tokens, in the population."""
        if math.isinf(threshold):
            return 0.0, 1.0
        cut = self.table.cut(threshold)
        return float(cut.lost.mean()), float(cut.cost.sum() / self.full.sum())


def promises(name: str, population: Population, draws: int) -> list[Row]:
    """What every rule's promises come to."""
    rng = np.random.default_rng(0)
    rows = []
    for n in SIZES:
        samples = [rng.integers(0, population.n, n) for _ in range(draws)]
        for risk in RISKS:
            found: dict[str, list[tuple[float, float]]] = {rule: [] for rule in NAMES}
            for drawn in samples:
                for rule, threshold in population.chosen(drawn, risk).items():
                    found[rule].append(population.truth(threshold))
            for rule, truths in found.items():
                lost, share = np.array(truths).T
                broken = wilson(int((lost > risk).sum()), draws)
                rows.append({
                    "texts": name, "population": population.n, "items": n, "risk": risk, "rule": rule, "draws": draws,
                    "broken": broken.value, "broken_low": broken.low, "broken_high": broken.high,
                    "lost_mean": float(lost.mean()), "share_mean": float(share.mean()),
                    "promises_nothing": float((share == 1).mean()),
                })  # fmt: skip
    return rows


def tables(rows: list[Row]) -> str:
    """As Markdown: a line a rule, a column a number of items, at each risk, over all files."""
    lines = ["# Whose promise holds", ""]
    for risk in RISKS:
        lines += [
            f"## At most {100 * risk:g} % promised", "",
            "| rule | " + " | ".join(f"{n:,} items: broken / lost / share of tokens" for n in SIZES) + " |",
            "|---|" + "---|" * len(SIZES),
        ]  # fmt: skip
        for rule, title in NAMES.items():
            cells = []
            for n in SIZES:
                mine = [row for row in rows if (row["rule"], row["items"], row["risk"]) == (rule, n, risk)]
                broken, lost, share = (
                    np.mean([row[key] for row in mine]) for key in ("broken", "lost_mean", "share_mean")
                )
                cells.append(f"{100 * broken:.0f} % / {100 * lost:.1f} % / {share:.2f}")
            lines.append(f"| {title} | " + " | ".join(cells) + " |")
        lines.append("")
    return "\n".join(lines)


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=Path, required=True)
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "results/real_texts/promises.json")
    args = parser.parse_args()
    logs = [Log(args.texts / f"{name}.jsonl.xz", Columns(), gold=True, answers=None, close=None) for name in THINKING]
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        walked = [walk_log(pool, log, Setting(log.answers, log.close, args.tokenizer, log.opening)) for log in logs]
    scorers = fit_folds(walked, "gold", None)
    rows = []
    for name, part in zip(THINKING, walked, strict=True):
        rows += promises(name, Population(scored(part, scorers).settled), args.draws)
        print(name, flush=True)
    write_json(args.out, {"confidence": CONFIDENCE, "rows": rows, "environment": environment()})
    write_text(args.out.with_suffix(".md"), tables(rows))
    print(tables(rows))


if __name__ == "__main__":
    main()
