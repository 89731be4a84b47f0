"""The loop guard and the drift monitor."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from bitcal_tts import build_method
from bitcal_tts.halting.controller import Step
from bitcal_tts.halting.drift import DriftMonitor
from bitcal_tts.halting.loops import LoopGuard


@pytest.mark.parametrize("period", [1, 2, 7, 23, 40])
def test_exact_repetition_is_noticed(period: int) -> None:
    rng = random.Random(period)
    guard = LoopGuard()
    for _ in range(100):
        guard.feed(rng.choice("abcdefghijklmnop"))
    assert not guard.looping
    cycle = [rng.choice("abcdefghijklmnopqrstuvw") for _ in range(period)]
    needed = 0
    while not guard.looping:
        guard.feed(cycle[needed % period])
        needed += 1
        assert needed < 400
    assert needed >= 90
    guard.feed("something else")
    assert not guard.looping


def test_a_loop_that_repeats_itself_inside_is_noticed_too() -> None:
    guard = LoopGuard()
    again = ["let", "me", "check", "it", "once", "again", "."]
    cycle = [*again, *again, "so", "it", "is", "5", "\n"]
    for i in range(300):
        guard.feed(cycle[i % len(cycle)])
    assert guard.looping


def test_ordinary_reasoning_does_not_loop(probed: Any) -> None:
    for trace in probed.read():
        guard = LoopGuard()
        if trace.finish == "eos":
            for text in trace.token_texts:
                guard.feed(text)
                assert not guard.hesitating
            assert not guard.looping


def test_hesitation_is_counted_over_a_window() -> None:
    guard = LoopGuard(window=20, hesitation=0.3)
    for i in range(40):
        guard.feed("Wait" if i % 3 == 0 else f"w{i}")
    assert guard.hesitating
    for i in range(20):
        guard.feed(f"x{i}")
    assert not guard.hesitating


def test_the_guard_is_a_rule_with_reasons_of_its_own() -> None:
    def run(texts: list[str]) -> str:
        method = build_method("guard", bits=4, budget=999)
        decision = None
        for text in texts:
            decision = method.observe(Step(text=text, n_tokens=1, entropy=0.0))
            if decision.halts:
                break
        assert decision is not None
        return str(decision.reason)

    assert run(["again ", "and "] * 200) == "loop"
    assert run([w for i in range(200) for w in ("wait", f"w{i}", f"v{i}", "but")]) == "hesitating"
    assert run([f"w{i}" for i in range(300)]) == "undecided"
    with pytest.raises(ValueError, match="need least >= 1"):
        LoopGuard(least=0)


def test_drift_rarely_alarms_without_drift_and_surely_with_it() -> None:
    rng = np.random.default_rng(0)
    alarms = 0
    for seed in range(200):
        monitor = DriftMonitor(rng.random(300).tolist(), level=0.05, seed=seed)
        alarms += any(monitor.update(score) for score in rng.random(500))
    assert alarms <= 0.05 * 200 + 3 * (0.05 * 0.95 * 200) ** 0.5
    for shifted in (lambda: rng.random() ** 3, lambda: 1 - rng.random() ** 3):
        monitor = DriftMonitor(rng.random(300).tolist())
        for _ in range(300):
            monitor.update(float(shifted()))  # type: ignore[no-untyped-call]
        assert monitor.drifted and monitor.requests == 300


def test_drift_refuses_nonsense() -> None:
    with pytest.raises(ValueError, match="at least 20 reference scores"):
        DriftMonitor([0.5] * 3)
    with pytest.raises(ValueError, match="level must be"):
        DriftMonitor([0.5] * 30, level=0)
    with pytest.raises(ValueError, match="finite"):
        DriftMonitor([0.5] * 30).update(float("nan"))


def test_a_passage_said_twice_is_no_loop_said_three_times_it_is() -> None:
    guard = LoopGuard()
    passage = [f"word{i}" for i in range(120)]
    for _ in range(2):
        for token in passage:
            guard.feed(token)
            assert not guard.looping
    for token in passage[:-1]:
        guard.feed(token)
        assert not guard.looping
    guard.feed(passage[-1])
    assert guard.looping


def test_scores_are_ranked_in_the_order_of_asking() -> None:
    """Whoever reports when: the capital is that of the turns in order."""
    rng = np.random.default_rng(3)
    reference, scores = rng.random(50).tolist(), rng.random(30).tolist()
    plain = DriftMonitor(reference)
    for score in scores:
        plain.update(score)
    turned = DriftMonitor(reference)
    turns = [turned.turn() for _ in scores]
    for i in rng.permutation(30).tolist():
        turns[i].take(scores[i])
        turns[i].take(0.0)  # only the first report counts
    assert turned.capital == plain.capital and turned.requests == 30


def test_a_request_that_never_reports_holds_nobody_up_for_ever() -> None:
    monitor = DriftMonitor(np.linspace(0, 1, 50).tolist())
    slow, dropped, *others = [monitor.turn() for _ in range(5)]
    for turn in others:
        turn.take(0.5)
    assert monitor.requests == 0
    slow.take(0.4)
    assert monitor.requests == 1
    del dropped, turn
    assert monitor.requests == 4
