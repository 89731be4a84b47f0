"""The tables of docs/engines.md from results/engines: `python scripts/engine_tables.py` prints them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[1] / "results/engines"


def rows(name: str) -> list[dict[str, Any]]:
    """The rows of a result; none where it was not made."""
    path = RESULTS / f"{name}.json"
    found: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["rows"] if path.exists() else []
    return found


def main() -> None:
    """Print them."""
    print("| engine | precision | accuracy, whole -> stopped | tokens saved | time saved | lost [95 %] |")
    print("|---|---|---|---|---|---|")
    for name in ("transformers", "llamacpp", "llama-server", "vllm"):
        for row in sorted(rows(name), key=lambda row: -row["bits"]):
            precision = f"{row['scheme'] or 'bfloat16, declared'}, {row['bits']:g} bits"
            accuracy = f"{100 * row['full_accuracy']:.1f} -> {100 * row['accuracy']:.1f} %"
            saved = f"{100 * row['tokens_saved']:.0f} % | {100 * row['seconds_saved']:.0f} %"
            lost = f"{row['lost']} of {row['n']}, {100 * row['lost_rate']:.1f} %"
            lost += f" [{100 * row['lost_low']:.1f}, {100 * row['lost_high']:.1f}]"
            print(f"| {row['engine']} | {precision} | {accuracy} | {saved} | {lost} |")
    print()
    print("| inside | model | batch | alone, ms a token | with halting | added |")
    print("|---|---|---|---|---|---|")
    for name in ("llamacpp", "vllm"):
        for row in rows(f"overhead-{name}"):
            added = f"{1e3 * (row['halting'] - row['alone']):.0f} us, {100 * row['added']:.1f} %"
            print(f"| {name} | {row['model']} | {row['batch']} | {row['alone']:.3f} | {row['halting']:.3f} | {added} |")


if __name__ == "__main__":
    main()
