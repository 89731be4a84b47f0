"""Handing over: what one model has not settled, another answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bitcal_tts.halting.controller import Decision
from bitcal_tts.halting.policy import Action, Reason


def is_handed_over(decision: Decision | None) -> bool:
    """Whether a first model has not settled a request: no method stopped it, or not because it was settled."""
    return decision is None or decision.action is Action.ESCALATE or decision.reason in (Reason.RESERVE, Reason.LOOP)


def name_of(description: Mapping[str, Any]) -> str:
    """A model and its precision, by which a promise knows whom it hands over to."""
    return f"{description['model']} at {description['bits']:g} bits"


def weight_bytes(description: Mapping[str, Any]) -> float:
    """Bytes of weights that a token moves, from what is known of a model: what it costs, unless somebody says."""
    parameters, bits = description.get("parameters"), description.get("all_bits_per_weight")
    if not parameters or not bits:
        raise ValueError(
            f"{description.get('model', 'the model')} does not tell how many bytes a token moves: say what a token of "
            "each model costs with weights"
        )
    return float(parameters) * float(bits) / 8
