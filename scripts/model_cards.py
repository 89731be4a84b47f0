"""A card for each model in the box, from its training record and what `scripts/box_tables.py` found.

python scripts/model_cards.py --rows results/box/rows.json
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from bitcal_tts.files import write_text
from bitcal_tts.tiny import models

BITS = {"instruct": (16, 8, 4, 3, 2), "thinking": (16, 4, 2)}
CELLS = {"instruct": (0.0, 512), "thinking": (0.6, 1536)}
"""By style: the temperature and the budget that it was recorded with."""
CARD = """---
license: mit
library_name: transformers
tags: [reasoning, gsm-symbolic, test-fixture]
---

# {name}

A Llama model of {parameters:,} parameters that solves generated grade-school problems, as *instruct* (solution,
`#### n`, a check, `#### n` again) or *thinking* (`<think>`, 200 to 1,500 tokens of reasoning with checks, doubts and
corrections, `</think>`, `#### n`), chosen by the chat template's `enable_thinking`. Made by `scripts/model_cards.py`;
the data, the recipe and what differs between the sizes are in `docs/models.md`.

## For, and not for

It exists to exercise engines and halting rules where some answers are wrong, some are corrected, and everything can be
recorded in minutes. It knows a few kinds of problems, in English, and nothing else. Nothing measured on it says how a
large model behaves at the same precision: small models lose more to rounding.

## Training

{layers} layers of width {width}, {heads} heads ({kv_heads} for keys and values) of size 64, FFN {ffn}. {runs}
The last loss was {loss:.4f}; the curve is in `training.json`.

## Accuracy

Percent of {n:,} held-out problems (`gsm_symbolic`, test split, seed 0; one in eleven is of a template that was held out
of training, which the model cannot solve) on {machine}; Wilson's 95 % interval in brackets; tokens are means, of at
most 512 (instruct) and 1,536 (thinking). On held-out templates of `stories` see `docs/models.md`.

{table}
"""


def accuracy_table(rows: list[dict[str, Any]], name: str) -> str:
    """Style and temperature by precision."""
    every = BITS["instruct"]
    head = ["style", "decoding", *(f"{bits} bits" for bits in every)]
    lines = [head, ["---", "---", *["---:"] * len(every)]]
    for style, (temperature, budget) in CELLS.items():
        cells = []
        for bits in every:
            if bits not in BITS[style]:
                cells.append("-")
                continue
            (row,) = [
                r
                for r in rows
                if (r["model"], r["bits"], r["style"], r["method"], r["budget"]) == (name, bits, style, "fixed", budget)
            ]
            low, high = 100 * row["accuracy_low"], 100 * row["accuracy_high"]
            cells.append(f"{100 * row['accuracy']:.1f} [{low:.1f}, {high:.1f}] @ {row['avg_tokens']:.0f}")
        lines.append([style, "greedy" if temperature == 0 else f"T={temperature:g}", *cells])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def training_runs(record: dict[str, Any]) -> str:
    """What the training record says of the last run."""
    again = "Continued from an earlier run; the last one: " if record["continued"] else ""
    amount = f"{record['tokens'] / 1e6:.0f}M tokens of {record['documents']:,} documents"
    speed = f"{record['tokens_per_second'] / 1e6:.1f}M tokens/s, torch {record['torch']}"
    return f"{again}{amount} in {record['seconds']:.0f} s on one {record['machine']} ({speed})."


def main() -> None:
    """Write the cards."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=Path, required=True)
    args = parser.parse_args()
    told = json.loads(args.rows.read_text())
    for name in models.available():
        folder = Path(models.resolve(name))
        record = json.loads((folder / "training.json").read_text())
        write_text(
            folder / "README.md",
            CARD.format(
                name=name,
                parameters=record["parameters"],
                **{key: record["recipe"][key] for key in ("layers", "width", "heads", "kv_heads", "ffn")},
                runs=training_runs(record),
                loss=record["loss"][-1][1],
                n=told["rows"][0]["n"],
                machine=told["environment"]["machine"]["gpu"],
                table=accuracy_table(told["rows"], name),
            ),
        )
        print(folder / "README.md")


if __name__ == "__main__":
    main()
