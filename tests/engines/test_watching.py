"""Requests inside vLLM, as far as no vLLM is needed: what is shared between them, and what one may not do to others."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")

from bitcal_tts.engines.watched import SIGNALS, Watched
from bitcal_tts.engines.watching import Settings, take
from bitcal_tts.halting.identity import Identity
from bitcal_tts.halting.methods import build_method


class Letters:
    """A vocabulary of characters; the last of them ends a sequence."""

    ends = frozenset({0})

    def texts(self) -> Letters:
        return self

    def add(self, token_id: int) -> str:
        return chr(token_id)

    def encode(self, text: str) -> list[int]:
        return list(map(ord, text))


def watched(text: str) -> Watched:
    row = Watched(build_method("complete", bits=16, budget=64), [*map(ord, text)], Letters(), Identity())
    row.known = dict.fromkeys(range(len(text)), (0.0, 0.0, 1.0, 0.0))
    return row


def test_one_that_fails_goes_on_unwatched_and_costs_no_other(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broken, fine = watched("x"), watched("#### 7\n")

    def fail(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(broken.session, "feed", fail)
    take([broken, fine])
    assert broken.forces is None and not broken.landing and fine.forces == 0
    assert "goes on unwatched" in caplog.text
    broken.known = {1: (0.0, 0.0, 1.0, 0.0)}
    take([broken])  # and nothing piles up
    assert not broken.known


def test_requests_that_ask_for_the_same_share_a_method() -> None:
    told = {"method": "stated", "bits": 16, "budget": 64, "options": {"threshold": 2}}
    one, other = Settings(told).method, Settings(dict(told)).method
    assert one is other
    assert Settings({**told, "budget": 65}).method is not one
    assert Settings({**told, "options": {"threshold": 3}}).method is not one


def test_an_oracle_is_not_for_requests() -> None:
    assert not SIGNALS.lacks(build_method("oracle", bits=16, budget=64).needs)
    with pytest.raises(ValueError, match="exists in replay only"):
        Settings({"method": "oracle", "bits": 16, "budget": 64})
