from __future__ import annotations

import math
import warnings
from typing import Any

import pytest

from bitcal_tts import UnreachableStopWarning, build_method
from bitcal_tts.halting.shared import MOST, SharedMethods


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("budget", 0),
        ("budget", 1.5),
        ("bits", 0),
        ("bits", math.nan),
        ("effective_bits", 0.5),
        ("chunk_size", 0),
        ("min_tokens", -1),
        ("min_remaining", -1),
        ("entropy_max", 0.0),
        ("gamma", 0.0),
        ("gamma", -1.0),
        ("gamma", math.inf),
        ("stop_entropy", -0.1),
        ("stop_confidence", math.nan),
        ("escalate_entropy", -1.0),
        ("weights", (0.5, -0.1, 0.6)),
        ("weights", (0.0, 0.0, 0.0)),
        ("weights", (1.0, 2.0)),
        ("weights", 3),
        ("weights", (math.nan, 1.0, 1.0)),
        ("marker", ""),
        ("tail", "False"),
        ("scale", 0),
        ("hidden", None),
    ],
)
def test_bad_values_are_named(name: str, value: Any) -> None:
    options = {"bits": 4, "budget": 512, name: value}
    with pytest.raises(ValueError, match=name):
        build_method("bitcal_tts", **options)


def test_unknown_method_lists_the_known() -> None:
    with pytest.raises(
        ValueError,
        match=r"unknown method 'bitcall' \(did you mean bitcal_tts\?\); available: fixed, adaptive, bitcal_tts",
    ):
        build_method("bitcall", bits=4, budget=512)


def test_unknown_parameter_suggests_the_nearest() -> None:
    with pytest.raises(ValueError, match=r"\(did you mean stop_confidence\?\)"):
        build_method("adaptive", bits=4, budget=512, stop_confidance=0.5)


def test_paper_defaults() -> None:
    p = build_method("bitcal_tts", bits=4, budget=512).parameters
    assert (p.chunk_size, p.entropy_max, p.stop_entropy, p.stop_confidence) == (16, 10.0, 2.0, 0.75)
    assert (p.escalate_entropy, p.min_tokens, p.min_remaining) == (4.0, 128, 32)
    assert (p.weights, p.gamma, p.marker) == ((0.40, 0.35, 0.25), 1.0, "####")


@pytest.mark.parametrize(("name", "ceiling"), [("adaptive", "0.6825"), ("bitcal_tts", "0.5525")])
def test_the_default_confidence_stop_is_unreachable_and_said_so_in_numbers(name: str, ceiling: str) -> None:
    with pytest.warns(UnreachableStopWarning, match=rf"{ceiling} < stop_confidence = 0\.75"):
        build_method(name, bits=4, budget=512)


def test_never_reachable_says_so() -> None:
    with pytest.warns(UnreachableStopWarning, match=r"even if every chunk repeated, c <= 0\.85"):
        build_method("bitcal_tts", bits=4, budget=512, stop_confidence=0.9)


@pytest.mark.parametrize("reachable", [{"stop_confidence": 0.5}, {"min_tokens": 32}, {"gamma": 4.0}])
def test_reachable_settings_do_not_warn(reachable: dict[str, Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        build_method("bitcal_tts", bits=4, budget=512, **reachable)
        build_method("fixed", bits=4, budget=512)


def test_the_warning_is_shown_once() -> None:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("default", UnreachableStopWarning)
        for _ in range(3):
            build_method("bitcal_tts", bits=4, budget=512, stop_confidence=0.751)
    assert len(seen) == 1


def test_a_shared_method_is_built_once_and_the_first_stays() -> None:
    methods = SharedMethods()
    own = methods.build("complete", bits=4, budget=512)
    second = methods.build("complete", bits=4, budget=1)
    for budget in range(2, MOST + 1):
        methods.build("complete", bits=4, budget=budget)
    assert methods.build("complete", bits=4, budget=512) is own
    assert methods.build("complete", bits=4, budget=1) is not second  # it made way
    assert methods.build("complete", bits=4, budget=512, answers="boxed") is not own
