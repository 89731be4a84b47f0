"""What the autopilot has earned, as a profile like any other."""

from __future__ import annotations

import math
from dataclasses import replace

from bitcal_tts.halting.profile import Profile
from bitcal_tts.serving.state import Setting, State, Terms


def profile_of(setting: Setting, terms: Terms, state: State) -> Profile:
    """The scorer whose promise is kept, with its threshold and the evidence for it."""
    of, served = state.serving, state.served
    assert of is not None and served is not None
    bets, bits = of.bets[served], f"{setting.bits:g}"
    evidence = {
        "risk": of.risk, "loss": "another answer than the full run's", "confidence": terms.confidence,
        "p_value_kind": "bets", "p_value": math.exp(-bets.highest), "certified": True,
        "other_items": state.learned, "certified_items": bets.n, "losses": bets.losses, "more_items_needed": 0,
        "tokens": of.costs[served][0] / max(1, bets.n), "full_tokens": of.costs[served][1] / max(1, bets.n),
        "accuracy": None, "full_accuracy": None,
    }  # fmt: skip
    scheme = setting.identity.known.get("scheme")
    return replace(
        of.scorer,
        identity=setting.identity.without("bits", "scheme"),
        settings=setting.parameters().certified,
        thresholds={setting.bits: of.thresholds[served]},
        evidence={bits: evidence if scheme is None else {"scheme": scheme, **evidence}},
        reference={setting.bits: tuple(of.firsts)},
        fitted={"label": "final", "bits": [setting.bits], "splits": ["traffic"], "questions": []},
    )
