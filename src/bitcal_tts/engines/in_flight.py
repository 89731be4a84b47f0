"""A row on its way through the device, and a few steps of all that are under way together."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from bitcal_tts.engines.steps import Steps


@dataclass(eq=False)
class InFlight:
    """A row, as far as the batch has to do with it."""

    index: int
    prompt: list[int]
    budget: int
    seed: int
    written: list[int] = field(default_factory=list)
    lands: bool = False
    landing: list[int] = field(default_factory=list)
    """What is appended after the first `landed_at` tokens of the response, where it lands."""
    landed_at: int = 0
    over: bool = False
    past: int = 0
    """Tokens that were decoded for it past where it was cut back."""
    unit: Any = None
    """The hidden state at its last boundary, while it waits to be taken up again."""
    joined: float | None = None
    slot: int = 0
    """Where it is, while it is in flight."""

    @property
    def length(self) -> int:
        """Tokens of prompt and response, as far as the host has seen them."""
        return len(self.prompt) + len(self.written)


@dataclass
class Chunk:
    """Steps that are under way, or done, and whose they are."""

    rows: list[InFlight]
    lands: list[bool]
    """Which of them were writing what a landing asks for."""
    steps: Steps
    by: int
    """Steps that the device had been given in all."""
