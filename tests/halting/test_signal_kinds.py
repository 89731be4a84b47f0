"""Signals that are whole, truncated or absent, and say which."""

from __future__ import annotations

import math

import numpy as np
import pytest

from bitcal_tts.halting.signals import TEXT_ONLY, Signal, Signals, entropy, from_top


def test_what_is_present_depends_on_how_much_of_the_distribution_is_known() -> None:
    every = {Signal.ENTROPY, Signal.LOGPROB, Signal.MARGIN, Signal.TOP_LOGPROB}
    assert Signals().present == every
    assert Signals("top", k=20).present == every
    assert Signals("top", k=5).present == every - {Signal.TOP_LOGPROB}
    assert Signals("top", k=1).present == {Signal.ENTROPY, Signal.LOGPROB}
    assert TEXT_ONLY.present == frozenset()
    assert Signals("absent", probes=True, hidden_every=16).present == {Signal.PROBE, Signal.HIDDEN}
    assert [str(s) for s in (Signals(), Signals("top", k=5), TEXT_ONLY)] == ["full", "top-5", "text only"]
    assert TEXT_ONLY.lacks(frozenset({Signal.MARGIN, Signal.ENTROPY})) == [Signal.ENTROPY, Signal.MARGIN]


@pytest.mark.parametrize(("kind", "k"), [("top", None), ("top", 0), ("full", 3), ("absent", 1), ("some", None)])
def test_contradictions_are_refused(kind: str, k: int | None) -> None:
    with pytest.raises(ValueError, match="k goes with|distribution must be"):
        Signals(kind, k=k)  # type: ignore[arg-type]


@pytest.mark.parametrize("sharpness", [0.5, 1.5, 4.0])
@pytest.mark.parametrize("k", [1, 2, 20, 400])
def test_the_entropy_of_a_truncated_distribution_lies_within_its_bounds(k: int, sharpness: float) -> None:
    logits = sharpness * np.random.default_rng(k).normal(size=2048)
    logp = logits - np.log(np.exp(logits).sum())
    known = from_top(np.sort(logp)[::-1][:k].tolist(), 2048)
    exact = entropy(logits)
    assert known.entropy_low - 1e-9 <= exact <= known.entropy_high + 1e-9
    assert known.missing == pytest.approx(1 - np.exp(np.sort(logp)[::-1][:k]).sum(), abs=1e-9)
    top = np.sort(logp)[::-1]
    assert known.margin == (None if k == 1 else pytest.approx(top[0] - top[1]))
    assert known.top_logprob == (pytest.approx(top[:20].mean()) if k >= 20 else None)


def test_a_whole_distribution_has_nothing_missing() -> None:
    known = from_top([math.log(0.5), math.log(0.3), math.log(0.2)], 3)
    assert known.missing == 0.0
    assert known.entropy == known.entropy_low == pytest.approx(1.0296530140645737)


@pytest.mark.parametrize("logprobs", [[], [float("nan")], [0.5], [float("-inf")]])
def test_what_is_no_log_probability_is_refused(logprobs: list[float]) -> None:
    with pytest.raises(ValueError, match="log-probabilities must be finite"):
        from_top(logprobs, 10)
    with pytest.raises(ValueError, match="more than the vocabulary of 1"):
        from_top([-1.0, -2.0], 1)
