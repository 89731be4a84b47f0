"""Walking a gate along traces, once: its looks, and what stopping at each of them would come to."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitcal_tts.halting.controller import Decision, Step
from bitcal_tts.halting.gate import Gate, GateParameters
from bitcal_tts.halting.identity import Identity
from bitcal_tts.halting.policy import Action
from bitcal_tts.halting.reading import Stage
from bitcal_tts.halting.rules.stated import Stated
from bitcal_tts.halting.session import Session
from bitcal_tts.halting.settled import Settled
from bitcal_tts.halting.statements import Statement, detector_for
from bitcal_tts.halting.stopping import answer_of
from bitcal_tts.halting.values import KINDS, Look, as_text
from bitcal_tts.tasks.base import Task
from bitcal_tts.traces.looks import CandidateRows, LookTable, Stops
from bitcal_tts.traces.oracle import informed
from bitcal_tts.traces.replay import check_format, full_run, landing_at, probe_at, replay, stages_of
from bitcal_tts.traces.trace import Trace


def gate_looks(
    traces: Sequence[Trace],
    gate: Gate,
    task: Task,
    *,
    identity: Identity | None = None,
    tick: Callable[[], None] | None = None,
) -> LookTable:
    """The looks of a gate at any threshold; its own does not matter.

    Only looks that score higher than all before them in their trace can ever be the first to reach a threshold: the
    others are left out.
    """
    never = type(gate)(dataclasses.replace(gate.parameters, threshold=math.inf))
    return walk(traces, never, task, identity=identity, rising=True, tick=tick)


def walk(
    traces: Sequence[Trace],
    gate: Gate,
    task: Task,
    *,
    identity: Identity | None = None,
    rising: bool = False,
    look_of: Callable[[Any], Look] | None = None,
    tick: Callable[[], None] | None = None,
) -> LookTable:
    """Walk a gate whose threshold is out of reach along traces and note its looks.

    Args:
        traces: Recorded with probes where the gate probes or lands.
        gate: Copied fresh for each.
        task: Scores answers.
        identity: Of the recording, for a gate whose promise is tied to one.
        rising: Leave out looks that score no higher than one before them.
        look_of: What the gate sees at a look, asked of the gate right then.
        tick: Told of each trace.
    """
    check_format(gate, task)
    reason = str(type(gate).reason)
    rows: list[tuple[int, int, float]] = []
    stops: list[tuple[int, int, bool, bool, bool, str]] = []
    ends: list[tuple[int, int, bool, bool, bool, str]] = []
    fulls: list[tuple[int, bool]] = []
    candidates: list[tuple[int, bool, bool]] = []
    vectors: list[NDArray[np.float32]] = []
    for i, trace in enumerate(traces):
        full = full_run(trace, gate.parameters)
        judge = Judge(trace, full.answer, task)
        highest = -math.inf
        looked: list[int] = []

        def note(
            session: Session, decision: Decision, i: int = i, judge: Judge = judge, looked: list[int] = looked
        ) -> None:
            nonlocal highest
            if isinstance(gate, Settled) and session.method.looked_at == decision.tokens:  # type: ignore[attr-defined]
                looked.append(decision.tokens)
            if decision.score is None or (rising and decision.score <= highest):
                return
            highest = max(highest, decision.score)
            rows.append((i, decision.tokens, decision.score))
            stopped = judge.stopped(session, decision.answer, gate)
            stops.append((*stopped, True, reason))
            if look_of is not None:
                look = look_of(session.method)
                vectors.append(look.rows)
                worths = judge.candidates(look.values, stopped[2:])
                candidates.extend((len(rows) - 1, *worth) for worth in worths)

        seen = trace.signals.present if look_of is not None else None
        method = _guided(informed(gate, trace, task), trace)
        end = replay(trace, method, identity=identity, watch=note, fed=seen).outcome
        whole = gate.parameters.looks == "statements" or gate.reads_question  # who does not read it sees fewer
        if isinstance(gate, Settled) and whole and end.decision is None and len(trace) < gate.parameters.budget:
            trace.looks.setdefault(_key(gate.parameters), tuple(looked))  # rules may look there too
        ends.append((end.tokens, end.probe_tokens, *judge.worth(end.answer), end.decision is not None, end.reason))
        fulls.append((full.tokens, task.correct(full.answer, trace.item)))
        if tick:
            tick()
    trace_of, at, scores = zip(*rows, strict=True) if rows else ((), (), ())
    full_tokens, full_right = zip(*fulls, strict=True) if fulls else ((), ())
    return LookTable(
        trace=np.array(trace_of, dtype=np.int64),
        at=np.array(at, dtype=np.int64),
        stops=Stops.of(stops),
        ends=_without_reasons(Stops.of(ends)),
        full_tokens=np.array(full_tokens, dtype=np.int64),
        full_right=np.array(full_right, dtype=np.bool_),
        strict=type(gate).strict,
        scores=np.array(scores, dtype=np.float64),
        candidates=CandidateRows.of(candidates, vectors),
        read=bool(traces) and traces[0].is_logged,
    )


def _guided(gate: Any, trace: Trace) -> Any:
    """The gate, told where the looks of a trace lie, or what it states: found once, for all rules that ask for it."""
    if isinstance(gate, Stated):
        return gate.fresh().told_of(_statements(trace, gate.parameters))
    if not gate.finds_looks:
        return gate
    key = _key(gate.parameters)
    if key not in trace.looks:
        trace.looks[key] = _looks(trace, gate.parameters)
    guided = gate.fresh()
    guided.known_looks = trace.looks[key]
    return guided


def _key(p: Any) -> tuple[Any, ...]:
    """What the looks of a trace depend on."""
    return p.looks, p.answers, p.opening, p.close


def _looks(trace: Trace, p: Any) -> tuple[int, ...]:
    """Tokens after which a trace has its looks."""
    if p.looks == "statements":
        stages = stages_of(trace, p)
        return tuple(at for at in _statements(trace, p) if stages[at - 1] is not Stage.OVER)
    parameters = GateParameters(
        name="looks", bits=16, budget=len(trace) + (trace.finish != "budget"), answers=p.answers, opening=p.opening,
        close=p.close, looks=p.looks, reserve=0,
    )  # fmt: skip
    found: list[int] = []
    replay(
        trace, _Finder(parameters), watch=lambda _, decision: found.append(decision.tokens) if decision.score else None
    )
    return tuple(found)


def _statements(trace: Trace, p: Any) -> dict[int, Statement]:
    """The statements of a trace, by how many tokens each comes after."""
    stated = p.format.stated
    if stated not in trace.statements:
        detector = detector_for(stated).fresh()
        found = ((i, detector.feed(text)) for i, text in enumerate(trace.token_texts, 1))
        trace.statements[stated] = {i: statement for i, statement in found if statement is not None}
    return trace.statements[stated]


class _Finder(Gate):
    """Says where it looks."""

    def boundary(self, step: Step) -> float | None:
        """Always the same."""
        return 1.0


class Judge:
    """What leaving a trace is worth."""

    def __init__(self, trace: Trace, final: str | None, task: Task) -> None:
        self._trace, self._final, self._task = trace, final, task
        self._worths: dict[Any, tuple[bool, bool]] = {}  # by value, and by answer

    def stopped(self, session: Session, stands_for: str | None, gate: Gate) -> tuple[int, int, bool, bool]:
        """Tokens, probe tokens, right, same, if the session of a gate were stopped here."""
        at = session.tokens
        if type(gate).action is not Action.STOP:
            tokens, answer = at, answer_of(self._trace.text_at(at), gate.parameters)
        elif self._trace.probes is None:
            tokens, answer = session.if_stopped(lambda: landing_at(self._trace, at, stands_for, gate))
        else:  # whoever stops there, the model answers the same
            p, stops = gate.parameters, self._trace.stops
            key = (at, p.budget, p.answers, p.opening, p.close)
            if key not in stops:
                stops[key] = session.if_stopped(lambda: probe_at(self._trace, at))
            tokens, answer = stops[key]
        return (tokens, session.probe_tokens, *self.worth(answer))

    def candidates(self, values: Sequence[Any], stop: tuple[bool, bool]) -> list[tuple[bool, bool]]:
        """Right and same of the values that the text may stand for, at a stop that is worth `stop`.

        Of a text only they can tell. Where a model was asked, its answer counts, and only with the value that it gave.
        """
        if self._trace.is_logged:
            return [self._worth_of(value) for value in values or [None]]
        if len(values) < 2:
            return [stop]
        worths = (self._worth_of(value) for value in values)
        return [(right and stop[0], same and stop[1]) for right, same in worths]

    def _worth_of(self, value: Any) -> tuple[bool, bool]:
        if value is None:
            return self.worth(None)
        if value not in self._worths:
            self._worths[value] = self.worth(as_text(value, KINDS.get(self._task.format.values or "")))
        return self._worths[value]

    def worth(self, answer: str | None) -> tuple[bool, bool]:
        """Whether an answer is right, and whether it is the full run's; where that has none, nothing is lost."""
        if answer not in self._worths:
            same = self._task.format.keeps(answer, self._final)
            self._worths[answer] = self._task.correct(answer, self._trace.item), same
        return self._worths[answer]


def _without_reasons(ends: Stops) -> Stops:
    """Ends that nobody halted have no reason to be halted."""
    return dataclasses.replace(ends, reasons=np.where(ends.halted, ends.reasons, ""))
