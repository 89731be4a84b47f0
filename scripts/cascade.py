"""A cascade on models in the box: few bits stop what is settled, 16 bits answer the rest; replayed and live.

    python scripts/cascade.py --out results/box/cascade.json

The cheap precision is recorded and fitted with a budget of its own, on problems apart, for handing over to 16 bits.
Then new problems: each precision alone, the cascade replayed (the second begins anew), and the cascade live (the second
goes on from the same text).
"""

from __future__ import annotations

import argparse
import json
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

from bitcal_tts import build_method, load_profile
from bitcal_tts.cli import main as bitcal
from bitcal_tts.commands.build import engine_for
from bitcal_tts.engines.base import Decoding, Request
from bitcal_tts.engines.cascade import Cascade
from bitcal_tts.evaluation.statistics import wilson
from bitcal_tts.files import write_json
from bitcal_tts.tasks import load_task
from bitcal_tts.traces.record import environment, record
from bitcal_tts.traces.replay import outcomes
from bitcal_tts.traces.store import TraceStore

TASK, BUDGET, SEED = "stories", 1536, 11


def engine_at(model: str, bits: float) -> Any:
    """A model in the box, thinking."""
    return engine_for(model, bits, template_options={"enable_thinking": True}, device=None, compute_dtype=None)


def recorded(engine: Any, folder: Path, n: int, split: str) -> Path:
    """Problems of a split, with what it takes to replay landings."""
    record(
        engine, load_task(TASK, split=split), folder, n=n, budget=BUDGET, decoding=Decoding(0.6, SEED), batch_size=64,
        block_size=n, probes=32, seed=SEED,
    )  # fmt: skip
    return folder


def live(cheap: Any, dear: Any, method: Any, n: int) -> dict[str, Any]:
    """The same problems through both engines now."""
    task = load_task(TASK, split="test")
    items = task.items(n, SEED)
    requests = [
        Request(str(i), task.prompt(item), method, seed=i, question=item.question) for i, item in enumerate(items)
    ]
    done = {
        one.id: one for one in Cascade(cheap, dear, budget=BUDGET).decode(requests, Decoding(0.6, SEED), batch_size=64)
    }
    right = [task.correct(done[str(i)].answer, item) for i, item in enumerate(items)]
    return {
        "n": n,
        "accuracy": wilson(sum(right), n),
        "cost": sum(one.cost for one in done.values()) / n,
        "handed_over": sum(one.second is not None for one in done.values()) / n,
    }


def settled_alone(calibration: Path, test: Path, risk: float) -> dict[str, Any]:
    """What a profile of 16 bits by itself comes to: the other way to spend less."""
    path = calibration.with_suffix(".json")
    assert bitcal(["fit", str(calibration), "--risk", str(risk), "--out", str(path)]) == 0
    store = TraceStore.open(test)
    method = build_method("settled", bits=16, budget=BUDGET, profile=load_profile(path))
    done = outcomes(store.read(), method, load_task(TASK), identity=store.identity)
    n = len(done)
    return {"accuracy": sum(o.correct for o in done) / n, "cost": sum(o.cost for o in done) / n,
            "lost": sum(o.lost for o in done), "n": n}  # fmt: skip


def main() -> None:
    """Record, fit, replay, run, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="tiny-4m")
    parser.add_argument("--bits", type=float, default=3, help="of the first (%(default)g)")
    parser.add_argument("--first", type=int, default=512, help="its budget (%(default)s)")
    parser.add_argument("--calibration", type=int, default=300)
    parser.add_argument("--n", type=int, default=200)
    parser.add_argument("--risk", type=float, default=0.05)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder, path, found = Path(name), Path(name) / "profile.json", Path(name) / "cascade.json"
        with closing(engine_at(args.model, args.bits)) as cheap, closing(engine_at(args.model, 16)) as dear:
            engines = {"cheap": cheap, "dear": dear}
            made = {
                f"{which}-{split}": recorded(engine, folder / f"{which}-{split}", n, split)
                for which, engine in engines.items()
                for split, n in (("calibration", args.calibration), ("test", args.n))
            }
            assert bitcal([
                "fit", str(made["cheap-calibration"]), "--handed-to", str(made["dear-calibration"]),
                "--risk", str(args.risk), "--budget", str(args.first), "--out", str(path),
            ]) == 0  # fmt: skip
            assert bitcal([
                "cascade", str(made["cheap-test"]), str(made["dear-test"]), "--profile", str(path),
                "--budget", str(args.first), "--out", str(found),
            ]) == 0  # fmt: skip
            profile = load_profile(path)
            told = {"task": TASK, "handed_to": profile.identity["handed_to"]}
            method = build_method("settled", bits=args.bits, budget=args.first, profile=profile, declare=told)
            now = live(cheap, dear, method, args.n)
            alone = settled_alone(made["dear-calibration"], made["dear-test"], args.risk)
        about = {"model": args.model, "task": TASK, "temperature": 0.6, "budget": BUDGET, "risk": args.risk}
        args.out.parent.mkdir(parents=True, exist_ok=True)
        found_there = {"replayed": json.loads(found.read_text()), "live": now, "settled_at_16_bits": alone}
        about |= {"bits": args.bits, "calibration": args.calibration, **found_there, "environment": environment()}
        write_json(args.out, about)
    print(now)


if __name__ == "__main__":
    main()
