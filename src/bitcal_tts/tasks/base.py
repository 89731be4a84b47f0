"""What a task is: items, a prompt template, an answer format, a score."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

from bitcal_tts.halting.answers import AnswerFormat


class TaskError(Exception):
    """A task cannot be loaded; the message names the file, the line, and what would be right."""


@dataclass(frozen=True)
class Item:
    """One problem. `extra` is what the task's own scorer needs, as JSON types."""

    id: str
    question: str
    answer: str
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Task:
    """A named source of items.

    `identity` is what distinguishes the items drawn (split, data file hash, ...), for the manifest. `size` is how many
    items there are; None where they are generated without end.
    """

    name: str
    template: str
    format: AnswerFormat
    draw: Callable[[int, int], list[Item]]
    identity: dict[str, Any] = field(default_factory=dict)
    scorer: Callable[[str, Item], bool] | None = None
    size: int | None = None

    def prompt(self, item: Item) -> str:
        """What the user says."""
        return self.template.replace("{question}", item.question)

    def items(self, n: int, seed: int) -> list[Item]:
        """The first `n` items; `seed` chooses them where the task generates its own."""
        if n < 1:
            raise ValueError(f"n must be at least 1, got {n}")
        return self.draw(n, seed)

    def correct(self, answer: str | None, item: Item) -> bool:
        """Whether an extracted answer is right."""
        if answer is None:
            return False
        return self.scorer(answer, item) if self.scorer else self.format.equal(answer, item.answer)

    def describe(self) -> dict[str, Any]:
        """For the manifest."""
        digest = hashlib.sha256(self.template.encode()).hexdigest()
        return {
            "task": self.name,
            "prompt_sha256": digest,
            "prompt": self.template,
            "answers": self.format.name,
            **self.identity,
        }


def read_template(name: str) -> str:
    """A prompt template that ships with the package."""
    return files("bitcal_tts.tasks").joinpath(f"prompts/{name}.txt").read_text(encoding="utf-8").rstrip("\n")
