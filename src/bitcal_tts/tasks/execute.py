"""Running code that a model wrote, only where it was asked for: a subprocess with limits and an empty environment.

The limits keep an accident small: time, memory, file size, no child processes (a limit that root is exempt from), a
folder of its own that is deleted. They are no sandbox against malice: who runs hostile models should run the whole
program in a container.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
from functools import lru_cache

SECONDS = 5
_MEMORY = 512 * 2**20
_OUTPUT = 64 * 1024


@lru_cache(maxsize=4096)
def run_code(code: str) -> str | None:
    """What a Python program prints, or None where it fails, takes too long or says too much."""
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as said:  # files are limited, pipes are not
        try:
            done = subprocess.run(  # noqa: S603
                [sys.executable, "-I", "-S", "-c", code],
                cwd=folder,
                env={},
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.DEVNULL,
                timeout=SECONDS,
                preexec_fn=_limit,
                check=False,
            )
        except (subprocess.TimeoutExpired, OSError, ValueError):
            return None
        said.seek(0)
        output = said.read(_OUTPUT)
    return output.decode(errors="replace").strip() if done.returncode == 0 and len(output) < _OUTPUT else None


def _limit() -> None:
    for what, most in (
        (resource.RLIMIT_CPU, SECONDS),
        (resource.RLIMIT_AS, _MEMORY),
        (resource.RLIMIT_FSIZE, _OUTPUT),
        (resource.RLIMIT_NPROC, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(what, (most, most))
