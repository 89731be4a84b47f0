"""Risk control: p-values against scipy and MAPIE, the fixed sequence, and whether the promise holds."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

from bitcal_tts.calibration.risk import binomial_p_value, certify, grid, hoeffding_bentkus_p_value


@pytest.mark.parametrize("n", [1, 50, 500, 2000])
@pytest.mark.parametrize("risk", [0.005, 0.01, 0.1])
def test_binomial_p_values_agree_with_scipy(n: int, risk: float) -> None:
    for losses in {0, 1, min(7, n), n // 20, n}:
        assert binomial_p_value(losses, n, risk) == pytest.approx(float(binom.cdf(losses, n, risk)), rel=1e-9)


@pytest.mark.parametrize("n", [50, 500, 2000])
@pytest.mark.parametrize("risk", [0.005, 0.01, 0.1])
def test_hoeffding_bentkus_agrees_with_mapie(n: int, risk: float) -> None:
    from mapie.risk_control.methods import compute_hoeffding_bentkus_p_value

    for losses in range(0, n // 10, max(1, n // 100)):
        theirs = compute_hoeffding_bentkus_p_value(np.array([losses / n]), n, risk)
        assert hoeffding_bentkus_p_value(losses, n, risk) == pytest.approx(min(1.0, float(theirs.ravel()[0])), rel=1e-6)


def test_the_fixed_sequence_agrees_with_mapie() -> None:
    from mapie.risk_control import FWERFixedSequenceTesting, control_fwer

    rng = np.random.default_rng(3)
    for _ in range(30):
        rates = np.sort(rng.uniform(0, 0.04, 40))
        losses = dict(zip(range(40, 0, -1), rng.binomial(1000, rates), strict=True))
        p_values = np.array([hoeffding_bentkus_p_value(int(k), 1000, 0.02) for k in losses.values()])
        valid = control_fwer(p_values, 0.1, FWERFixedSequenceTesting(n_starts=1))

        def losses_at(threshold: float, at: dict[int, int] = losses) -> int:
            return int(at[int(threshold)])

        found = certify(
            losses_at, 1000, [float(t) for t in losses], risk=0.02, confidence=0.9, p_value="hoeffding_bentkus"
        )
        expected = 40.0 - max(map(int, valid)) if len(valid) else math.inf
        assert found.threshold == expected


def test_of_those_that_cost_nearly_the_same_the_strictest_is_chosen() -> None:
    costs = {0.9: 200.0, 0.8: 100.5, 0.7: 100.0, 0.6: 50.0}
    found = certify(
        lambda t: 0 if t > 0.65 else 99,
        1000,
        [0.9, 0.8, 0.7, 0.6],
        risk=0.01,
        confidence=0.9,
        cost_at=costs.get,  # type: ignore[arg-type]
    )
    assert found.threshold == 0.8


def test_where_nothing_certifies_it_says_how_many_more_are_needed() -> None:
    found = certify(lambda _: 0, 100, [0.9], risk=0.01, confidence=0.9)
    assert (found.threshold, found.more) == (math.inf, 130)  # 230 items without a loss
    assert binomial_p_value(0, 230, 0.01) <= 0.1 < binomial_p_value(0, 229, 0.01)
    assert certify(lambda _: 50, 1000, [0.9], risk=0.01, confidence=0.9).more is None  # no number would do
    assert certify(lambda _: 1, 20, [0.9], risk=0.05, confidence=0.9).more == 25  # one of twenty may be chance
    assert certify(lambda _: 0, 1000, [], risk=0.01, confidence=0.9).more is None
    assert certify(lambda _: 0, 100, [], risk=0.01, confidence=0.9).more == 130  # so few that nothing says anything yet


def test_the_promise_holds_over_random_splits() -> None:
    """A known population of 3,000 sequences and 30 thresholds; 400 calibration samples with replacement."""
    rng = np.random.default_rng(0)
    first_loss = rng.geometric(0.004, 3000)  # a sequence is lost from this threshold on
    thresholds = [float(t) for t in range(30, 0, -1)]
    lost = np.stack([first_loss <= 31 - t for t in thresholds], axis=1)
    truth = lost.mean(axis=0)
    for p_value in ("binomial", "hoeffding_bentkus"):
        broken = 0
        for _ in range(400):
            sums = lost[rng.integers(0, 3000, 800)].sum(axis=0)

            def losses_at(threshold: float, counted: Any = sums) -> int:
                return int(counted[int(30 - threshold)])

            found = certify(losses_at, 800, thresholds, risk=0.03, confidence=0.9, p_value=p_value)
            broken += math.isfinite(found.threshold) and bool(truth[int(30 - found.threshold)] > 0.03)
        assert broken / 400 <= 0.1 + 3 * (0.1 * 0.9 / 400) ** 0.5
        assert broken > 0 or p_value == "hoeffding_bentkus"  # sharp, not merely safe


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"risk": 0}, "risk must be above 0 and below 1, got 0"),
        ({"risk": 5.0}, r"risk must be above 0 and below 1, got 5.0 \(5 % is 0.05\)"),
        ({"risk": 1.0}, "risk must be"),
        ({"confidence": 1}, "confidence must be"),
        ({"n": 0}, "no sequences"),
        ({"thresholds": [0.1, 0.2]}, "strictest first"),
    ],
)
def test_bad_levels_are_named(options: dict[str, object], message: str) -> None:
    usual: dict[str, object] = {"n": 10, "thresholds": [0.9], "risk": 0.1, "confidence": 0.9}
    with pytest.raises(ValueError, match=message):
        certify(lambda _: 0, **{**usual, **options})  # type: ignore[arg-type]


def test_the_grid_comes_strictest_first() -> None:
    values = grid([0.1, 0.9, 0.5, 0.5], size=3)
    assert values == [0.9, 0.5, 0.1]
    assert grid([]) == []
