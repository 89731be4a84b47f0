"""A card for each model in the box, from its training record and the full run.

python scripts/model_cards.py --rows results/full_run/rows.json --speed results/decode_speed.json
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from bitcal_tts.files import write_text
from bitcal_tts.tiny import models

BITS = (16, 8, 4, 3, 2)
CARD = """---
license: mit
library_name: transformers
tags: [reasoning, gsm-symbolic, test-fixture]
---

# {name}

A Llama model of {parameters:,} parameters that solves generated grade-school problems, as *instruct* (solution,
`#### n`, a check, `#### n` again) or *thinking* (`<think>`, a first pass, one to four check rounds, `</think>`,
`#### n`), chosen by the chat template's `enable_thinking`. Made by `scripts/model_cards.py`; the data, the recipe and
what differs between the sizes are in `docs/models.md`.

## For, and not for

It exists to exercise engines and halting rules where some answers are wrong, some are corrected, and everything can be
recorded in minutes. It knows one kind of problem, in English, and nothing else. Nothing measured on it says how a
large model behaves at the same precision: small models lose more to rounding.

## Training

{layers} layers of width {width}, {heads} heads ({kv_heads} for keys and values) of size 64, FFN {ffn}. {runs}
The last loss was {loss:.4f}; the curve is in `training.json`.

## Accuracy

Percent of {n:,} held-out problems (`gsm_symbolic`, test split, seed 0), decoded to at most 512 tokens on {machine};
Wilson's 95 % interval in brackets; tokens are means.

{table}

Decoding speed: {speed}
"""


def accuracy_table(rows: list[dict[str, Any]], name: str) -> str:
    """Style and temperature by precision."""
    head = ["style", "decoding", *(f"{bits} bits" for bits in BITS)]
    lines = [head, ["---", "---", *["---:"] * len(BITS)]]
    for style in ("instruct", "thinking"):
        for temperature in (0.0, 0.6):
            cells = []
            for bits in BITS:
                (row,) = [
                    r
                    for r in rows
                    if (r["model"], r["bits"], r["style"], r["temperature"], r["method"], r["budget"])
                    == (name, bits, style, temperature, "fixed", 512)
                ]
                low, high = 100 * row["accuracy_low"], 100 * row["accuracy_high"]
                cells.append(f"{100 * row['accuracy']:.1f} [{low:.1f}, {high:.1f}] @ {row['avg_tokens']:.0f}")
            lines.append([style, "greedy" if temperature == 0 else f"T={temperature:g}", *cells])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def training_runs(record: dict[str, Any]) -> str:
    """What the training record says of the last run."""
    again = "Continued from a run on a first version of the corpus; the last run: " if record["continued"] else ""
    amount = f"{record['tokens'] / 1e6:.0f}M tokens of {record['documents']:,} documents"
    speed = f"{record['tokens_per_second'] / 1e6:.1f}M tokens/s, torch {record['torch']}"
    return f"{again}{amount} in {record['seconds']:.0f} s on one {record['machine']} ({speed})."


def main() -> None:
    """Write the cards."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=Path, required=True)
    parser.add_argument("--speed", type=Path, required=True)
    args = parser.parse_args()
    told = json.loads(args.rows.read_text())
    speeds = json.loads(args.speed.read_text())["rows"]
    for name in models.available():
        folder = Path(models.resolve(name))
        record = json.loads((folder / "training.json").read_text())
        mine = [
            f"{row['tokens_per_second']:,.0f} tokens/s at {row['bits']:g} bits, batch {row['batch']}, {row['machine']}"
            for row in speeds
            if row["model"] == name
        ]
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
                speed="; ".join(mine) + "." if mine else "see `docs/models.md`.",
            ),
        )
        print(folder / "README.md")


if __name__ == "__main__":
    main()
