"""Equality of mathematics by math-verify, in a process of its own.

An answer such as `9^{9^{9}}` would be computed for ever, inside one operation that no signal interrupts. So a child
compares, and one that takes too long is killed: its answer counts as different.
"""

from __future__ import annotations

import atexit
import json
import os
import queue
import subprocess
import sys
import threading
from contextlib import suppress
from functools import lru_cache

from bitcal_tts.installing import install_command
from bitcal_tts.tasks.base import TaskError

SECONDS = 5.0
_START = 60.0  # importing sympy on a busy machine
_MEMORY = 4 * 2**30


@lru_cache(maxsize=65536)
def same(gold: str, answer: str) -> bool:
    """Whether two expressions are equal, which knows that 1/2 is 0.5 and x + 1 is 1 + x."""
    return _JUDGE.same(gold, answer)


class Judge:
    """A child that compares, started when it is first asked and again after it had to be killed."""

    def __init__(self, seconds: float = SECONDS) -> None:
        self._seconds = seconds
        self._lock = threading.Lock()
        self._child: subprocess.Popen[str] | None = None
        self._lines: queue.Queue[str] = queue.Queue()
        atexit.register(self.close)

    def same(self, gold: str, answer: str) -> bool:
        """The child's verdict; False where it takes too long or dies over it."""
        with self._lock:
            if self._child is None:
                self._start()
            assert self._child is not None and self._child.stdin is not None
            try:
                self._child.stdin.write(json.dumps([gold, answer]) + "\n")
                self._child.stdin.flush()
                said = self._lines.get(timeout=self._seconds)
            except (queue.Empty, OSError):
                said = ""
            if not said:
                self._kill()
            return said == "same"

    def close(self) -> None:
        """End the child."""
        with self._lock:
            self._kill()

    def forget(self) -> None:
        """In a copy of this process: the child is not its own, and nobody here reads what it says."""
        self._lock, self._child = threading.Lock(), None

    def _start(self) -> None:
        self._lines = queue.Queue()
        self._child = subprocess.Popen(  # noqa: S603
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, encoding="utf-8",
        )  # fmt: skip
        threading.Thread(target=_read, args=(self._child, self._lines), daemon=True).start()
        try:
            ready = self._lines.get(timeout=_START) == "ready"
        except queue.Empty:
            ready = False
        if not ready:
            self._kill()
            raise TaskError(f"the task 'math' needs math-verify: {install_command('tasks')}")

    def _kill(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child.wait()
            assert self._child.stdin is not None
            with suppress(OSError):  # what was not sent
                self._child.stdin.close()
            self._child = None


def _read(child: subprocess.Popen[str], lines: queue.Queue[str]) -> None:
    assert child.stdout is not None
    with child.stdout:
        for line in child.stdout:
            lines.put(line.strip())
    lines.put("")  # it is gone


_JUDGE = Judge()
os.register_at_fork(after_in_child=_JUDGE.forget)


def _compare(gold: str, answer: str) -> bool:
    from math_verify import parse, verify

    known, given = (parse(f"${text}$", parsing_timeout=None) for text in (gold, answer))
    return bool(known and given and verify(known, given, timeout_seconds=None))


def _serve() -> None:
    """The child: a pair a line in, a verdict a line out."""
    import math_verify  # noqa: F401  (a missing package ends the child before it is ready)

    with suppress(ImportError, OSError, ValueError):  # where the system has no such limit
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    print("ready", flush=True)
    for line in sys.stdin:
        try:
            verdict = "same" if _compare(*json.loads(line)) else "different"
        except Exception:  # sympy raises all kinds on what is no mathematics
            verdict = "different"
        print(verdict, flush=True)


if __name__ == "__main__":
    _serve()
