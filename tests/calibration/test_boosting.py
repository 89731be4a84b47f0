"""Boosted trees beside others who use the machine."""

from __future__ import annotations

import os
import subprocess
import sys
from ctypes.util import find_library
from typing import Any

import pytest

FITS = """
import os
import numpy as np
from bitcal_tts.calibration.boosting import boosted
rows = np.random.default_rng(0).random((200, 3)).astype(np.float32)
before = os.environ.get("GOMP_SPINCOUNT")
boosted(rows, rows[:, 0] > 0.5, rounds=2)
assert os.environ.get("GOMP_SPINCOUNT") == before
"""


@pytest.mark.skipif(find_library("gomp") is None, reason="another OpenMP than GNU's is here")
@pytest.mark.parametrize(("told", "spins"), [({}, "1000"), ({"GOMP_SPINCOUNT": "77"}, "77")])
def test_threads_that_wait_let_go_of_their_core_soon(told: dict[str, Any], spins: str) -> None:
    """Unless somebody says otherwise; and nobody else's settings are changed."""
    apart = {key: value for key, value in os.environ.items() if key not in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")}
    done = subprocess.run(
        [sys.executable, "-c", FITS], env={**apart, **told, "OMP_DISPLAY_ENV": "verbose"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert f"GOMP_SPINCOUNT = '{spins}'" in done.stderr
