"""Methods that many requests ask for: one for all of them, so that drift is noticed over all of them."""

from __future__ import annotations

import json
from typing import Any

from bitcal_tts.halting.controller import Controller
from bitcal_tts.halting.methods import build_method

MOST = 64


class SharedMethods:
    """One method for whoever asks for the same.

    The first one stays, for it is the server's own; of the others the oldest makes way.
    """

    def __init__(self) -> None:
        # With the profile, which keeps its id its own.
        self._built: dict[tuple[Any, ...], tuple[Controller, Any]] = {}

    def build(self, name: str, *, bits: float, budget: int, **options: Any) -> Controller:
        """As `build_method` does, once; options but for the profile are JSON types."""
        profile = options.get("profile")
        plain = {key: value for key, value in options.items() if key != "profile"}
        key = (name, bits, budget, json.dumps(plain, sort_keys=True), id(profile))
        if key not in self._built:
            if len(self._built) >= MOST:
                del self._built[list(self._built)[1]]
            self._built[key] = build_method(name, bits=bits, budget=budget, **options), profile
        return self._built[key][0]
