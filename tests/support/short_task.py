"""A task whose thinking is short: the models in the box think some 600 tokens about a story, and 200 about a sum."""

from __future__ import annotations

from bitcal_tts.tasks import load_task
from bitcal_tts.tasks.base import Task

SHORT = "chain_sum:max_terms=2,min_digits=2,max_digits=2"
ANSWERS = "gsm8k"


def short_task() -> Task:
    """Sums of two numbers."""
    return load_task(SHORT, answers=ANSWERS)
