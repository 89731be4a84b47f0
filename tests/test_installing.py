"""What installs an optional part, from where the program came."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

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
