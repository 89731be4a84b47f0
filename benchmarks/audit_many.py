"""How much memory and time an audit takes as logs grow: the texts of a log, over and over, about other questions.

Sizes that were measured before stay in the file of results.

    python benchmarks/audit_many.py LOG --texts 4000:all,160000:5000,100000:all --out results/benchmarks/audit_many.json

The alternative it is measured against is the same audit of fewer texts: memory must not grow with them.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bitcal_tts.files import write_json
from bitcal_tts.logs import LoggedText, read_texts


def write_log(source: Path, path: Path, n: int) -> None:
    """A log of `n` texts, each about a question of its own."""
    texts = [text for text in read_texts(source) if isinstance(text, LoggedText)]
    with path.open("w", encoding="utf-8") as out:
        for i, text in enumerate(itertools.islice(itertools.cycle(texts), n)):
            question = f"(Problem {i}.) {text.question}"
            row = {"question": question, "response": text.response, "answer": text.answer}
            out.write(json.dumps(row) + "\n")


def audited(path: Path, sample: str, jobs: int) -> dict[str, Any]:
    """An audit in a process of its own: seconds, and the peak memory of that process and of its largest worker."""
    command = [sys.executable, __file__, "--run", str(path), "--sample", sample, "--jobs", str(jobs)]
    began = time.monotonic()
    told = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout.splitlines()[-1])
    return {"seconds": round(time.monotonic() - began, 1), **told}


def run(path: Path, sample: str, jobs: int) -> None:
    """Audit, and say what it took."""
    from bitcal_tts.cli import main

    out = path.with_suffix(".audit")
    assert main(["audit", str(path), "--sample", sample, "--out", str(out), "--jobs", str(jobs)]) == 0
    shape = json.loads((out / "audit.json").read_text())["files"][0]
    peak = {
        name: round(resource.getrusage(who).ru_maxrss / 1024)
        for name, who in (("main_mib", resource.RUSAGE_SELF), ("worker_mib", resource.RUSAGE_CHILDREN))
    }
    print(json.dumps({"n": shape["n"], "tokens_mean": round(shape["tokens_mean"], 1), **peak}))


def main() -> None:
    """Audit logs of growing size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("log", type=Path, nargs="?")
    parser.add_argument(
        "--texts", default="4000:all,160000:5000,100000:all", help="texts of a log, and how many to audit"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks/audit_many.json"))
    parser.add_argument("--run", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--sample", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.run:
        run(args.run, args.sample, args.jobs)
        return
    rows = json.loads(args.out.read_text())["rows"] if args.out.exists() else []
    for n, sample in ((int(n), sample) for n, _, sample in (part.partition(":") for part in args.texts.split(","))):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "log.jsonl"
            write_log(args.log, path, n)
            size = path.stat().st_size
            rows = [row for row in rows if (row["texts"], row["sample"]) != (n, sample)]
            asked = {"texts": n, "sample": sample, "log_mib": round(size / 2**20)}
            rows.append({**asked, **audited(path, sample, args.jobs)})
        print(rows[-1], flush=True)
        machine = {"machine": platform.machine(), "cores": os.cpu_count(), "jobs": args.jobs}
        write_json(args.out, {"log": args.log.name, **machine, "rows": rows})
    ratio = rows[-1]["main_mib"] / rows[0]["main_mib"]
    print(f"{rows[-1]['texts'] / rows[0]['texts']:.0f} times as many texts take {ratio:.2f} times the memory")


if __name__ == "__main__":
    main()
