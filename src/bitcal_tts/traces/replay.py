"""Any method at any budget on recorded traces, by the same controller that halts live."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bitcal_tts.halting.controller import Controller, Decision, Step
from bitcal_tts.tasks.base import Task
from bitcal_tts.traces.schema import Trace
from bitcal_tts.traces.store import TraceError


@dataclass(frozen=True)
class Outcome:
    """What a method did on a trace at a budget.

    `tokens` excludes probes, which are counted apart. `full_correct` is whether the undisturbed trace, at
    the same budget, is right.
    """

    item: str
    method: str
    bits: float
    budget: int
    tokens: int
    probe_tokens: int
    finish: str
    reason: str
    answer: str | None
    correct: bool
    full_correct: bool
    full_tokens: int

    @property
    def premature(self) -> bool:
        """The paper's premature stop: halted before the budget, and wrong."""
        return self.finish == "halted" and not self.correct

    @property
    def lost(self) -> bool:
        """Halted and wrong where the full trace is right."""
        return self.finish == "halted" and not self.correct and self.full_correct

    @property
    def rescued(self) -> bool:
        """Halted and right where the full trace is wrong."""
        return self.finish == "halted" and self.correct and not self.full_correct


@dataclass(frozen=True)
class Halt:
    """Where a controller left a trace, and why; `decision` is None where the trace ended by itself."""

    tokens: int
    finish: str
    decision: Decision | None


def steps(trace: Trace, chunk_size: int, budget: int) -> Iterator[Step]:
    """The steps an engine would have handed over: every full chunk after which decoding could go on.

    A chunk that exhausts the budget, or in which the model ends, is not decided on: nothing is left to halt.
    """
    recorded = trace.hidden_similarities
    for end in range(chunk_size, min(len(trace), budget - 1) + 1, chunk_size):
        i = end // chunk_size - 2
        chunk = slice(end - chunk_size, end)
        yield Step(
            text=trace.text[trace.offsets[end - chunk_size] : trace.offsets[end]],
            n_tokens=chunk_size,
            entropy=float(trace.entropies[end - 1]),
            hidden_similarity=float(recorded[i]) if 0 <= i < len(recorded) else None,
            token_texts=trace.token_texts[chunk],
            entropies=trace.entropies[chunk],  # type: ignore[arg-type]
            logprobs=trace.logprobs[chunk],  # type: ignore[arg-type]
            margins=trace.margins[chunk],  # type: ignore[arg-type]
            top_logprobs=trace.top_logprobs[chunk],  # type: ignore[arg-type]
        )


def replay(trace: Trace, controller: Controller, budget: int) -> Halt:
    """Run a fresh controller over a trace."""
    for step in steps(trace, controller.parameters.chunk_size, budget):
        decision = controller.observe(step)
        if decision.halts:
            return Halt(decision.tokens, "halted", decision)
    return end_of(trace, budget)


def end_of(trace: Trace, budget: int) -> Halt:
    """How the undisturbed trace ends at a budget."""
    if len(trace) >= budget:
        return Halt(budget, "budget", None)
    if trace.finish == "budget":
        raise TraceError(
            f"item {trace.item.id!r} was recorded to {len(trace)} tokens only; a budget of {budget} needs more"
        )
    return Halt(len(trace), "eos", None)


def outcomes(
    traces: Sequence[Trace],
    method: Controller,
    task: Task,
    *,
    recorded_chunk_size: int = 16,
    tick: Callable[[], None] | None = None,
) -> list[Outcome]:
    """A method's outcome on every trace; `method` is copied fresh for each."""
    p = method.parameters
    traces = at_chunk_size(traces, p.chunk_size, recorded_chunk_size, needed=p.reads_hidden)
    found = []
    for trace in traces:
        halt = replay(trace, method.fresh(), p.budget)
        full = end_of(trace, p.budget)
        answer = task.answers.value(trace.text_at(halt.tokens))
        correct = task.correct(answer, trace.item)
        full_correct = correct
        if full.tokens != halt.tokens:
            full_correct = task.correct(task.answers.value(trace.text_at(full.tokens)), trace.item)
        found.append(
            Outcome(
                item=trace.item.id,
                method=p.name,
                bits=p.bits,
                budget=p.budget,
                tokens=halt.tokens,
                probe_tokens=0,
                finish=halt.finish,
                reason=str(halt.decision.reason) if halt.decision else halt.finish,
                answer=answer,
                correct=correct,
                full_correct=full_correct,
                full_tokens=full.tokens,
            )
        )
        if tick:
            tick()
    return found


def at_chunk_size(traces: Sequence[Trace], chunk_size: int, recorded: int, *, needed: bool = True) -> Sequence[Trace]:
    """Traces whose hidden-state similarities are those of the chunk size asked for.

    Args:
        traces: As recorded.
        chunk_size: The chunk size of the controller.
        recorded: The chunk size of the recording.
        needed: Whether the controller reads the hidden-state signal at all.
    """
    if chunk_size == recorded:
        return traces
    if not needed:
        return [dataclasses.replace(trace, hidden_similarities=np.zeros(0, dtype=np.float32)) for trace in traces]
    if chunk_size % recorded or any(trace.hidden is None and len(trace) >= recorded for trace in traces):
        raise TraceError(
            f"hidden states were recorded every {recorded} tokens; chunk_size={chunk_size} needs a multiple of that "
            "and the vectors (bitcal record --hidden), or the hidden-state signal switched off (hidden=false)"
        )
    stride = chunk_size // recorded
    return [dataclasses.replace(trace, hidden_similarities=_similarities(trace, stride)) for trace in traces]


def _similarities(trace: Trace, stride: int) -> NDArray[np.float32]:
    if trace.hidden is None:
        return np.zeros(0, dtype=np.float32)
    rows = trace.hidden[stride - 1 :: stride]
    unit = rows / (np.linalg.norm(rows, axis=1, keepdims=True) + 1e-12)
    return np.asarray((unit[1:] * unit[:-1]).sum(-1), dtype=np.float32)
