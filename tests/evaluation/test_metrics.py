from __future__ import annotations

import pytest

from bitcal_tts.evaluation.metrics import summarise
from bitcal_tts.traces.outcome import Outcome

IDENTITY = {"model": "m", "bits": 4, "task": "t", "style": None, "decoding": {"temperature": 0.0}}


def outcome(tokens: int, finish: str, correct: bool, full_correct: bool) -> Outcome:
    return Outcome("i", "adaptive", 4, 512, tokens, 2, finish, finish, "1", correct, full_correct, 100)


def test_summary_by_hand() -> None:
    row = summarise(
        [
            outcome(48, "halted", True, True),
            outcome(38, "halted", False, True),
            outcome(28, "halted", True, False),
            outcome(100, "eos", False, False),
        ],
        IDENTITY,
    )
    assert (row["n"], row["accuracy"], row["premature_stop_rate"]) == (4, 0.5, 0.25)
    assert (row["lost_correct_rate"], row["rescued_rate"]) == (0.25, 0.25)
    assert row["avg_tokens"] == (48 + 38 + 28 + 100 + 8) / 4  # probe tokens are cost
    assert row["savings"] == pytest.approx(1 - 222 / 400)
    assert row["reasons"] == {"eos": 1, "halted": 3}
    with pytest.raises(ValueError, match="no outcomes"):
        summarise([], IDENTITY)
