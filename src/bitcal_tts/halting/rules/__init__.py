"""Peers' rules, one file each, behind one interface: what docs/methods.md says of each is in its docstring."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bitcal_tts.halting.complete import Complete
from bitcal_tts.halting.controller import Controller
from bitcal_tts.halting.gate import GateParameters
from bitcal_tts.halting.request import RequestParameters
from bitcal_tts.halting.rules.convergence import Convergence, ConvergenceParameters
from bitcal_tts.halting.rules.cusum import Cusum, CusumParameters
from bitcal_tts.halting.rules.deepconf import DeepConf, DeepConfParameters
from bitcal_tts.halting.rules.deer import Deer, DeerParameters
from bitcal_tts.halting.rules.dynasor import Dynasor, DynasorParameters
from bitcal_tts.halting.rules.eat import Eat, EatParameters
from bitcal_tts.halting.rules.guard import Guard
from bitcal_tts.halting.rules.halt_cot import HaltCot, HaltCotParameters
from bitcal_tts.halting.rules.oracle import FinalOracle, Oracle, OracleParameters
from bitcal_tts.halting.rules.random_matched import RandomMatched
from bitcal_tts.halting.rules.s1 import S1
from bitcal_tts.halting.rules.stated import Stated, StatedParameters
from bitcal_tts.halting.rules.truncate import Truncate

RULES: dict[str, tuple[Callable[..., Controller], type[RequestParameters]]] = {
    "marker": (Complete, RequestParameters),
    "truncate": (Truncate, GateParameters),
    "s1": (S1, GateParameters),
    "stated": (Stated, StatedParameters),
    "random": (RandomMatched, GateParameters),
    "oracle": (Oracle, OracleParameters),
    "oracle_final": (FinalOracle, OracleParameters),
    "deer": (Deer, DeerParameters),
    "dynasor": (Dynasor, DynasorParameters),
    "convergence": (Convergence, ConvergenceParameters),
    "eat": (Eat, EatParameters),
    "halt_cot": (HaltCot, HaltCotParameters),
    "deepconf": (DeepConf, DeepConfParameters),
    "cusum": (Cusum, CusumParameters),
    "guard": (Guard, RequestParameters),
}
"""Rules by name, with the class of their parameters."""


def build_rule(name: str, **kwargs: Any) -> Controller:
    """A rule from keyword arguments."""
    make, parameters = RULES[name]
    return make(parameters(name=name, **kwargs))
