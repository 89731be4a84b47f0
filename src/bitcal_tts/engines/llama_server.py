"""A llama.cpp server for a GGUF file, out of the xllamacpp wheel: nothing is built.

    python -m bitcal_tts.engines.llama_server tiny-15m-Q4_K.gguf --port 8080 --parallel 4

It is llama.cpp's own server; whoever has one already starts that.
"""

from __future__ import annotations

import argparse
import os
import signal
import threading
from pathlib import Path


def main() -> None:
    """Serve until stopped."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, help="a GGUF file, such as bitcal export writes")
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("--parallel", type=int, default=4, help="requests decoded at once (%(default)s)")
    parser.add_argument("--context", type=int, default=2048, help="positions of each of them (%(default)s)")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="one a core unless told")
    args = parser.parse_args()
    if not args.file.is_file():
        parser.error(f"there is no file {args.file}; bitcal export writes one")
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(args.file.resolve())
    params.hostnames = ["127.0.0.1"]
    params.port = args.port
    params.n_parallel = args.parallel
    params.n_ctx = args.parallel * args.context
    params.cpuparams.n_threads = args.threads
    params.cpuparams_batch.n_threads = args.threads
    params.endpoint_slots = True
    params.endpoint_metrics = True
    server = xllamacpp.Server(params)
    print(f"serving {args.file} at {server.listening_address}", flush=True)
    stop = threading.Event()
    for name in (signal.SIGINT, signal.SIGTERM):
        signal.signal(name, lambda *_: stop.set())
    stop.wait()


if __name__ == "__main__":
    main()
