"""The recordings of the models in the box that every table about them is made from, in stages.

    python scripts/box_run.py --traces runs/box --stage calibration --jobs 6    # then fit the profiles and commit them
    python scripts/box_run.py --traces runs/box --stage test --jobs 6           # then look at held-out problems

Records what is missing (one trace folder a cell; killed, it goes on where it was). Problems of `stories` are of
templates that no model was trained on. `scripts/box_results.py` makes the tables from the folders.
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

MODELS = ("tiny-15m", "tiny-4m", "tiny-1m")
LARGEST, SMALLER = MODELS[:2]
BITS = (16, 4, 2)
BUDGETS = {"instruct": 512, "thinking": 1536}
SUMS = "chain_sum:max_digits=2"


@dataclass(frozen=True)
class Cell:
    """One recording.

    Attributes:
        model: In the box, or a folder with a checkpoint.
        probes: Tokens between probes that are no looks; None: no probes.
    """

    model: str
    bits: int
    style: str = "thinking"
    temperature: float = 0.6
    task: str = "stories"
    split: str = "test"
    n: int = 2048
    seed: int = 1
    probes: int | None = 16

    @property
    def name(self) -> str:
        """Its folder."""
        model, task = Path(self.model).name, self.task.partition(":")[0]
        return f"{model}-{self.bits}bit-{self.style}-t{self.temperature:g}-{task}-{self.split}"


def cells(other_seed: str | None) -> dict[str, list[Cell]]:
    """All recordings, by stage; `other_seed`: the folder of a model like the smaller one, from other first weights."""
    seeds = [SMALLER, *([other_seed] if other_seed else [])]
    return {
        "calibration": [
            *(Cell(LARGEST, bits, split="calibration", seed=0) for bits in BITS),
            *(Cell(model, 4, split="calibration", seed=0, n=1024) for model in seeds),
        ],
        "cards": [
            *(Cell(model, bits, "instruct", 0.0, "gsm_symbolic", n=1319, seed=0, probes=None)
              for model in MODELS for bits in (16, 8, 4, 3, 2)),
            *(Cell(model, bits, task="gsm_symbolic", n=1319, seed=0, probes=None) for model in MODELS for bits in BITS),
        ],
        "test": [
            *(Cell(LARGEST, bits) for bits in BITS),
            *(Cell(model, 4, n=1024) for model in seeds),
        ],
        # Other problems under the same profile; and models that err as the largest does at 2 bits, without rounding.
        "transfer": [
            Cell(LARGEST, 4, task="gsm_symbolic", split="unseen", n=1024),
            Cell(LARGEST, 4, task=SUMS, n=1024),
            Cell(LARGEST, 16, temperature=1.3, n=2048),
            Cell(MODELS[2], 16, n=2048),
        ],
    }  # fmt: skip


def record_cell(cell: Cell, folder: Path, batch: int) -> str:
    """Record one cell; how it went, in a line."""
    import torch

    from bitcal_tts.commands.build import engine_for
    from bitcal_tts.engines.base import Decoding
    from bitcal_tts.tasks import load_task
    from bitcal_tts.traces.record import record

    thinking = {"enable_thinking": cell.style == "thinking"}
    engine = engine_for(cell.model, cell.bits, template_options=thinking, device=None, compute_dtype=None)
    began = time.perf_counter()
    store = record(
        engine,
        load_task(cell.task, split=cell.split, answers="gsm8k"),
        folder,
        n=cell.n,
        budget=BUDGETS[cell.style],
        seed=cell.seed,
        decoding=Decoding(cell.temperature, cell.seed),
        batch_size=batch,
        probes=cell.probes,
    )
    del engine
    gc.collect()  # the engine's hook and its model hold each other
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    tokens = sum(part["tokens"] for part in store.measurements())
    return f"{cell.name}: {tokens:,} tokens, {time.perf_counter() - began:.0f} s"


def main() -> None:
    """Record the cells the options leave, some at once."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=Path, required=True, help="the folder of trace folders")
    parser.add_argument("--jobs", type=int, default=1, help="cells recorded at once: more than one needs a GPU")
    parser.add_argument("--batch", type=int, default=1024, help="rows decoded together (%(default)s)")
    parser.add_argument("--stage", choices=tuple(cells(None)), required=True)
    parser.add_argument("--only", default="", help="only cells whose name holds this")
    parser.add_argument("--other-seed", help="a checkpoint of tiny-4m trained with another seed, recorded beside it")
    args = parser.parse_args()
    wanted = [cell for cell in cells(args.other_seed)[args.stage] if args.only in cell.name]
    with ProcessPoolExecutor(args.jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        running = {pool.submit(record_cell, cell, args.traces / cell.name, args.batch): cell for cell in wanted}
        failed = []
        for i, future in enumerate(as_completed(running), 1):
            error = future.exception()
            failed += [running[future].name] if error else []
            print(f"[{i}/{len(wanted)}]", error or future.result(), flush=True)
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}; run the same command again for them")


if __name__ == "__main__":
    main()
