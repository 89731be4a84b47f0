from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from bitcal_tts.evaluation.statistics import (
    holm,
    mcnemar,
    minimum_detectable_effect,
    not_worse_p_value,
    paired_difference,
    savings,
    wilson,
)


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
    interval = wilson(successes, n)
    assert (round(100 * interval.low, 1), round(100 * interval.high, 1)) == (low, high)


@given(st.integers(1, 3000), st.data(), st.sampled_from([0.8, 0.95, 0.99]))
def test_wilson_agrees_with_scipy(n: int, data: st.DataObject, confidence: float) -> None:
    k = data.draw(st.integers(0, n))
    expected = stats.binomtest(k, n).proportion_ci(confidence, method="wilson")
    interval = wilson(k, n, confidence)
    assert interval.low == pytest.approx(expected.low, abs=1e-9)
    assert interval.high == pytest.approx(expected.high, abs=1e-9)
    assert 0 <= interval.low <= interval.value <= interval.high <= 1


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=300))
def test_mcnemar_is_the_exact_binomial_test(pairs: list[tuple[bool, bool]]) -> None:
    first, second = zip(*pairs, strict=True)
    result = mcnemar(first, second)
    n = result.only_first + result.only_second
    expected = stats.binomtest(result.only_first, n, 0.5).pvalue if n else 1.0
    assert result.p_value == pytest.approx(expected, abs=1e-12)


def test_mcnemar_on_the_released_records() -> None:
    """4:2 discordant items on 7B and 1:0 on 14B, as counted in the released records."""
    assert mcnemar([1] * 4 + [0] * 2 + [1] * 48, [0] * 4 + [1] * 2 + [1] * 48).p_value == pytest.approx(0.6875)
    assert mcnemar([1] * 35, [0] + [1] * 34).p_value == 1.0


def test_mcnemar_with_many_items_does_not_overflow() -> None:
    first = np.arange(20_000) % 3 == 0
    assert 0 <= mcnemar(first, ~first).p_value <= 1


def test_holm_by_hand() -> None:
    # sorted: 0.01, 0.02, 0.03, 0.04 -> 4*0.01, 3*0.02, 2*0.03, 1*0.04, made monotone
    assert holm([0.03, 0.01, 0.04, 0.02]) == pytest.approx([0.06, 0.04, 0.06, 0.06])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


@given(st.lists(st.floats(0, 1), max_size=20))
def test_holm_never_lowers_a_p_value_nor_changes_their_order(p_values: list[float]) -> None:
    corrected = holm(p_values)
    assert all(c >= p for c, p in zip(corrected, p_values, strict=True))
    assert all(
        corrected[i] <= corrected[j]
        for i in range(len(p_values))
        for j in range(len(p_values))
        if p_values[i] <= p_values[j]
    )


def covered(share: float) -> bool:
    return 0.93 <= share <= 0.97


@pytest.mark.parametrize(("n", "p"), [(200, 0.9), (1319, 0.95), (1319, 0.5)])
def test_wilson_covers(n: int, p: float) -> None:
    rng = np.random.default_rng(1)
    hits = [w.low <= p <= w.high for w in (wilson(int(k), n) for k in rng.binomial(n, p, 4000))]
    assert covered(float(np.mean(hits)))


@pytest.mark.parametrize(("only_first", "only_second"), [(0.05, 0.02), (0.02, 0.02), (0.15, 0.01)])
def test_paired_difference_covers(only_first: float, only_second: float) -> None:
    rng = np.random.default_rng(2)
    n, truth, hits = 500, only_first - only_second, []
    for _ in range(2000):
        u = rng.random(n)
        a = (u < only_first) | (u >= only_first + only_second + 0.1)
        b = u >= only_first
        b &= (u < only_first + only_second) | (u >= only_first + only_second + 0.1)
        interval = paired_difference(a, b)
        hits.append(interval.low <= truth <= interval.high)
    assert covered(float(np.mean(hits)))


def test_savings_cover() -> None:
    rng = np.random.default_rng(3)
    full = rng.integers(80, 400, size=200_000)
    used = np.minimum(full, rng.integers(60, 300, size=full.size))
    truth = 1 - used.sum() / full.sum()
    hits = []
    for seed in range(1000):
        at = rng.integers(0, full.size, 250)
        interval = savings(used[at], full[at], draws=500, seed=seed)
        hits.append(interval.low <= truth <= interval.high)
    assert covered(float(np.mean(hits)))


def test_savings_by_hand() -> None:
    assert savings([50, 100], [100, 200]).value == 0.5
    assert savings([50] * 9, [100] * 9) == (0.5, 0.5, 0.5)
    assert savings([0], [0]) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize(("n", "rate"), [(500, 0.1), (1319, 0.05), (2560, 0.2)])
def test_the_minimum_detectable_effect_is_found_four_times_in_five(n: int, rate: float) -> None:
    effect = minimum_detectable_effect(n, rate)
    rng = np.random.default_rng(4)
    found = []
    for _ in range(1500):
        discordant = rng.binomial(n, rate)
        only_first = rng.binomial(discordant, (1 + effect / rate) / 2)
        p = stats.binomtest(only_first, discordant, 0.5).pvalue if discordant else 1.0
        found.append(p < 0.05)
    assert 0.72 <= float(np.mean(found)) <= 0.86  # the exact test is a little conservative


def test_the_minimum_detectable_effect_shrinks_with_n() -> None:
    effects = [minimum_detectable_effect(n, 0.1) for n in (100, 400, 1600)]
    assert effects == sorted(effects, reverse=True)
    assert minimum_detectable_effect(20, 0.01) == math.inf
    assert minimum_detectable_effect(200, 0.0) == math.inf
    assert 0 < minimum_detectable_effect(1319) < 0.01


def test_bad_input_is_named() -> None:
    for successes, n in ((1, 0), (-1, 5), (6, 5)):
        with pytest.raises(ValueError, match="successes"):
            wilson(successes, n)
    with pytest.raises(ValueError, match="confidence"):
        wilson(1, 2, confidence=1.0)
    with pytest.raises(ValueError, match="equally long"):
        mcnemar([1], [1, 0])
    with pytest.raises(ValueError, match="equally long"):
        savings([1], [1, 2])
    with pytest.raises(ValueError, match="n must be"):
        minimum_detectable_effect(0)


def test_not_being_worse_is_shown_as_rarely_in_error_as_it_says() -> None:
    """At the margin itself one draw in twenty shows it; where nothing differs the score is that of the margin alone."""
    rng = np.random.default_rng(5)
    n, margin = 2000, 0.02
    only_second = rng.binomial(n, 0.05, 4000)
    only_first = np.array([rng.binomial(n - lost, 0.03 / 0.95) for lost in only_second])
    shown = [not_worse_p_value(int(b), int(c), n, margin) < 0.05 for b, c in zip(only_first, only_second, strict=True)]
    assert 0.035 < np.mean(shown) < 0.065
    z = math.sqrt(n * margin / (1 - margin))
    assert not_worse_p_value(0, 0, n, margin) == pytest.approx(1 - float(stats.norm.cdf(z)))
    assert not_worse_p_value(0, 40, n, margin) == pytest.approx(0.5)
    with pytest.raises(ValueError, match="need 0 < margin < 1"):
        not_worse_p_value(0, 0, 10, 0.0)
