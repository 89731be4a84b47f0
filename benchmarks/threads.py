"""What waiting threads cost where cores have other work: recording alone, and beside as many busy processes as cores.

    python benchmarks/threads.py --repeats 5

The alternatives: threads that hold on to their core as long as OpenMP has them do unless told (300,000 spins), and a
single thread, which never waits.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from common import arguments, median, report, timed

N = 60
SETTINGS = {
    "as bitcal sets them": {},
    "as OpenMP has them": {"GOMP_SPINCOUNT": "300000"},
    "a single thread": {"OMP_NUM_THREADS": "1"},
}


def main() -> None:
    """Record in a process of its own, with each setting, alone and beside others."""
    args = arguments(__doc__ or "")
    rows = []
    for others in (0, os.cpu_count() or 1):
        busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(others)]
        try:
            took = {
                name: [_recording(args.model, args.bits, told) for _ in range(args.repeats)]
                for name, told in SETTINGS.items()
            }
        finally:
            for process in busy:
                process.kill()
        ours = took["as bitcal sets them"]
        rows += [
            {
                "busy_processes": others, "threads": name, "seconds": median(all_of), "worst": max(all_of),
                "times_ours": median(all_of) / median(ours), "worst_times_ours": max(all_of) / max(ours),
            }
            for name, all_of in took.items()
        ]  # fmt: skip
    report("threads", args, rows)


def _recording(model: str, bits: float, told: dict[str, str]) -> float:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "bitcal_tts", "record", "--model", model, "--bits", f"{bits:g}"]
        command += ["--n", str(N), "--out", str(Path(folder) / "traces")]
        return timed(lambda: subprocess.run(command, env={**os.environ, **told}, check=True, capture_output=True))[0]


if __name__ == "__main__":
    main()
