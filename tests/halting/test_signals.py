from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitcal_tts.halting.signals import HiddenStability, TraceStability, entropy

CHUNKS = st.lists(
    st.sampled_from(["", "short", "  eight chars ", "eight chars", "another chunk", "x" * 8, "y" * 7]), max_size=30
)


def test_entropy_of_a_uniform_distribution_is_log_n() -> None:
    assert entropy(np.zeros(8)) == pytest.approx(math.log(8))


def test_entropy_of_two_outcomes_by_hand() -> None:
    # softmax([log 3, 0]) = [3/4, 1/4]
    expected = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25))
    assert entropy([math.log(3), 0.0]) == pytest.approx(expected)


def test_entropy_of_a_certain_token_is_zero_even_with_impossible_ones() -> None:
    assert entropy([0.0, -math.inf, -1e9]) == 0.0


@pytest.mark.parametrize("bad", [[], [[1.0]], [math.nan, 0.0], [math.inf, 0.0], [-math.inf, -math.inf]])
def test_entropy_refuses(bad: object) -> None:
    with pytest.raises(ValueError, match="logits"):
        entropy(bad)  # type: ignore[arg-type]


def test_trace_stability_by_hand() -> None:
    signal = TraceStability()
    assert signal.update("first chunk here") == 1.0  # no pair
    assert signal.update("second chunk here") == 1.0  # one pair: still 1 by definition
    assert signal.update("second chunk here ") == 0.5  # stripped: 1 of 2 pairs repeats
    assert signal.update("third chunk here") == pytest.approx(1 / 3)
    assert signal.update("tiny") == pytest.approx(1 / 3)  # below eight characters: no new pair
    assert signal.update("fourth chunk") == pytest.approx(1 / 3)  # neither is the pair with the short one


def trace_stability_from_scratch(chunks: list[str]) -> float:
    stripped = [c.strip() for c in chunks]
    pairs = [(a, b) for a, b in itertools.pairwise(stripped) if len(a) >= 8 and len(b) >= 8]
    return sum(a == b for a, b in pairs) / len(pairs) if len(pairs) >= 2 else 1.0


@given(CHUNKS)
def test_incremental_trace_stability_equals_recomputation(chunks: list[str]) -> None:
    signal = TraceStability()
    for i, chunk in enumerate(chunks):
        assert signal.update(chunk) == trace_stability_from_scratch(chunks[: i + 1])


def test_hidden_stability_by_hand() -> None:
    signal = HiddenStability()
    assert signal.update([3.0, 0.0]) == 1.0
    assert signal.update([0.0, 2.0]) == pytest.approx(0.0, abs=1e-9)
    assert signal.update([0.0, -5.0]) == pytest.approx(-0.5)
    assert signal.update_similarity(0.5) == pytest.approx((0.0 - 1.0 + 0.5) / 3)


@given(st.lists(st.lists(st.floats(-100, 100), min_size=3, max_size=3), max_size=12))
def test_incremental_hidden_stability_equals_recomputation(vectors: list[list[float]]) -> None:
    signal = HiddenStability()
    for i, vector in enumerate(vectors):
        value = signal.update(vector)
        seen = np.array(vectors[: i + 1], dtype=np.float64)
        unit = seen / (np.linalg.norm(seen, axis=1, keepdims=True) + 1e-12)
        expected = float((unit[1:] * unit[:-1]).sum(1).mean()) if i else 1.0
        assert value == pytest.approx(expected, abs=1e-9)
        assert -1.0 - 1e-9 <= value <= 1.0 + 1e-9


@pytest.mark.parametrize("bad", [[], [[1.0, 2.0]], [math.nan, 1.0], [math.inf, 1.0]])
def test_hidden_stability_refuses(bad: object) -> None:
    with pytest.raises(ValueError, match="hidden"):
        HiddenStability().update(bad)  # type: ignore[arg-type]


def test_hidden_stability_refuses_another_size() -> None:
    signal = HiddenStability()
    signal.update([1.0, 2.0])
    with pytest.raises(ValueError, match="3 numbers, the step before had 2"):
        signal.update([1.0, 2.0, 3.0])
