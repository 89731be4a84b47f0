from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitcal_tts.halting.confidence import bit_scale, confidence, normalised
from bitcal_tts.halting.parameters import tail_length

PAPER: dict[str, Any] = {"weights": (0.40, 0.35, 0.25), "scale": 0.85, "entropy_max": 10.0, "gamma": 1.0}


@pytest.mark.parametrize(
    ("bits", "scale", "tail"),
    [(1, 0.85, 32), (4, 0.85, 32), (4.5, 1.0, 16), (8, 1.0, 16), (9, 1.05, 0), (16, 1.05, 0)],
)
def test_scale_and_tail_by_bits(bits: float, scale: float, tail: int) -> None:
    assert bit_scale(bits) == scale
    assert tail_length(bits) == tail


@given(st.floats(1, 64), st.floats(1, 64))
def test_more_bits_never_lower_the_scale_nor_lengthen_the_tail(one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert bit_scale(low) <= bit_scale(high)
    assert tail_length(low) >= tail_length(high)


def test_confidence_by_hand() -> None:
    # u = 2/10; c_raw = 0.4*0.8 + 0.35*0.5 + 0.25*0.6 = 0.645; times 0.85
    assert confidence(2.0, 0.5, 0.6, **PAPER) == pytest.approx(0.645 * 0.85)


def test_entropy_beyond_the_maximum_counts_as_the_maximum() -> None:
    assert confidence(99.0, 1.0, 1.0, **PAPER) == pytest.approx(0.60 * 0.85)


def test_temperature_of_the_calibrator_by_hand() -> None:
    assert confidence(0.0, 1.0, 1.0, **{**PAPER, "gamma": 2.0}) == pytest.approx(0.85**0.5)
    assert confidence(0.0, 1.0, 1.0, **{**PAPER, "gamma": 0.5}) == pytest.approx(0.85**2)


def test_clipped_above_and_below() -> None:
    assert confidence(0.0, 1.0, 1.0, **{**PAPER, "scale": 1.05}) == 1.0
    assert confidence(10.0, 0.0, -1.0, **PAPER) == 0.0


@given(
    st.floats(0, 50),
    st.floats(0, 1),
    st.floats(-1, 1),
    st.tuples(st.floats(0.01, 1), st.floats(0, 1), st.floats(0, 1)),
    st.sampled_from([0.85, 1.0, 1.05]),
    st.floats(0.05, 20),
)
def test_confidence_is_a_fraction_and_arrays_agree_to_the_bit(
    h: float, tr: float, hid: float, weights: tuple[float, float, float], scale: float, gamma: float
) -> None:
    options = {"weights": normalised(weights), "scale": scale, "entropy_max": 10.0, "gamma": gamma}
    one = float(confidence(h, tr, hid, **options))  # type: ignore[arg-type]
    assert 0.0 <= one <= 1.0
    many = confidence(np.full(37, h), np.full(37, tr), np.full(37, hid), **options)  # type: ignore[arg-type]
    assert (many == one).all()


def test_weights_are_normalised() -> None:
    assert normalised((4.0, 3.5, 2.5)) == pytest.approx((0.4, 0.35, 0.25))
