"""The Transformers engine passes the suite that it is the measure of: its stops, landings and replays are its own."""

from __future__ import annotations

from typing import Any

import pytest
from conformance import Conformance


@pytest.fixture(scope="module")
def served(local: Any) -> Any:
    return local


class TestTransformers(Conformance):
    """All of it."""

    exact = True
