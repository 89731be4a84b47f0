from __future__ import annotations

import pytest

from bitcal_tts.evaluation.metrics import summarise, wilson
from bitcal_tts.traces.replay import Outcome

IDENTITY = {"model": "m", "bits": 4, "task": "t", "style": None, "decoding": {"temperature": 0.0}}


@pytest.mark.parametrize(
    ("successes", "n", "low", "high"),
    [  # the paper's Table 1
        (30, 50, 46.2, 72.4),
        (49, 54, 80.1, 96.0),
        (43, 54, 67.1, 88.2),
        (45, 54, 71.3, 91.0),
        (31, 35, 74.0, 95.5),
        (29, 35, 67.3, 91.9),
        (30, 35, 70.6, 93.7),
    ],
)
def test_wilson_gives_the_papers_intervals(successes: int, n: int, low: float, high: float) -> None:
    assert [round(100 * bound, 1) for bound in wilson(successes, n)] == [low, high]


def test_wilson_at_the_ends() -> None:
    assert wilson(0, 10)[0] == 0.0
    assert wilson(10, 10)[1] == 1.0
    for bad in ((1, 0), (-1, 5), (6, 5)):
        with pytest.raises(ValueError, match="successes"):
            wilson(*bad)


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
