"""How peers choose a threshold, by hand; and that a promise for looks is none for requests."""

from __future__ import annotations

import math

import numpy as np

from bitcal_tts.calibration.peers import conformal_risk_control, split_conformal, upper_confidence_bound


def test_conformal_risk_control_counts_one_loss_more() -> None:
    losses, costs = [0, 1, 2, 3], [40.0, 30.0, 20.0, 10.0]
    assert conformal_risk_control(losses, costs, 99, 0.02) == 1  # (1 + 1) / 100
    assert conformal_risk_control(losses, costs, 99, 0.0199) == 0
    assert conformal_risk_control(losses, costs, 9, 0.05) is None
    assert conformal_risk_control([0, 5, 0], [3.0, 1.0, 2.0], 99, 0.02) == 2  # the cheapest, not the last


def test_the_upper_confidence_bound_has_a_slack_that_few_items_do_not_pay() -> None:
    slack = math.sqrt(math.log(10) / 2000)  # 3.4 points with 1,000 items
    assert upper_confidence_bound([0, 1], [2.0, 1.0], 1000, slack + 0.0005, 0.9) == 0
    assert upper_confidence_bound([0, 1], [2.0, 1.0], 1000, slack + 0.0011, 0.9) == 1
    assert upper_confidence_bound([0], [1.0], 1000, 0.03, 0.9) is None


def test_split_conformal_by_hand() -> None:
    scores = np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9])
    wrong = np.zeros(9, dtype=np.bool_)
    assert split_conformal(scores, wrong, 0.05) == math.inf  # 1 / 10 is more
    assert 0.9 < split_conformal(scores, wrong, 0.1) < 0.9001  # above all wrong looks
    assert 0.8 < split_conformal(scores, wrong, 0.2) < 0.8001  # one of them may score as high
    right = np.append(wrong, np.ones(4, dtype=np.bool_))
    more = np.append(scores, [0.85, 0.95, 0.96, 0.97])
    assert split_conformal(more, right, 0.2) == 0.85  # below it `right` would be as unlikely as `wrong`


def test_a_promise_for_looks_is_none_for_requests() -> None:
    """Twenty wrong looks a request, each stopped with a probability of 5 %: most requests are lost."""
    rng = np.random.default_rng(0)
    looks = rng.random((2000, 20))
    bar = split_conformal(looks[:1000].ravel(), np.zeros(20_000, dtype=np.bool_), 0.05)
    assert 0.04 < (looks[1000:] >= bar).mean() < 0.06
    assert (looks[1000:] >= bar).any(axis=1).mean() > 0.6
