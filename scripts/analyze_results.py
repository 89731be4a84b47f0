"""The paper's analysis: per-item records to tables, `bitcal import` under its old name.

python scripts/analyze_results.py results/raw/*.jsonl --out results/processed
"""

from __future__ import annotations

import sys

from bitcal_tts.cli import main

if __name__ == "__main__":
    sys.exit(main(["import", *sys.argv[1:]]))
