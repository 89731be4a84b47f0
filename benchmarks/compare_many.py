"""How long `bitcal compare` takes on many traces: every rule of the field at its own looks and at ours.

    python benchmarks/compare_many.py TRACES --profile PROFILE --out results/benchmarks/compare_many.json

The alternative it is measured against is the same command on one core.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from bitcal_tts.files import write_json
from bitcal_tts.traces.record import environment
from bitcal_tts.traces.store import TraceStore


def compared(command: list[str], before: Callable[[], None] | None) -> tuple[float, list[dict[str, object]]]:
    """Seconds that it takes, and the rows that it finds."""
    began = time.monotonic()
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, preexec_fn=before)
    return round(time.monotonic() - began, 1), json.loads(done.stdout)["rows"]


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", type=Path)
    parser.add_argument("--profile", type=Path, required=True)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    command = [
        sys.executable,
        "-m",
        "bitcal_tts",
        "compare",
        str(args.traces),
        "--profile",
        str(args.profile),
        "--json",
    ]
    everywhere, rows = compared(command, None)
    alone, same = compared(command, lambda: os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}))
    assert rows == same, "how many cores there are must not change what is found"
    store = TraceStore.open(args.traces)
    found = {
        "benchmark": "compare_many", "traces": store.manifest.n, "rows": len(rows),
        "tokens": sum(part["tokens"] for part in store.measurements()), "probes_every": store.description["probes"],
        "seconds": everywhere, "seconds_on_one_core": alone, "faster": round(alone / everywhere, 2),
    }  # fmt: skip
    print(found)
    if args.out is not None:
        write_json(args.out, {**found, "environment": environment()})


if __name__ == "__main__":
    main()
