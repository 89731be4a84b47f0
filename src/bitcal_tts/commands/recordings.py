"""A trace folder as commands take it: opened, its task restored, its answers read as asked."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bitcal_tts.calibration.recording import Recording
from bitcal_tts.commands.places import summary_in
from bitcal_tts.commands.progress import note
from bitcal_tts.halting.answers import FORMATS
from bitcal_tts.halting.checks import did_you_mean
from bitcal_tts.halting.identity import Identity
from bitcal_tts.halting.methods import build_method
from bitcal_tts.tasks import Task
from bitcal_tts.tasks.registry import restore_task
from bitcal_tts.traces.replay import full_run
from bitcal_tts.traces.store import TraceStore
from bitcal_tts.traces.trace import Trace

_FEW = 0.5  # texts with an answer: below this share something is likely amiss


@dataclass(frozen=True)
class Opened:
    """A finished recording, with its answers read in one format.

    Attributes:
        store: The folder.
        description: What its manifest says, flat, the answer format as asked.
        task: Scores it.
        traces: All of them; their probes only where they were made for the format.
        identity: What a promise is tied to, declarations included.
        without_gold: Numbers of the items whose answer is what their text ends with, for they have none of their own.
    """

    store: TraceStore
    description: dict[str, Any]
    task: Task
    traces: Sequence[Trace]
    identity: Identity
    without_gold: frozenset[int] = frozenset()

    @property
    def recording(self) -> Recording:
        """For calibration."""
        return Recording(self.description, self.traces, self.task, self.identity)


def open_recording(
    folder: Path,
    *,
    answers: str | None = None,
    declare: Mapping[str, Any] | None = None,
    complete: bool = True,
    gold: bool = False,
    quiet: bool = False,
) -> Opened:
    """A recording; another answer format than its own is read anew from the same texts.

    Args:
        folder: Where it is.
        answers: The format, if not its own.
        declare: What is known of it and could not be read.
        complete: Whether one that was not finished is refused.
        quiet: Whether nothing is said about its answers: it was, or will be.
        gold: Whether nothing but a gold answer is right. Otherwise, where an item has none, what its text ends with is.
    """
    store = open_store(folder, complete=complete)
    description = store.description
    if answers is not None and answers not in FORMATS:
        meant = did_you_mean(answers, FORMATS)
        raise ValueError(f"unknown answer format {answers!r}{meant}; available: {', '.join(FORMATS)}")
    usual = description["answers"]
    description["answers"] = answers or usual
    task = task_of(description)
    traces: Sequence[Trace] = store.read()
    if description["probes"] is not None and description["probed_answers"] != task.format.name:
        note(
            f"note: the probes of {folder} are for {description['probed_answers']!r} answers and are left out: methods "
            "that end the thinking cannot be replayed"
        )
        description["probes"] = None
        traces = [replace(t, probes=None, signals=replace(t.signals, probes=False)) for t in traces]
    if not quiet:
        _tell_answered(folder, traces, task, asked=answers is not None and answers != usual)
    without = frozenset() if gold else frozenset(trace.index for trace in traces if not trace.item.answer)
    if without:
        description["without_gold"] = len(without)
        if not quiet:
            note(
                f"note: {len(without):,} of {len(traces):,} items have no gold answer: right is what their full text "
                "ends with, if with any"
            )
        traces = _right_as_they_end(traces, description)
    return Opened(store, description, task, traces, store.identity.declare(declare or {}), without)


def open_store(folder: Path, *, complete: bool = True) -> TraceStore:
    """A store: in the folder, in `traces` inside it, or what the folder's results were replayed from."""
    if not TraceStore.is_in(folder) and TraceStore.is_in(source := traces_of(folder, summary_in(folder))):
        folder = source
    store = TraceStore.open(folder)
    if complete:
        store.require_complete()
    return store


def traces_of(folder: Path, summary: Mapping[str, Any]) -> Path:
    """Where the traces are that the results in a folder come from."""
    return Path(os.path.normpath(folder / str(summary.get("traces", "traces"))))


def task_of(description: Mapping[str, Any]) -> Task:
    """The task whose items a recording holds, for its answer format and scorer."""
    return restore_task(
        description["task"],
        description["answers"],
        split=description.get("split") or "test",
        execute=description.get("execute", False),
    )


def _right_as_they_end(traces: Sequence[Trace], description: Mapping[str, Any]) -> list[Trace]:
    """The same, of items without a gold answer with what the recorded text ends with."""
    opening, close = description.get("thinking") or (None, None)
    whole = build_method(
        "complete", bits=description["bits"], budget=description["budget"], answers=description["answers"],
        opening=opening, close=close,
    ).parameters  # fmt: skip
    return [
        trace
        if trace.item.answer
        else replace(trace, item=replace(trace.item, answer=full_run(trace, whole).answer or ""))
        for trace in traces
    ]


def _tell_answered(folder: Path, traces: Sequence[Trace], task: Task, *, asked: bool) -> None:
    """How many texts hold an answer at all, where that was asked for or is worth knowing."""
    if not traces:
        return
    answered = sum(task.format.value(trace.text) is not None for trace in traces)
    if asked or answered < _FEW * len(traces):
        others = "; another format may be right: --answers " + ", ".join(FORMATS)
        if answered == len(traces):
            others = ""
        elif answered:
            others = "; the others ended at the budget, or answer otherwise (--answers)"
        note(
            f"note: {answered} of {len(traces)} texts in {folder} hold an answer as {task.format.name!r} has it{others}"
        )
