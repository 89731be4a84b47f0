"""The profile that `bitcal serve --demo` brings: recorded through llama.cpp's server, fitted, certified.

    python scripts/fit_demo.py

Writes src/bitcal_tts/serving/demo.json.gz.
"""

from __future__ import annotations

import argparse
import gzip
import json
import tempfile
from contextlib import closing
from pathlib import Path

from bitcal_tts.calibration.store import load_profile
from bitcal_tts.cli import main as bitcal
from bitcal_tts.engines.base import Decoding
from bitcal_tts.engines.gguf import export_gguf
from bitcal_tts.engines.http import HttpEngine
from bitcal_tts.engines.llama_server import OwnServer
from bitcal_tts.files import write_atomically
from bitcal_tts.serving import demo
from bitcal_tts.tasks import load_task
from bitcal_tts.tiny import models
from bitcal_tts.traces.record import record


def main() -> None:
    """Record, fit, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=320)
    parser.add_argument("--risk", type=float, default=0.05)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        file = folder / f"{demo.MODEL}-{demo.KIND}.gguf"
        export_gguf(models.resolve(demo.MODEL), demo.KIND, file)
        server = OwnServer(file, parallel=8, context=2 * demo.BUDGET)
        with closing(HttpEngine(server.url, owned=server, template_options=demo.TEMPLATE)) as engine:
            record(
                engine, load_task(demo.TASK, split="calibration"), folder / "traces", n=args.n, budget=demo.BUDGET,
                decoding=Decoding(demo.TEMPERATURE, seed=1), batch_size=8, block_size=100, probes=32,
            )  # fmt: skip
        out = folder / "profile.json"
        assert bitcal(["fit", str(folder / "traces"), "--risk", str(args.risk), "--out", str(out)]) == 0
        told = json.dumps(load_profile(out).to_dict(), separators=(",", ":")).encode()
    path = Path(demo.__file__).with_name(demo.FILE)

    def write(temporary: Path) -> None:
        temporary.write_bytes(gzip.compress(told, mtime=0))

    write_atomically(path, write)
    print(f"{path}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
