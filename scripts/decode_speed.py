"""Decoding speed of recordings that had their machine to themselves.

python scripts/decode_speed.py runs/speed/* runs/default/traces --out results/decode_speed.json
"""

from __future__ import annotations

import argparse
from pathlib import Path

from bitcal_tts.commands.record import describe
from bitcal_tts.files import write_json
from bitcal_tts.traces.store import TraceStore


def main() -> None:
    """Read what each recording measured of itself."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    rows = []
    for folder in args.traces:
        store = TraceStore.open(folder)
        identity, environment = store.description, store.manifest.environment
        machine = environment["machine"]
        on_gpu = identity["device"] == "cuda"
        rows.append({
            "model": identity["model"], "bits": identity["bits"], "style": identity["style"],
            "temperature": identity["decoding"]["temperature"],
            "batch": min(store.manifest.segments[0].batch_size, identity["n"]),
            "compute_dtype": identity["compute_dtype"],
            "machine": machine["gpu"] if on_gpu else f"{machine['cores']} cores of {machine['cpu']}",
            **describe(store), "versions": environment["versions"],
        })  # fmt: skip
    write_json(args.out, {"schema": 1, "rows": rows})
    for row in rows:
        print(f"{row['model']} at {row['bits']:g} bits, {row['machine']}: {row['tokens_per_second']:,.0f} tokens/s")


if __name__ == "__main__":
    main()
