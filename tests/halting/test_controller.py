from __future__ import annotations

import math
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitcal_tts import Action, Controller, Reason, Step, build_method

ENTROPIES = st.floats(0, 12)
STEPS = st.lists(
    st.tuples(st.sampled_from(["prose that differs ", "the same chunk ", " ## ", "#### 4", "##", "", "\n"]), ENTROPIES),
    max_size=40,
)


def step(text: str = "some words here ", n: int = 16, entropy: float = 0.5, **more: Any) -> Step:
    return Step(text=text, n_tokens=n, entropy=entropy, **more)


def drive(controller: Controller, *steps: Step) -> list[tuple[str, str]]:
    return [(str(d.action), str(d.reason)) for d in map(controller.observe, steps)]


def words(n: int) -> list[Step]:
    return [step(f"chunk number {i} says") for i in range(n)]


def test_every_branch_in_the_papers_order() -> None:
    c = build_method("bitcal_tts", bits=4, budget=160, min_tokens=32, stop_confidence=0.99)
    assert drive(c, *words(2)) == [("continue", "below_floor"), ("continue", "undecided")]
    assert drive(c, step("lost entirely now", entropy=4.0)) == [("escalate", "high_entropy")]
    assert drive(c, *words(5))[-1] == ("continue", "undecided")  # 128 of 160: 32 remain, not fewer
    # 144 of 160: the buffer fires before the escalation
    assert drive(c, step("lost entirely now", entropy=9.0)) == [("stop", "buffer")]


def test_confident_needs_low_entropy_and_confidence() -> None:
    c = build_method("adaptive", bits=4, budget=512, min_tokens=0, stop_confidence=0.9)
    # no pairs yet: both stabilities are 1, so c = 1.05 * (0.4 (1 - H/10) + 0.6), clipped
    d = c.observe(step("first chunk here", entropy=1.0))
    assert (d.action, d.reason) == (Action.STOP, Reason.CONFIDENT)
    assert d.confidence == 1.0
    d = c.observe(step("another chunk here", entropy=2.01))
    assert (d.action, d.reason) == (Action.CONTINUE, Reason.UNDECIDED)


def test_thresholds_are_inclusive() -> None:
    c = build_method("bitcal_tts", bits=4, budget=512, min_tokens=0, stop_entropy=2.0, stop_confidence=0.85 * 0.92)
    assert c.observe(step(entropy=2.0)).reason is Reason.CONFIDENT
    assert (
        build_method("bitcal_tts", bits=4, budget=512, min_tokens=16).observe(step(entropy=3.0)).reason == "undecided"
    )


@pytest.mark.parametrize(("bits", "extra"), [(4, 2), (8, 1), (16, 0)])
def test_tail_runs_for_delta_tokens_after_the_marker(bits: int, extra: int) -> None:
    c = build_method("bitcal_tts", bits=bits, budget=512, min_tokens=16)
    seen = drive(c, *words(2), step("so #### 42"), *words(extra))
    assert seen[2:] == [("continue", "tail")] * extra + [("stop", "tail_satisfied")]


def test_the_tail_bypasses_the_entropy_policy_and_the_buffer() -> None:
    c = build_method("bitcal_tts", bits=4, budget=64, min_tokens=16)
    assert drive(c, step("#### 4"), step(entropy=9.0), step())[:2] == [("continue", "tail"), ("continue", "tail")]


def test_adaptive_stops_on_the_step_that_shows_the_marker() -> None:
    c = build_method("adaptive", bits=4, budget=512, min_tokens=16)
    assert c.parameters.effective_bits == 16
    assert drive(c, *words(3), step("#### 27"))[-1] == ("stop", "tail_satisfied")


def test_marker_may_straddle_steps() -> None:
    c = build_method("adaptive", bits=4, budget=512, min_tokens=0)
    c.observe(step("ends with ##"))
    assert c.marker_at is None
    assert c.observe(step("## 5")).reason is Reason.TAIL_SATISFIED
    assert c.marker_at == 32


def test_marker_over_three_steps() -> None:
    c = build_method("bitcal_tts", bits=4, budget=512)
    drive(c, step("a #"), step("##"), step("# 7"))
    assert c.marker_at == 48


def test_marker_below_the_floor_counts_from_where_it_was_seen() -> None:
    c = build_method("bitcal_tts", bits=4, budget=512, min_tokens=64)
    seen = drive(c, step("#### 3"), *words(3))
    # T* = 16; at 48 the tail would be over, but the floor holds until 64
    assert seen == [("continue", "below_floor")] * 3 + [("stop", "tail_satisfied")]


@given(STEPS)
def test_fixed_never_stops(steps: list[tuple[str, float]]) -> None:
    c = build_method("fixed", bits=4, budget=64)
    for text, entropy in steps:
        d = c.observe(step(text, entropy=entropy))
        assert (d.action, d.reason) == (Action.CONTINUE, Reason.FIXED)


@given(STEPS, st.sampled_from(["adaptive", "bitcal_tts"]), st.sampled_from([2, 4, 8, 16]))
def test_decisions_follow_from_the_whole_text(steps: list[tuple[str, float]], name: str, bits: int) -> None:
    """The incremental controller agrees with a reading of everything so far."""
    c = build_method(name, bits=bits, budget=320, min_tokens=48)
    p = c.parameters
    text, marker_at = "", None
    for i, (piece, entropy) in enumerate(steps, 1):
        d = c.observe(step(piece, entropy=entropy))
        text += piece
        tokens = 16 * i
        if marker_at is None and "####" in text:
            marker_at = tokens
        assert (c.tokens, c.marker_at) == (tokens, marker_at)
        if tokens < 48:
            expected = "below_floor"
        elif marker_at is not None:
            expected = "tail" if tokens - marker_at < p.tail_tokens else "tail_satisfied"
        elif 320 - tokens < 32:
            expected = "buffer"
        elif entropy >= 4.0:
            expected = "high_entropy"
        elif entropy <= 2.0 and d.confidence >= 0.75:
            expected = "confident"
        else:
            expected = "undecided"
        assert d.reason == expected
        assert 0.0 <= d.confidence <= 1.0


def test_scale_and_tail_switched_off_make_bitcal_the_adaptive_baseline() -> None:
    off = build_method("bitcal_tts", bits=4, budget=512, scale=False, tail=False).parameters
    adaptive = build_method("adaptive", bits=4, budget=512).parameters
    assert (off.bit_scale, off.tail_tokens, off.mixture) == (adaptive.bit_scale, adaptive.tail_tokens, adaptive.mixture)


def test_each_component_alone() -> None:
    def p(**switches: bool) -> tuple[float, int, float]:
        q = build_method("bitcal_tts", bits=4, budget=512, **switches).parameters
        return q.bit_scale, q.tail_tokens, q.mixture[2]

    assert p() == (0.85, 32, 0.25)
    assert p(scale=False) == (1.05, 32, 0.25)
    assert p(tail=False) == (0.85, 0, 0.25)
    assert p(hidden=False) == (0.85, 32, 0.0)


def test_hidden_vectors_and_precomputed_similarities_agree() -> None:
    vectors = [[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]]
    one, other = (build_method("bitcal_tts", bits=4, budget=512) for _ in range(2))
    for i, vector in enumerate(vectors):
        a = one.observe(step(hidden=vector))
        b = other.observe(step(hidden_similarity=None if i == 0 else [0.6, 0.8][i - 1]))
        assert a.hidden_stability == pytest.approx(b.hidden_stability)


def test_fresh_forgets() -> None:
    c = build_method("adaptive", bits=4, budget=512, min_tokens=0)
    c.observe(step("#### 1"))
    assert c.fresh().tokens == 0
    assert c.fresh().marker_at is None


def test_memory_does_not_grow_with_the_trace() -> None:
    c = build_method("bitcal_tts", bits=4, budget=10**9)

    def size() -> int:
        held = [c, c._trace, c._hidden, c._tail, c._trace._previous]
        return sum(map(sys.getsizeof, held))

    drive(c, *words(50))
    before = size()
    drive(c, *words(2000))
    assert size() <= before + 16  # a chunk's text may have more digits


@pytest.mark.parametrize("entropy", [math.nan, math.inf, -0.5])
def test_a_bad_entropy_is_named(entropy: float) -> None:
    with pytest.raises(ValueError, match=f"entropy .* got {entropy}"):
        step(entropy=entropy)


def test_a_negative_token_count_is_named() -> None:
    with pytest.raises(ValueError, match="n_tokens .* got -1"):
        step(n=-1)


@pytest.mark.parametrize("column", ["token_texts", "entropies", "logprobs", "margins", "top_logprobs"])
def test_a_step_whose_columns_disagree_with_its_count_is_refused(column: str) -> None:
    with pytest.raises(ValueError, match=f"the step has 3 tokens, but 2 {column}"):
        Step(text="a b", n_tokens=3, entropy=0.1, **{column: ["a", "b"]})  # type: ignore[arg-type]


def test_every_method_is_a_controller() -> None:
    from bitcal_tts import METHODS
    from bitcal_tts.halting.paper import PaperRule
    from bitcal_tts.halting.rules import RULES

    for name in {**METHODS, **RULES}:
        if name != "settled":
            assert isinstance(build_method(name, bits=4, budget=64), Controller)
    assert isinstance(build_method("bitcal_tts", bits=4, budget=64), PaperRule)
    gate = build_method("truncate", bits=4, budget=64, threshold=2.0, every=1)
    decision = gate.observe(Step(text="a", n_tokens=1))
    assert (decision.confidence, decision.score) == (None, 1.0)  # a count of tokens is no confidence
