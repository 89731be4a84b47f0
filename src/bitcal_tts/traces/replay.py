"""Any method at any budget on recorded traces, by the same controller that halts live."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitcal_tts.halting.controller import Decision, Method, Probe, Step
from bitcal_tts.halting.landing import Landing
from bitcal_tts.halting.rules.oracle import Oracle
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
    """Where a method left a trace, and why; `decision` is None where the trace ended by itself.

    `probe_tokens` is what probing had cost by then.
    """

    tokens: int
    finish: str
    decision: Decision | None
    probe_tokens: int = 0


def steps(trace: Trace, chunk_size: int, budget: int) -> Iterator[Step]:
    """The steps an engine would have handed over: every full chunk after which decoding could go on.

    A chunk that exhausts the budget, or in which the model ends, is not decided on: nothing is left to halt.
    """
    recorded = trace.hidden_similarities.tolist()
    entropies, logprobs, margins, tops = (
        array.tolist() for array in (trace.entropies, trace.logprobs, trace.margins, trace.top_logprobs)
    )
    for end in range(chunk_size, min(len(trace), budget - 1) + 1, chunk_size):
        i = end // chunk_size - 2
        chunk = slice(end - chunk_size, end)
        texts = trace.token_texts[chunk]
        yield Step(
            text="".join(texts),
            n_tokens=chunk_size,
            entropy=entropies[end - 1],
            hidden_similarity=recorded[i] if 0 <= i < len(recorded) else None,
            token_texts=texts,
            entropies=entropies[chunk],
            logprobs=logprobs[chunk],
            margins=margins[chunk],
            top_logprobs=tops[chunk],
            probe=_prober(trace, end),
        )


def _prober(trace: Trace, tokens: int) -> Callable[[Landing], Probe] | None:
    return None if trace.probes is None else lambda _: probe_at(trace, tokens)


def probe_at(trace: Trace, tokens: int) -> Probe:
    """What the model answered when made to after so many tokens."""
    if trace.probes is None:
        raise TraceError("a method that ends the thinking needs probes, and these traces have none: record --probes")
    if tokens not in trace.probes:
        raise TraceError(
            f"item {trace.item.id!r} was not probed after {tokens} tokens, where a method ends it: "
            "record with --probes 16, or --set every to a multiple of what was recorded"
        )
    return trace.probes[tokens]


def replay(trace: Trace, controller: Method, budget: int) -> Halt:
    """Run a fresh controller over a trace."""
    if not controller.parameters.halts:
        return end_of(trace, budget)
    spent = 0
    for step in steps(trace, controller.parameters.chunk_size, budget):
        decision = controller.observe(step)
        spent = decision.probe_tokens
        if decision.halts:
            return Halt(decision.tokens, "halted", decision, spent)
    return dataclasses.replace(end_of(trace, budget), probe_tokens=spent)


def ending(trace: Trace, halt: Halt, task: Task) -> tuple[int, str | None]:
    """Tokens and answer of a trace that was left somewhere; a soft landing adds the tokens it takes."""
    landing = halt.decision.landing if halt.decision else None
    if landing is None:
        return halt.tokens, task.answers.value(trace.text_at(halt.tokens))
    probe = probe_at(trace, halt.tokens)
    return halt.tokens + probe.n_tokens, task.answers.value(landing.cue + probe.text)


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
    method: Method,
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
        halt = replay(trace, informed(method.fresh(), trace, task, p.budget), p.budget)
        full = end_of(trace, p.budget)
        tokens, answer = ending(trace, halt, task)
        correct = task.correct(answer, trace.item)
        full_correct = correct
        if halt.decision is not None:
            full_correct = task.correct(ending(trace, full, task)[1], trace.item)
        found.append(
            Outcome(
                item=trace.item.id,
                method=p.name,
                bits=p.bits,
                budget=p.budget,
                tokens=tokens,
                probe_tokens=halt.probe_tokens,
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


def answer_options(identity: Mapping[str, Any]) -> dict[str, Any]:
    """What a recording says of its answers and its thinking, as parameters of the methods that read them."""
    opening, close = identity.get("thinking") or (None, None)
    return {"answers": identity["answers"], "opening": opening, "close": close}


def informed(method: Method, trace: Trace, task: Task, budget: int) -> Method:
    """Tell an oracle what it may know of a trace; other methods know nothing."""
    if isinstance(method, Oracle):
        if trace.probes is None:
            raise TraceError("an oracle needs to see probed answers, and these traces have none: record --probes")
        probes = trace.probes
        answers = {at: task.answers.value(task.answers.cue + probe.text) for at, probe in probes.items()}
        if method.wants == "right":
            good = {at for at, answer in answers.items() if task.correct(answer, trace.item)}
        else:
            _, final = ending(trace, end_of(trace, budget), task)
            good = _unchanging(answers, final, task)
        method.told(lambda tokens: tokens in good)
    return method


def _unchanging(answers: Mapping[int, str | None], final: str | None, task: Task) -> set[int]:
    """Places from which on the forced answer is always the final one."""
    good: set[int] = set()
    for at in sorted(answers, reverse=True):
        answer = answers[at]
        if answer is None or final is None or not task.answers.equal(answer, final):
            break
        good.add(at)
    return good


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
