"""What installs an optional part, from where the program came."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from environments import environment


@pytest.mark.parametrize("there", [True, False])
def test_what_came_as_a_wheel_is_installed_from_that_wheel_again(tmp_path: Path, there: bool) -> None:
    python = environment(tmp_path / "env", [])
    wheel = tmp_path / "some where" / "bitcal_tts-0.2.0-py3-none-any.whl"
    wheel.parent.mkdir()
    if there:
        wheel.touch()
    (site,) = (tmp_path / "env").glob("lib/python*/site-packages")
    told = site / "bitcal_tts-0.2.0.dist-info"  # as pip writes it
    told.mkdir()
    (told / "METADATA").write_text("Metadata-Version: 2.4\nName: bitcal-tts\nVersion: 0.2.0\n")
    (told / "direct_url.json").write_text(json.dumps({"archive_info": {}, "url": wheel.as_uri()}))

    done = subprocess.run(
        [python, "-m", "bitcal_tts", "audit", "none.jsonl"], capture_output=True, text=True, check=False
    )

    assert done.returncode != 0
    assert (f"pip install '{wheel}[traces,fit]'" in " ".join(done.stderr.split())) is there
    assert ("pip install '.[traces,fit]' in the clone" in " ".join(done.stderr.split())) is not there


@pytest.mark.parametrize(
    "command",
    [
        ["audit", "log.jsonl"],
        ["fit", "traces", "--risk", "0.1", "--out", "p.json"],
        ["serve", "--demo", "--risk", "0.05"],
        ["doctor"],
    ],
    ids=lambda command: command[0],
)
def test_a_system_without_openmp_is_told_what_to_install_before_any_work(
    tmp_path: Path, command: list[str], probed: Any
) -> None:
    missing = tmp_path / "shadow" / "lightgbm"  # what its wheel does in a small container
    missing.mkdir(parents=True)
    (missing / "__init__.py").write_text(
        "raise OSError('libgomp.so.1: cannot open shared object file: No such file or directory')"
    )
    (tmp_path / "log.jsonl").write_text(json.dumps({"question": "1 + 1?", "response": "#### 2", "answer": "2"}))
    (tmp_path / "traces").symlink_to(probed.folder)
    done = subprocess.run(
        [sys.executable, "-m", "bitcal_tts", *command], capture_output=True, text=True, check=False, cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(missing.parent), "XDG_STATE_HOME": str(tmp_path)},
    )  # fmt: skip
    assert "Traceback" not in done.stderr
    assert "apt install libgomp1" in " ".join((done.stdout + done.stderr).split())
    assert done.returncode == (0 if command == ["doctor"] else 2)
    assert "reading" not in done.stderr
