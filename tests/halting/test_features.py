"""Every feature by hand, on a text small enough to count along."""

from __future__ import annotations

import math

import numpy as np
import pytest

from bitcal_tts.halting.features import OF_THE_TEXT, Features
from bitcal_tts.halting.signals import Signal
from bitcal_tts.halting.statements import StatementDetector
from bitcal_tts.halting.trail import signal_of

log1p = math.log1p


def features(bits: float = 4, budget: int = 512) -> Features:
    return Features(StatementDetector(), bits=bits, budget=budget)


def told(f: Features, *, at_statement: bool) -> dict[str, float]:
    return dict(zip(OF_THE_TEXT, f.of_the_text(at_statement=at_statement), strict=True))


def test_a_text_counted_along_by_hand() -> None:
    f = features()
    # text, entropy, log-probability, margin
    assert f.update("We check it.\n", 0.5, -0.2, 4.0) is None
    assert f.update("Hmm, that is wrong.\n", 1.5, -0.9, 1.0) is None
    assert f.update("It holds.\n", 0.1, -0.1, 6.0) is None
    first = f.update("So the answer is 7.\n", 0.3, -0.4, 3.0)
    assert first is not None and (first.value, first.strong) == ("7", True)
    v = told(f, at_statement=True)
    assert v["tokens"] == 4 / 256 and v["share_of_budget"] == 4 / 512
    assert (v["at_statement"], v["strong"]) == (1, 1)
    assert v["statements"] == v["agreeing"] == log1p(1) and v["other_values"] == 0
    assert v["checks"] == log1p(1) and v["redos"] == log1p(1) and v["hesitations"] == log1p(1)
    assert v["confirmations"] == log1p(1)  # holds
    assert v["confirmations_since_redo"] == log1p(1)
    assert v["redo_since_statement"] == 1  # before the first statement, that is since the start
    assert v["entropy_window"] == pytest.approx((0.5 + 1.5 + 0.1 + 0.3) / 4)
    assert v["entropy_since_statement"] == pytest.approx((0.5 + 1.5 + 0.1 + 0.3) / 4)
    assert v["entropy_max_since_statement"] == 1.5
    assert v["logprob_mean"] == pytest.approx((-0.2 - 0.9 - 0.1 - 0.4) / 4)
    assert v["logprob_min"] == v["logprob_min_since_statement"] == v["logprob_min_value"] == -0.9
    # The redo ends the stretch before it: the token that completes its line belongs to that stretch.
    assert v["logprob_min_since_redo"] == -0.4
    assert v["probability_min_since_redo"] == pytest.approx(math.exp(-0.4))
    assert v["unlikely_since_redo"] == 0
    assert v["margin_min_since_redo"] == 3.0
    assert v["margin_min_since_statement"] == v["margin_min_value"] == 1.0
    assert v["coarseness"] == 8 / 4

    assert f.update("Let me redo it.\n", 0.2, -0.8, 2.0) is None
    assert f.update("Once more, but now.\n", 0.4, -2.0, 0.5) is None
    other = f.update("The answer is 8.\n", 0.6, -0.3, 5.0)
    assert other is not None and other.value == "8"
    v = told(f, at_statement=True)
    assert v["statements"] == log1p(2)
    assert v["agreeing"] == log1p(1)  # another value: the count starts anew
    assert v["other_values"] == log1p(1)
    assert (v["checks"], v["redos"], v["hesitations"]) == (log1p(2), log1p(2), log1p(2))
    assert v["confirmations_since_redo"] == 0
    assert v["redo_since_statement"] == 1
    assert v["entropy_since_statement"] == pytest.approx((0.2 + 0.4 + 0.6) / 3)
    assert v["entropy_max_since_statement"] == 0.6
    assert v["logprob_min_since_statement"] == -2.0 and v["margin_min_since_statement"] == 0.5
    assert v["logprob_min_since_redo"] == -2.0 and v["unlikely_since_redo"] == log1p(1)  # -2.0, not -0.3
    assert v["logprob_min"] == -2.0

    same = f.update("So the answer is 8.\n", 0.1, -0.05, 7.0)
    assert same is not None
    v = told(f, at_statement=True)
    assert v["agreeing"] == log1p(2) and v["other_values"] == log1p(1)
    assert v["redo_since_statement"] == 0  # since the statement before
    assert v["entropy_since_statement"] == pytest.approx(0.1) and v["logprob_min_since_statement"] == -0.05


def test_looking_changes_nothing() -> None:
    f = features()
    f.update("That is wrong.\n", 0.1, -0.1, 1.0)
    f.update("So the answer is 7.\n", 0.1, -0.1, 1.0)
    for at_statement in (True, False):
        assert f.of_the_text(at_statement=at_statement) == f.of_the_text(at_statement=at_statement)


def test_between_statements_a_redo_is_forgotten_at_the_next_one() -> None:
    """Also where nobody looks at statements."""
    f = features()
    f.update("That is wrong.\n", 0.1, -0.1, 1.0)
    assert told(f, at_statement=False)["redo_since_statement"] == 1
    f.update("So the answer is 7.\n", 0.1, -0.1, 1.0)
    assert told(f, at_statement=False)["redo_since_statement"] == 0
    f.update("Wait, wrong.\n", 0.1, -0.1, 1.0)
    assert told(f, at_statement=False)["redo_since_statement"] == 1


def test_a_boundary_looks_back_to_the_last_statement() -> None:
    f = features()
    f.update("So the answer is 7.\n", 2.0, -3.0, 0.1)
    f.update("more", 0.5, -0.5, 2.0)
    v = told(f, at_statement=False)
    assert (v["at_statement"], v["strong"]) == (0, 0)
    assert (v["entropy_max_since_statement"], v["logprob_min_since_statement"]) == (0.5, -0.5)
    assert v["margin_min_since_statement"] == 2.0
    assert (v["logprob_min_value"], v["margin_min_value"]) == (-3.0, 0.1)  # of the value last stated


def test_windows_and_floors() -> None:
    f = features()
    for i in range(40):
        f.update("x", float(i), -100.0, 50.0)
    v = told(f, at_statement=False)
    assert v["entropy_window"] == pytest.approx(np.mean(range(24, 40)))  # the last sixteen
    assert v["logprob_min"] == -12.0  # below this a log-probability says no more
    assert v["margin_min_since_redo"] == 10.0


def test_a_weak_statement_is_not_strong() -> None:
    f = features()
    weak = f.update("So we have 3 + 4 = 7.\n", 0.1, -0.1, 1.0)
    assert weak is not None and not weak.strong
    assert told(f, at_statement=True)["strong"] == 0


def test_the_value_is_judged_by_the_tokens_that_wrote_it() -> None:
    f = features()
    f.update("unlikely", 0.1, -9.0, 0.01)
    for text in ("So", " the", " answer", " is", " 4", "2", ".", "\n"):
        f.update(text, 0.1, -0.5, 2.0)
    v = told(f, at_statement=True)
    assert (v["logprob_min_value"], v["margin_min_value"]) == (-0.5, 2.0)  # the last eight only
    assert v["logprob_min"] == -9.0


@pytest.mark.parametrize("absent", [Signal.ENTROPY, Signal.LOGPROB, Signal.MARGIN])
def test_what_is_absent_is_unknown_and_never_certain(absent: Signal) -> None:
    f = features()
    values = {Signal.ENTROPY: 0.3, Signal.LOGPROB: -0.2, Signal.MARGIN: 1.0}
    f.update("The sum.\n", 0.3, -0.2, 1.0)
    known = {name: None if name is absent else value for name, value in values.items()}
    f.update("So the answer is 7.\n", *known.values())
    v = told(f, at_statement=True)
    for name in OF_THE_TEXT:
        assert math.isnan(v[name]) == (signal_of(name) is absent), name
