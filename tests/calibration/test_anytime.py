"""Evidence that is looked at after every request, and what it may not do."""

from __future__ import annotations

import math

import numpy as np
import pytest

from bitcal_tts.calibration.anytime import BELOW, Alarm, Mean, RarerThan, needed, rate_interval

RUNS, REQUESTS, LEVEL = 300, 600, 0.1


def share_refuted(rate: float, true: float) -> float:
    """Of many runs that are looked at after every request, how many ever refute."""
    draws = np.random.default_rng(7).random((RUNS, REQUESTS)) < true
    refuted = 0
    for run in draws:
        bets = RarerThan(rate)
        for lost in run:
            bets.take(lost=bool(lost))
        refuted += bets.refutes(LEVEL)
    return refuted / RUNS


@pytest.mark.parametrize("true", [0.05, 0.08])
def test_a_true_hypothesis_is_rarely_refuted_however_often_one_looks(true: float) -> None:
    # Three standard errors of a share of 0.1 in 300 runs.
    assert share_refuted(0.05, true) <= LEVEL + 3 * math.sqrt(LEVEL * (1 - LEVEL) / RUNS)


def test_a_false_hypothesis_is_refuted() -> None:
    assert share_refuted(0.05, 0.005) > 0.99


def requests_until_alarm(true: float, patience: float, before: int, most: int, seed: int) -> int:
    rng = np.random.default_rng(seed)
    alarm = Alarm(0.05, patience)
    for _ in range(before):
        alarm.take(lost=False)
    while not alarm.rung and alarm.n - before < most:
        alarm.take(lost=bool(rng.random() < true))
    return alarm.n - before


def test_false_alarms_are_as_far_apart_as_told() -> None:
    patience = 100
    took = [requests_until_alarm(0.05, patience, 0, 3000, seed) for seed in range(100)]
    assert np.mean(took) >= patience


def test_an_alarm_notices_a_change_however_long_all_went_well() -> None:
    soon, late = (np.mean([requests_until_alarm(0.3, 1000, n, 500, seed) for seed in range(30)]) for n in (0, 500))
    assert soon < 40 and late < 40
    assert late < soon + 5


def test_looking_again_would_spoil_a_plain_test() -> None:
    """What the bets are for: an exact test at the same level, asked after every request, is wrong too often."""
    from bitcal_tts.calibration.risk import binomial_p_value

    table = {(n, k): binomial_p_value(k, n, 0.05) <= LEVEL for n in range(1, 301) for k in range(n + 1) if k < 30}
    draws = np.cumsum(np.random.default_rng(7).random((RUNS, 300)) < 0.05, axis=1)
    wrong = np.mean([any(table.get((n + 1, int(k)), False) for n, k in enumerate(run)) for run in draws])
    assert wrong > 2 * LEVEL


def test_capital_is_the_mean_of_likelihood_ratios() -> None:
    bets = RarerThan(0.1)
    for lost in (False, True, False, False):
        bets.take(lost=lost)
    others = [0.1 * factor for factor in BELOW]
    ratios = [(q / 0.1) * ((1 - q) / 0.9) ** 3 for q in others]
    assert bets.capital == pytest.approx(math.log(np.mean(ratios)))
    assert bets.highest == pytest.approx(math.log(np.mean([(1 - q) / 0.9 for q in others])))


def test_what_is_needed_without_a_loss_is_enough() -> None:
    n = needed(0.02, 0.05)
    bets = RarerThan(0.02)
    for _ in range(n):
        bets.take(lost=False)
    assert bets.refutes(0.05)
    assert 150 < n < 250  # -log(0.05) / -log(0.98) = 148 would do for one who knew that none would be lost


@pytest.mark.parametrize("true", [0.02, 0.3])
def test_an_interval_holds_at_all_times(true: float) -> None:
    draws = np.cumsum(np.random.default_rng(3).random((200, 200)) < true, axis=1)
    missed = 0
    for run in draws:
        intervals = (rate_interval(int(run[n - 1]), n, 0.1) for n in range(5, 201, 5))
        missed += any(not low <= true <= high for low, high in intervals)
    assert missed / 200 <= 0.1 + 3 * math.sqrt(0.09 / 200)


def test_an_interval_narrows() -> None:
    assert rate_interval(0, 0) == (0.0, 1.0)
    assert rate_interval(0, 10)[0] == 0.0
    assert rate_interval(10, 10)[1] == 1.0
    low, high = rate_interval(20, 1000)
    assert 0.005 < low < 0.02 < high < 0.05


def test_the_mean_of_bounded_numbers() -> None:
    rng = np.random.default_rng(5)
    missed, width = 0, 0.0
    for _ in range(100):
        mean = Mean(level=0.1)
        wrong = False
        for value in rng.beta(2, 3, 300):
            mean.take(float(value))
            low, high = mean.interval
            wrong |= not low <= 0.4 <= high
        missed += wrong
        width = high - low
    assert missed / 100 <= 0.1 + 3 * 0.03
    assert width < 0.15
    assert mean.mean == pytest.approx(0.4, abs=0.05)
