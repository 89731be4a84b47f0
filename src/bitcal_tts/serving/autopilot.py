"""The autopilot: a pilot for every setting that requests come with."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from anyio.abc import TaskGroup

from bitcal_tts.calibration.recording import BLANK
from bitcal_tts.halting.settled import SettledParameters
from bitcal_tts.serving.memory import Memory
from bitcal_tts.serving.pilot import Pilot
from bitcal_tts.serving.state import Setting, Terms

MOST_PILOTS = 16


class Autopilot:
    """A pilot for every setting that requests come with.

    Args:
        terms: What is to be promised.
        memory: Keeps what they learn.
        answers: How answers are written.
        chance: Draws the share that is sampled.
    """

    def __init__(
        self, terms: Terms, memory: Memory, *, answers: str, chance: Callable[[], float] | None = None
    ) -> None:
        if SettledParameters(name="settled", bits=16, budget=64, answers=answers, profile=BLANK).format.values is None:
            raise ValueError(f"the autopilot reads values off the text, which answers of the kind {answers} have not")
        self.terms, self.answers, self._memory = terms, answers, memory
        self._make = partial(Pilot, terms=terms, memory=memory, chance=chance)
        self._pilots: dict[str, Pilot] = {}
        self._tasks: TaskGroup | None = None

    def begin(self, tasks: TaskGroup) -> None:
        """Side requests are made among these tasks."""
        self._tasks = tasks
        for pilot in self._pilots.values():
            pilot.begin(tasks)

    def pilot(self, setting: Setting) -> Pilot | None:
        """The one for a setting; None where there are too many settings to learn about each.

        A new setting takes the place of the one that fewest requests came with, and of those the one that was met
        longest ago: clients that say another cap each time would leave no place to the others. It is kept on disk.
        """
        name = setting.name(self.terms)
        if name not in self._pilots:
            if len(self._pilots) >= MOST_PILOTS and not self._made_room():
                return None
            pilot = self._make(setting)
            if self._tasks is not None:
                pilot.begin(self._tasks)
        else:
            pilot = self._pilots.pop(name)
        self._pilots[name] = pilot  # the last of them is the one met last
        return pilot

    def _made_room(self) -> bool:
        found = [name for name, pilot in self._pilots.items() if pilot.gives_way]
        if not found:
            return False
        least = min(found, key=lambda name: self._pilots[name].state.counts.requests)
        self._pilots.pop(least).remember()
        return True

    def status(self) -> list[dict[str, Any]]:
        """Of all pilots, the busiest first."""
        told = [pilot.status() for pilot in self._pilots.values()]
        return sorted(told, key=lambda one: -one["requests"])

    def close(self) -> None:
        """Keep what is known."""
        for pilot in self._pilots.values():
            pilot.remember()
        self._memory.close()
