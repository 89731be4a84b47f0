"""A cascade replayed from two recordings of the same items.

What the second model would write after the first one's text is in neither recording: here it begins anew, which costs
it more, and is what it was recorded doing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from bitcal_tts.halting.controller import Controller
from bitcal_tts.halting.handing import is_handed_over
from bitcal_tts.halting.identity import Identity
from bitcal_tts.tasks.base import Task
from bitcal_tts.traces.oracle import informed
from bitcal_tts.traces.outcome import Outcome
from bitcal_tts.traces.replay import outcomes, replay
from bitcal_tts.traces.trace import Trace, TraceError


@dataclass(frozen=True)
class CascadeOutcome:
    """What a cascade did on an item.

    Attributes:
        item: Its name.
        handed_over: Whether the second model answered.
        cost: In tokens of the second model.
        correct: Whether the answer is right.
    """

    item: str
    handed_over: bool
    cost: float
    correct: bool


def cascade_outcomes(
    first: Sequence[Trace],
    second: Sequence[Trace],
    method: Any,
    goes_on: Controller,
    task: Task,
    *,
    share: float,
    identity: Identity | None = None,
    tick: Callable[[], None] | None = None,
) -> tuple[list[CascadeOutcome], list[Outcome]]:
    """What a cascade does on every item, and what the second model alone does.

    Args:
        first: Of the first model.
        second: Of the second, the same items.
        method: Of the first; what it gives up or has not settled by its budget is handed over.
        goes_on: Of the second.
        task: Scores answers.
        share: What a token of the first costs, where one of the second costs 1.
        identity: Of the first recording, for a method whose promise is tied to it.
        tick: Told of each item.
    """
    alone = {outcome.item: outcome for outcome in outcomes(second, goes_on, task)}
    missing = [trace.item.id for trace in first if trace.item.id not in alone]
    if missing or len(first) != len(alone):
        some = f", such as {missing[0]!r}" if missing else ""
        raise TraceError(
            f"the two recordings hold other items ({len(first)} and {len(alone)}, {len(missing)} of the first are not "
            f"in the second{some}): record both with the same task, split, seed and n"
        )
    found = []
    unwatched = type(method)(method.parameters)
    for trace in first:
        end = replay(trace, informed(unwatched, trace, task), identity=identity).outcome
        tokens = share * (end.tokens + end.probe_tokens)
        if is_handed_over(end.decision):
            other = alone[trace.item.id]
            found.append(CascadeOutcome(trace.item.id, True, tokens + other.cost, other.correct))
        else:
            found.append(CascadeOutcome(trace.item.id, False, tokens, task.correct(end.answer, trace.item)))
        if tick:
            tick()
    return found, [alone[trace.item.id] for trace in first]
