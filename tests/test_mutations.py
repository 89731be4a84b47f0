"""Lines that `scripts/mutations.py` makes wrong are there to be made wrong."""

from __future__ import annotations

import runpy
from pathlib import Path

SCRIPT = Path(__file__).parents[1] / "scripts" / "mutations.py"


def test_every_line_that_is_to_be_made_wrong_stands_once() -> None:
    found = runpy.run_path(str(SCRIPT))
    counts = {one.what: (found["PACKAGE"] / one.file).read_text().count(one.right) for one in found["MUTATIONS"]}
    assert len(counts) > 50 and {what for what, count in counts.items() if count != 1} == set()


def test_every_test_that_is_to_notice_is_there() -> None:
    found = runpy.run_path(str(SCRIPT))
    assert [one.tests for one in found["MUTATIONS"] if not (found["ROOT"] / one.tests).exists()] == []
