"""Any method at any budget on recorded traces, by the same session that halts live."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from bitcal_tts.halting.answers import AnswerFormat
from bitcal_tts.halting.controller import Controller, Decision, Probe
from bitcal_tts.halting.exchange import Ask, Force, SessionOutcome, Tokens
from bitcal_tts.halting.identity import Identity
from bitcal_tts.halting.landing import fitting
from bitcal_tts.halting.methods import to_the_end
from bitcal_tts.halting.reading import Reading, Stage
from bitcal_tts.halting.session import Session
from bitcal_tts.halting.signals import COLUMNS, Signal
from bitcal_tts.tasks.base import Task
from bitcal_tts.traces.chunks import chunked_for
from bitcal_tts.traces.oracle import informed
from bitcal_tts.traces.outcome import Outcome, outcome_of
from bitcal_tts.traces.trace import Trace, TraceError

LANDING_TOKENS = 20
"""What closing the thinking and writing the answer is taken to cost where no model was asked; they were 14 to 25 tokens
where one was (docs/audit.md)."""
_WRITTEN_TOKENS = 8


def replay(
    trace: Trace,
    method: Controller,
    *,
    identity: Identity | None = None,
    watch: Callable[[Session, Decision], None] | None = None,
    heed: bool = True,
    fed: frozenset[Signal] | None = None,
) -> Session:
    """The session of a method on a trace, ended.

    Args:
        trace: As recorded.
        method: Copied fresh.
        identity: Of the recording, for a method whose promise is tied to one.
        watch: Told of every decision, with the session at that point.
        heed: Whether decisions are followed.
        fed: Which of the recorded signals the method is handed; by default those that it needs.
    """
    if Signal.PROBE in method.needs and trace.probes is None:
        raise TraceError(
            f"{method.parameters.name} probes the model, and this recording has no probes: record with --probes"
        )
    session = Session(
        method,
        signals=trace.signals,
        identity=identity,
        question=trace.item.question,
        count_tokens=lambda _: 0,  # what a landing took was recorded with it
        watch=None if watch is None else lambda decision: watch(session, decision),
        heed=heed,
    )
    tokens = tokens_of(trace, method.needs if fed is None else fed)
    directive = session.feed(replace(tokens, stages=stages_of(trace, method.parameters)) if method.lands else tokens)
    while not session.over:
        if isinstance(directive, Ask):
            directive = session.tell(probe_at(trace, directive.at))
        elif isinstance(directive, Force):
            directive = session.landed(landing_at(trace, directive.at, directive.decision.answer, method))
        else:
            _check_end(trace, method.parameters.budget)
            directive = session.end()
    return session


def tokens_of(trace: Trace, fed: frozenset[Signal] | None = None) -> Tokens:
    """What an engine would have fed: some of the recorded signals, or all of them."""
    fed = trace.signals.present if fed is None else fed
    columns: dict[str, Any] = {}
    for signal in fed:
        name = COLUMNS.get(signal)
        array = None if name is None else getattr(trace, name)
        if name is not None and array is not None:
            columns[name] = _with_gaps(array) if np.isnan(array).any() else array.tolist()
    similarities = [None, *trace.hidden_similarities.tolist()] if Signal.HIDDEN in fed else ()
    missing = [math.nan] * len(trace) if trace.signals.distribution == "top" else None  # it is not recorded
    return Tokens(trace.token_texts, hidden_similarities=similarities, missing=missing, **columns)


def stages_of(trace: Trace, p: Any) -> list[Stage]:
    """Where a trace stands after each of its tokens, as a method's parameters have it read; found once."""
    key = (p.answers, p.opening, p.close)
    if key not in trace.stages:
        trace.stages[key] = Reading(p.format, p.opening, p.close).stages(trace.token_texts)
    return trace.stages[key]


def _with_gaps(array: Any) -> list[float | None]:
    """A column in which not every token is told of: those that end inside a character come together."""
    return [None if value != value else value for value in array.tolist()]


def probe_at(trace: Trace, tokens: int) -> Probe:
    """What the model answered when made to after so many tokens."""
    if trace.probes is None:
        raise TraceError(
            "a method that ends the thinking needs probes, and these traces have none, or some of them have none yet: "
            "the same bitcal record with --probes adds what is missing"
        )
    if tokens not in trace.probes:
        raise TraceError(
            f"item {trace.item.id!r} was not probed after {tokens} tokens, where a method ends it: "
            "record with --probes 16, or leave chunk_size as it is and --set every to a multiple of what was recorded"
        )
    return trace.probes[tokens]


def landing_at(trace: Trace, tokens: int, stands_for: str | None, method: Controller) -> Probe:
    """What the model wrote after a landing; of a text that no model is there for, what it stands for there."""
    if not trace.is_logged:
        return probe_at(trace, tokens)
    if not method.reads_answers:
        raise TraceError(
            f"{method.parameters.name} ends the thinking after {tokens} tokens of item {trace.item.id!r}, and these "
            "traces are texts: what the model would have answered there cannot be known; record with --probes"
        )
    return stand_in(method.parameters.format, stands_for)


def stand_in(format: AnswerFormat, stands_for: str | None) -> Probe:
    """An answer that was read off a text, at a stated cost; nothing where it stands for nothing."""
    written = "" if stands_for is None else format.written(stands_for)
    return Probe(written, LANDING_TOKENS, (0.0,) * _WRITTEN_TOKENS, 0.0, LANDING_TOKENS - _WRITTEN_TOKENS)


def read_off(format: AnswerFormat, stands_for: str | None) -> tuple[int, str | None]:
    """Tokens and answer of a landing where a text stands for something, in all the room that an answer may take."""
    tokens, text = fitting(stand_in(format, stands_for), format.reserve, format) or (0, "")
    return tokens, format.value(format.cue + text)


def _check_end(trace: Trace, budget: int) -> None:
    if trace.finish == "budget" and len(trace) < budget:
        raise TraceError(
            f"item {trace.item.id!r} was recorded to {len(trace)} tokens only; a budget of {budget} needs more"
        )


def full_run(trace: Trace, p: Any) -> SessionOutcome:
    """How the undisturbed trace ends, under a method's budget, answer format and think markers; run once."""
    key = (p.budget, p.answers, p.opening, p.close)
    if key not in trace.full_runs:
        trace.full_runs[key] = replay(trace, _undisturbed(*key)).outcome
    return trace.full_runs[key]


@lru_cache(maxsize=64)
def _undisturbed(budget: int, answers: str, opening: str | None, close: str | None) -> Controller:
    return to_the_end(budget, answers=answers, opening=opening, close=close)


def outcomes(
    traces: Sequence[Trace],
    method: Controller,
    task: Task,
    *,
    identity: Identity | None = None,
    tick: Callable[[], None] | None = None,
) -> list[Outcome]:
    """A method's outcome on every trace; `method` is copied fresh for each."""
    check_format(method, task)
    found = []
    for trace in chunked_for(traces, method):
        end = replay(trace, informed(method, trace, task), identity=identity).outcome
        correct = task.correct(end.answer, trace.item)
        full = end if end.decision is None else full_run(trace, method.parameters)
        found.append(
            outcome_of(
                trace.item.id,
                method.parameters,
                tokens=end.tokens,
                probe_tokens=end.probe_tokens,
                halted=end.decision is not None,
                reason=end.reason,
                answer=end.answer,
                correct=correct,
                full_tokens=full.tokens,
                full_correct=correct if full is end else task.correct(full.answer, trace.item),
            )
        )
        if tick:
            tick()
    return found


def check_format(method: Controller, task: Task) -> None:
    """A method must read answers as they are scored."""
    if method.parameters.answers != task.format.name:
        raise ValueError(
            f"{method.parameters.name} reads {method.parameters.answers!r} answers, the task scores "
            f"{task.format.name!r}: both must be the same (a profile reads the answers that it was fitted on)"
        )
