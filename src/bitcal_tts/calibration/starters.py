"""Scorers that come with the package, fitted on public texts of reasoning models: coefficients and evidence, no text.

A starter is as many scorers as there are folds of questions, each fitted without the questions of one fold. Whatever
is asked, the scorer of its fold has not seen it; where the question is new to all of them, they are one scorer: their
mean. `scripts/fit_starters.py` made them.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from bitcal_tts.halting.profile import Profile, mean_of

STARTERS = ("numbers", "options")
"""By the kind of values that answers are."""


@dataclass(frozen=True)
class Starter:
    """A starter.

    Attributes:
        kind: Of the values.
        scorers: One a fold, fitted without it.
        evidence: What they were fitted on, and what they reach on questions that they were not.
    """

    kind: str
    scorers: tuple[Profile, ...]
    evidence: dict[str, Any]

    @property
    def features(self) -> tuple[str, ...]:
        """What they look at."""
        return self.scorers[0].features

    @property
    def whole(self) -> Profile:
        """All scorers as one, for questions that are new to them."""
        return mean_of(self.scorers)

    def is_new_to(self, asked: Sequence[str]) -> bool:
        """Whether it has not met most of these questions, named by their marks: those that it has certify nothing."""
        met = set(self.whole.fitted.get("questions", ()))
        return 2 * sum(mark in met for mark in asked) < len(asked)


@cache
def load_starter(kind: str) -> Starter | None:
    """The starter for a kind of values, or None where there is none."""
    file = files("bitcal_tts.calibration").joinpath(f"starters/{kind}.json.gz")
    if not file.is_file():
        return None
    data = json.loads(gzip.decompress(file.read_bytes()))
    features = tuple(data["features"])
    scorers = tuple(Profile("boosted", features, model, {}, fitted=data["fitted"]) for model in data["models"])
    return Starter(kind, scorers, data["evidence"])
