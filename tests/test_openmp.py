"""Threads of the program's libraries beside others who use the machine."""

from __future__ import annotations

import os
import subprocess
import sys
from ctypes.util import find_library

import pytest

from bitcal_tts.openmp import let_go_soon, letting_go_at_once

SETTINGS = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")


@pytest.fixture
def nothing_told(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in SETTINGS:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("nothing_told")
@pytest.mark.parametrize("before", [None, "10000"])
def test_it_is_set_for_those_that_are_loaded_here(before: str | None) -> None:
    """With and without the program around it."""
    if before is not None:
        let_go_soon()
    for _ in range(2):
        with letting_go_at_once():
            assert os.environ["GOMP_SPINCOUNT"] == "1000"
        assert os.environ.get("GOMP_SPINCOUNT") == before


@pytest.mark.usefixtures("nothing_told")
@pytest.mark.parametrize("name", SETTINGS)
def test_what_the_environment_says_is_left_alone(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "7")
    let_go_soon()
    with letting_go_at_once():
        assert {one: os.environ.get(one) for one in SETTINGS} == dict.fromkeys(SETTINGS) | {name: "7"}
    assert {one: os.environ.get(one) for one in SETTINGS} == dict.fromkeys(SETTINGS) | {name: "7"}


@pytest.mark.skipif(find_library("gomp") is None, reason="another OpenMP than GNU's is here")
@pytest.mark.usefixtures("nothing_told")
def test_the_program_has_set_it_when_torch_is_loaded() -> None:
    code = "from bitcal_tts.cli import main; main([]); import torch"
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "OMP_DISPLAY_ENV": "verbose"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "GOMP_SPINCOUNT = '10000'" in done.stderr
