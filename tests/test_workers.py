"""Processes that work for a command end when it does, though it be killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are looked for in /proc")

AUDIT = """
import os, sys, time
from bitcal_tts.cli import main
from bitcal_tts.commands.audit import _Audit

def walk(self, pool, *, quiet):
    print(pool.submit(os.getpid).result(), flush=True)
    time.sleep(60)

_Audit.walk = walk
if __name__ == "__main__":
    main(["audit", sys.argv[1]])
"""
READ_TRACES = """
import os, time
from bitcal_tts.traces import parallel

def work(traces, tick):
    print(os.getpid(), flush=True)
    time.sleep(60)

parallel._FEWEST = 1
os.cpu_count = lambda: 2
parallel.in_shares(range(16), work)
"""


def is_running(pid: int) -> bool:
    """Whether there is such a process; one that nobody has waited for yet is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


@pytest.mark.parametrize("code", [AUDIT, READ_TRACES], ids=["audit", "traces"])
def test_no_process_outlives_a_command_that_is_killed(tmp_path: Path, code: str) -> None:
    log = tmp_path / "log.jsonl"
    log.write_text(json.dumps({"question": "3 + 4?", "response": "#### 7", "answer": "7"}), encoding="utf-8")
    program = tmp_path / "program.py"
    program.write_text(code, encoding="utf-8")
    with subprocess.Popen([sys.executable, str(program), str(log)], stdout=subprocess.PIPE, text=True) as command:
        assert command.stdout is not None
        worker = int(command.stdout.readline())
        was_running = is_running(worker)
        command.kill()
    until = time.monotonic() + 30
    while is_running(worker) and time.monotonic() < until:
        time.sleep(0.05)
    outlived = is_running(worker)
    if outlived:
        os.kill(worker, signal.SIGKILL)
    assert was_running and not outlived
