"""Our own run at full N: every model in the box, precision, style and temperature on the same held-out problems.

    python scripts/full_run.py --traces runs/full --jobs 6

Records what is missing (one trace folder a cell; killed, it goes on where it was). `scripts/full_tables.py` makes
the tables and figures from the folders.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

MODELS = ("tiny-15m", "tiny-4m", "tiny-1m")
BITS = (16, 8, 4, 3, 2)
STYLES = ("instruct", "thinking")
TEMPERATURES = (0.0, 0.6)
N = 1319
CALIBRATION_N = 4096


@dataclass(frozen=True)
class Cell:
    """One recording."""

    model: str
    bits: int
    style: str
    temperature: float
    split: str = "test"
    n: int = N
    probes: int | None = None
    seed: int = 0

    @property
    def name(self) -> str:
        """Its folder."""
        split = "" if self.split == "test" else f"-{self.split}"
        seed = f"-seed{self.seed}" if self.seed else ""
        return f"{self.model}-{self.bits}bit-{self.style}-t{self.temperature:g}{split}{seed}"


def cells(n: int = N, calibration_n: int = CALIBRATION_N) -> list[Cell]:
    """All recordings: the held-out grid, and of the largest model calibration problems and a fresh held-out draw.

    Thinking traces of the largest model are probed every 16 tokens and at stated answers. The fresh draw was recorded
    after every choice was made; it is as long as the calibration.
    """
    grid = [
        Cell(model, bits, style, t, n=n, probes=16 if (model, style) == ("tiny-15m", "thinking") else None)
        for model, bits, style, t in itertools.product(MODELS, BITS, STYLES, TEMPERATURES)
    ]
    more = [Cell("tiny-15m", bits, "thinking", 0.6, "calibration", calibration_n, probes=16) for bits in BITS]
    more += [Cell("tiny-15m", bits, "thinking", 0.6, n=calibration_n, probes=16, seed=1) for bits in BITS]
    more += [Cell("tiny-15m", bits, "instruct", 0.0, n=calibration_n, seed=1) for bits in BITS]
    more.append(Cell("tiny-15m", 4, "thinking", 1.0, n=n, probes=16))  # hotter than calibrated: a shift to notice
    return sorted(more + grid, key=lambda cell: cell.bits != 8)  # int8 is the slowest: it starts first


def record_cell(cell: Cell, folder: Path, batch: int, budget: int) -> str:
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
        load_task(split=cell.split),
        folder,
        n=cell.n,
        budget=budget,
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
    parser.add_argument("--n", type=int, default=N, help="held-out problems a cell (%(default)s)")
    parser.add_argument(
        "--calibration-n", type=int, default=CALIBRATION_N, help="calibration and fresh problems (%(default)s)"
    )
    parser.add_argument("--batch", type=int, default=N, help="rows decoded together (%(default)s)")
    parser.add_argument("--budget", type=int, default=512)
    parser.add_argument("--only", default="", help="only cells whose name holds this")
    parser.add_argument("--bits", default=",".join(map(str, BITS)), help="only these precisions (%(default)s)")
    args = parser.parse_args()
    bits = args.bits.split(",")
    wanted = [cell for cell in cells(args.n, args.calibration_n) if args.only in cell.name and str(cell.bits) in bits]
    with ProcessPoolExecutor(args.jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        running = {
            pool.submit(record_cell, cell, args.traces / cell.name, args.batch, args.budget): cell for cell in wanted
        }
        failed = []
        for i, future in enumerate(as_completed(running), 1):
            error = future.exception()
            if error is not None:
                failed.append(f"{running[future].name}: {type(error).__name__}: {error}")
            print(f"[{i}/{len(wanted)}] {failed[-1] if error else future.result()}", flush=True)
    if failed:
        raise SystemExit(f"{len(failed)} cells failed; run the same command again for them")


if __name__ == "__main__":
    main()
