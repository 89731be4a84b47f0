"""What an oracle may know of a trace: the answers that were probed along it."""

from __future__ import annotations

from collections.abc import Mapping

from bitcal_tts.halting.controller import Controller
from bitcal_tts.halting.rules.oracle import Oracle
from bitcal_tts.tasks.base import Task
from bitcal_tts.traces.trace import Trace, TraceError


def informed(method: Controller, trace: Trace, task: Task) -> Controller:
    """An oracle that knows a trace; other methods are as they were."""
    if not isinstance(method, Oracle):
        return method
    if trace.probes is None:
        raise TraceError(
            "an oracle needs to see probed answers, and these traces have none, or not all of them: record --probes"
        )
    answers = {at: task.format.value(task.format.cue + probe.text) for at, probe in trace.probes.items()}
    if method.wants == "right":
        good = {at for at, answer in answers.items() if task.correct(answer, trace.item)}
    else:
        final = task.format.value(trace.text_at(min(len(trace), method.parameters.budget)))
        good = _unchanging(answers, final, task)
    knowing = method.fresh()
    knowing.inform(lambda tokens: tokens in good)
    return knowing


def _unchanging(answers: Mapping[int, str | None], final: str | None, task: Task) -> set[int]:
    """Places from which on the forced answer is always the final one."""
    good: set[int] = set()
    for at in sorted(answers, reverse=True):
        answer = answers[at]
        if answer is None or final is None or not task.format.equal(answer, final):
            break
        good.add(at)
    return good
