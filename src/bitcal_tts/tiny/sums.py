"""reasoning-gym's `chain_sum` with its running totals: a kind of problem that no profile is calibrated on."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

from bitcal_tts.tasks.drawing import Problem, far_seed
from bitcal_tts.tasks.gsm_symbolic import split_of

_BLOCK = 500
_TERMS = re.compile(r"[-+]?\s*\d+")


def problems(split: str, seed: int) -> Iterator[Problem]:
    """Sums of a split whose totals stay positive, the same for the same seed, without end."""
    import reasoning_gym

    for block in itertools.count():
        far = far_seed(f"sums {split} {seed} {block}")
        for entry in reasoning_gym.create_dataset("chain_sum", seed=far, size=_BLOCK, max_digits=3):
            if split_of(entry["question"]) != split:
                continue
            lines = running_totals(entry["metadata"]["expression"])
            if lines is not None:
                yield Problem(entry["question"], "\n".join(lines), str(entry["answer"]))


def running_totals(expression: str) -> list[str] | None:
    """`4 + 3 - 2` as `4 + 3 = 7`, `7 - 2 = 5`; None where a total is not positive."""
    first, *rest = (term.replace(" ", "") for term in _TERMS.findall(expression))
    total, lines = int(first), []
    for term in rest:
        after = total + int(term)
        lines.append(f"{total} {term[0]} {term[1:]} = {after}")
        total = after
        if total <= 0:
            return None
    return lines
