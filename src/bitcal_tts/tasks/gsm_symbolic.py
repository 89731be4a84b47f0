"""Grade-school problems from reasoning-gym's `gsm_symbolic` templates, without end and by seed.

reasoning-gym admits only difficulty 1 and draws neighbouring seeds from overlapping generators; so the
templates are called directly. Which split a question belongs to is a hash of its text: what a model was
trained on can never be drawn as a test question, whatever the seeds.
"""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from bitcal_tts.tasks.drawing import Problem, distinct

# Templates whose reference solution states false arithmetic, such as "30 / 20 = 1" after a silent rounding.
UNSOUND_TEMPLATES = frozenset({2, 4, 36, 49, 60, 66, 69, 75, 96, 99})
# Templates whose solution states no equation between numbers, so that there is nothing to check.
UNCHECKABLE_TEMPLATES = frozenset({53, 83})
# Templates that the corpus of the models in the box leaves out, so that something of another kind is left to ask them.
HELD_OUT_TEMPLATES = frozenset({7, 17, 27, 39, 47, 57, 71, 85})
DIFFICULTIES = (1.0, 1.0, 1.0, 2.0, 4.0)
_LONG_DECIMAL = re.compile(r"\.\d{4}")  # a rounded third or sixth: no exact arithmetic
SPLITS = ("train", "calibration", "test", "unseen")
"""The last one: of the templates that are held out, whatever the text."""


def problems(split: str, seed: int, *, without: frozenset[int] = frozenset()) -> Iterator[Problem]:
    """Distinct problems of a split, of all templates but those in `without`; the same for the same seed, no end."""
    templates = _templates()
    names = sorted(templates.keys() & HELD_OUT_TEMPLATES if split == "unseen" else templates.keys() - without)

    def draw(rng: random.Random, i: int) -> Problem | None:
        template = templates[rng.choice(names)]
        try:
            drawn = template(rng, DIFFICULTIES[i % len(DIFFICULTIES)])
        except (ValueError, ZeroDivisionError):  # a template that cannot scale to this difficulty
            return None
        problem = _tidy(drawn)
        if problem is None or split not in (split_of(problem.question), "unseen"):
            return None
        return problem

    return distinct("gsm_symbolic", SPLITS, split, seed, draw)


def split_of(question: str) -> str:
    """The split a question belongs to: one in eight each for calibration and test, the rest for training."""
    bucket = hashlib.sha256(question.encode()).digest()[0] % 8
    return {0: "test", 1: "calibration"}.get(bucket, "train")


def _tidy(drawn: dict[str, Any]) -> Problem | None:
    solution, marker, answer = drawn["metadata"]["answer_cot"].rpartition("####")
    number = answer.strip().replace(",", "")
    if not marker or not re.fullmatch(r"-?\d+(\.\d+)?", number) or _LONG_DECIMAL.search(solution):
        return None
    lines = [line.strip() for line in solution.strip().splitlines()]
    return Problem(
        question=" ".join(drawn["question"].split()),
        solution="\n".join(line for line in lines if line),
        answer=number.rstrip("0").rstrip(".") if "." in number else number,
    )


@cache
def _templates() -> dict[int, Any]:
    from reasoning_gym.arithmetic.gsm_symbolic.gsm_symbolic import (
        GSMSymbolicDataset,
        GSMSymbolicDatasetConfig,
        tasks_ok,
    )

    generators = GSMSymbolicDataset(GSMSymbolicDatasetConfig(seed=0, size=1)).generators
    return {i: generators[i] for i in tasks_ok if i not in UNSOUND_TEMPLATES | UNCHECKABLE_TEMPLATES}
