"""Named methods, one registry."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import fields
from typing import Any

from bitcal_tts.halting.controller import Controller
from bitcal_tts.halting.parameters import FULL_PRECISION_BITS, Parameters

_SET_BY_METHOD = {"name", "bits", "budget", "halts"}
OVERRIDES = tuple(f.name for f in fields(Parameters) if f.name not in _SET_BY_METHOD)


def _fixed(**kwargs: Any) -> Controller:
    return Controller(Parameters(halts=False, **{"effective_bits": kwargs["bits"], **kwargs}))


def _adaptive(**kwargs: Any) -> Controller:
    return Controller(Parameters(**{"effective_bits": FULL_PRECISION_BITS, **kwargs}))


def _bitcal_tts(**kwargs: Any) -> Controller:
    return Controller(Parameters(**{"effective_bits": kwargs["bits"], **kwargs}))


METHODS: dict[str, Callable[..., Controller]] = {
    "fixed": _fixed,
    "adaptive": _adaptive,
    "bitcal_tts": _bitcal_tts,
}


def build_method(name: str, *, bits: float, budget: int, **overrides: Any) -> Controller:
    """A controller for one request.

    Args:
        name: `fixed` decodes to the budget; `adaptive` is the paper's baseline, whose calibrator and tail
            see 16 bits; `bitcal_tts` is the paper's method, which sees the served bits.
        bits: Served weight precision.
        budget: Hard cap on new tokens.
        **overrides: Any parameter of `Parameters`, e.g. `min_tokens=48, tail=False`.

    Raises:
        ValueError: An unknown method or parameter, or a bad value.
    """
    if name not in METHODS:
        raise ValueError(f"unknown method {name!r}; available: {', '.join(METHODS)}")
    for key in overrides:
        if key not in OVERRIDES:
            near = difflib.get_close_matches(key, OVERRIDES, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; available: {', '.join(OVERRIDES)}"
            raise ValueError(f"unknown parameter {key!r} of method {name!r}{hint}")
    return METHODS[name](name=name, bits=bits, budget=budget, **overrides)
