"""Named methods, one registry."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from bitcal_tts.halting import settled
from bitcal_tts.halting.checks import did_you_mean
from bitcal_tts.halting.complete import Complete
from bitcal_tts.halting.controller import Controller
from bitcal_tts.halting.gate import GateParameters
from bitcal_tts.halting.landed import Landed
from bitcal_tts.halting.paper import PaperRule
from bitcal_tts.halting.parameters import FULL_PRECISION_BITS, Parameters
from bitcal_tts.halting.profile import Profile
from bitcal_tts.halting.request import RequestParameters
from bitcal_tts.halting.rules import RULES, build_rule

PAPER = ("fixed", "adaptive", "bitcal_tts")
_SET_BY_METHOD = {"name", "bits", "budget", "halts"}


def _fixed(**kwargs: Any) -> PaperRule:
    return PaperRule(Parameters(halts=False, **{"effective_bits": kwargs["bits"], **kwargs}))


def _adaptive(**kwargs: Any) -> PaperRule:
    return PaperRule(Parameters(**{"effective_bits": FULL_PRECISION_BITS, **kwargs}))


def _bitcal_tts(**kwargs: Any) -> PaperRule:
    return PaperRule(Parameters(**{"effective_bits": kwargs["bits"], **kwargs}))


def _landed(**kwargs: Any) -> Landed:
    return Landed(GateParameters(**kwargs))


def _complete(**kwargs: Any) -> Complete:
    return Complete(RequestParameters(**kwargs))


METHODS: dict[str, tuple[Callable[..., Controller], type[Any]]] = {
    "fixed": (_fixed, Parameters),
    "adaptive": (_adaptive, Parameters),
    "bitcal_tts": (_bitcal_tts, Parameters),
    "landed": (_landed, GateParameters),
    "complete": (_complete, RequestParameters),
    "settled": (settled.build, settled.SettledParameters),
}
"""Methods by name, with the class of their parameters; peers' rules are in `RULES`."""


def to_the_end(budget: int, **options: Any) -> PaperRule:
    """What decodes to the end or the budget and decides nothing: for recording."""
    return _fixed(name="fixed", bits=FULL_PRECISION_BITS, budget=budget, **options)


def build_method(name: str, *, bits: float, budget: int, **overrides: Any) -> Any:
    """A method for one request.

    Args:
        name: `fixed` decodes to the budget; `landed` too, and has the answer written where the budget runs out;
            `adaptive` is the paper's baseline, whose calibrator and tail see 16 bits; `bitcal_tts` is the paper's
            method, which sees the served bits; `complete` stops when the answer after the marker is complete; `settled`
            stops where a fitted profile says the answer stands; or a peer's rule.
        bits: Served weight precision.
        budget: Hard cap on new tokens.
        **overrides: Any parameter of the method, e.g. `min_tokens=48, tail=False`.

    Raises:
        ValueError: An unknown method or parameter, or a bad value.
    """
    known = parameters_of(name)
    for key in overrides:
        if key not in known:
            meant = did_you_mean(key, known) or f"; available: {', '.join(known)}"
            raise ValueError(f"unknown parameter {key!r} of method {name!r}{meant}")
    if name == "settled" and "profile" not in overrides:
        raise ValueError("method 'settled' needs a profile: fit one with bitcal fit")
    if name in RULES:
        return build_rule(name, bits=bits, budget=budget, **overrides)
    return METHODS[name][0](name=name, bits=bits, budget=budget, **overrides)


def parameters_of(name: str) -> tuple[str, ...]:
    """What may be set of a method."""
    registry: Mapping[str, tuple[Callable[..., Controller], type[Any]]] = {**METHODS, **RULES}
    if name not in registry:
        meant = did_you_mean(name, registry)
        raise ValueError(f"unknown method {name!r}{meant}; available: {', '.join(registry)}")
    return tuple(f.name for f in fields(registry[name][1]) if f.name not in _SET_BY_METHOD)


def describe_parameters(method: Controller) -> dict[str, Any]:
    """A method's parameters as JSON types; infinity, which JSON has not, is left out."""
    described: dict[str, Any] = {}
    for field in fields(method.parameters):
        value = getattr(method.parameters, field.name)
        if isinstance(value, Profile):
            value = value.to_dict()
        if not (isinstance(value, float) and math.isinf(value)):
            described[field.name] = value
    return described


def restore(parameters: Mapping[str, Any]) -> Any:
    """The method whose parameters a summary holds, for looking at traces again: it watches nothing."""
    values = dict(parameters)
    name, bits, budget = values.pop("name"), values.pop("bits"), values.pop("budget")
    known = parameters_of(name)
    method = build_method(name, bits=bits, budget=budget, **{k: v for k, v in values.items() if k in known})
    if isinstance(method, settled.Settled):
        method.monitor = None
    return method
