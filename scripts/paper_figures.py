"""The paper's four figures from its released per-item records.

    python scripts/paper_figures.py results/raw/exp_Qwen_Qwen2.5-7B-Instruct_*.jsonl --out figures

Bars are drawn at the largest budget that all files share, the sweep for the first file.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from bitcal_tts.commands.import_ import import_records
from bitcal_tts.evaluation.figures import draw_all


def main() -> None:
    """Read the records and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("records", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, default=Path("figures"))
    args = parser.parse_args()
    tables = [import_records(path)[1] for path in args.records]
    shared = set.intersection(*({row["budget"] for row in rows} for rows in tables))
    rows = [row for rows in tables for row in rows if row["budget"] in shared]
    for path in draw_all(rows, args.out):
        print(path)


if __name__ == "__main__":
    main()
