"""Texts -> what is needed of them: their looks, what simple rules would have done, where their tokens went.

A text is read, walked along once a method and forgotten: what stays are numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from bitcal_tts.calibration.recording import Recording, mark_of
from bitcal_tts.halting.answers import FORMATS
from bitcal_tts.halting.identity import Identity
from bitcal_tts.halting.loops import LoopGuard
from bitcal_tts.halting.methods import build_method
from bitcal_tts.halting.reading import Reading, Stage
from bitcal_tts.logs.counting import splitter
from bitcal_tts.logs.texts import LoggedText
from bitcal_tts.tasks.base import Task
from bitcal_tts.tasks.registry import TEXTS, restore_task
from bitcal_tts.traces.looks import Bools, Cut, Ints, LookTable
from bitcal_tts.traces.replay import full_run, outcomes
from bitcal_tts.traces.schema import Trace
from bitcal_tts.traces.texts import trace_of
from bitcal_tts.traces.walk import gate_looks

FOLDS = 5
BITS = 16.0
"""Of what precision texts are is not known, and does not matter to what is read off them."""
_LONG = 10**9


@dataclass(frozen=True)
class Setting:
    """How the texts of a file are read.

    Attributes:
        answers: The answer format.
        close: What ends the thinking, or None.
        tokenizer: Counts tokens; None approximates.
    """

    answers: str
    close: str | None
    tokenizer: str | None = None

    @property
    def task(self) -> Task:
        """Scores answers."""
        return restore_task(TEXTS, self.answers)


@dataclass(frozen=True)
class Shape:
    """Where the tokens of texts went, one row each.

    Attributes:
        tokens: In all.
        thinking: Up to the end of the thinking; all of them where it is not marked.
        standing: Tokens at the first look at which the final value is a candidate; 0 where it never is.
        looping: Tokens from which on the text repeats itself to its end, or 0.
        answered: Whether it gives an answer at all.
        truncated: Whether its log says that it was cut off.
    """

    tokens: Ints
    thinking: Ints
    standing: Ints
    looping: Ints
    answered: Bools
    truncated: Bools

    def thinking_share(self, cut: Cut) -> float:
        """Of the thinking tokens, how many a method needs that leaves the write-up as it is."""
        early = cut.halted & (cut.tokens <= self.thinking)
        return float(np.where(early, cut.tokens, self.thinking).sum() / max(1, self.thinking.sum()))


@dataclass(frozen=True)
class Walked:
    """Texts, walked along.

    Attributes:
        lines: Where they stand in their file.
        marks: Names of their questions: texts of one question are in one fold.
        shape: Where their tokens went.
        settled: Looks of `settled`, with what it sees at them, or with its scores.
        stated: Looks of the simple rules.
        complete: What `complete` does, as a table with at most one look a text.
    """

    lines: list[int]
    marks: list[str]
    shape: Shape
    settled: LookTable
    stated: LookTable
    complete: LookTable

    @property
    def n(self) -> int:
        """How many texts."""
        return len(self.lines)

    @property
    def folds(self) -> Ints:
        """Which fold each text is in."""
        return np.array([fold_of(mark) for mark in self.marks], dtype=np.int64)

    @classmethod
    def joined(cls, parts: Sequence[Walked]) -> Walked:
        """Several as one."""
        shapes = {
            field.name: np.concatenate([getattr(part.shape, field.name) for part in parts]) for field in fields(Shape)
        }
        tables = {
            name: LookTable.joined([getattr(part, name) for part in parts])
            for name in ("settled", "stated", "complete")
        }
        lines = [line for part in parts for line in part.lines]
        return cls(lines, [mark for part in parts for mark in part.marks], Shape(**shapes), **tables)


def fold_of(mark: str) -> int:
    """The fold of a question, the same for whoever wrote about it."""
    return int(mark, 16) % FOLDS


def walk_texts(
    texts: Sequence[LoggedText], setting: Setting, score: Callable[[LookTable, int], LookTable] | None = None
) -> Walked:
    """Walk along texts.

    Args:
        texts: Some of a file.
        setting: How they are read.
        score: What turns the looks of a fold's text into scored ones; without it they keep what is seen at them.
    """
    split, task = splitter(setting.tokenizer), setting.task
    parts = [_walk(trace_of(text, i, split), setting, task, score) for i, text in enumerate(texts)]
    return Walked.joined(parts)


def _walk(trace: Trace, setting: Setting, task: Task, score: Callable[[LookTable, int], LookTable] | None) -> Walked:
    budget = _LONG  # nothing may be told from a budget that follows the text's own length
    shared: dict[str, Any] = {"bits": BITS, "budget": budget, "answers": setting.answers, "close": setting.close}
    thinking = [None, setting.close] if setting.close else None
    recording = Recording({"bits": BITS, "budget": budget, "thinking": thinking}, [trace], task, Identity())
    settled = recording.table(budget, "sentences")
    mark = mark_of(trace)
    if score is not None:
        settled = score(settled, fold_of(mark))
    stated = gate_looks([trace], build_method("stated", reserve=0, **shared), task)
    return Walked(
        lines=[trace.item.extra["line"]],
        marks=[mark],
        shape=_shape(trace, setting, settled),
        settled=settled if score is None else settled.without_candidates(),
        stated=stated,
        complete=_complete(trace, build_method("complete", **shared), task, stated),
    )


def _complete(trace: Trace, method: Any, task: Task, like: LookTable) -> LookTable:
    """`complete` as a table: it looks once, where it stops."""
    (done,) = outcomes([trace], method, task)
    if done.finish != "halted":
        return like.at_most_once(None)
    final = full_run(trace, method.parameters).answer
    same = final is None or (done.answer is not None and task.format.equal(done.answer, final))
    return like.at_most_once(done.tokens, right=done.correct, same=same)


def _shape(trace: Trace, setting: Setting, settled: LookTable) -> Shape:
    reading = Reading(FORMATS[setting.answers], None, setting.close)
    guard = LoopGuard()
    thinking = looping = 0
    for at, piece in enumerate(trace.token_texts, 1):
        if setting.close is not None and thinking == 0:
            reading.feed(piece)
            thinking = at if reading.stage in (Stage.WRITING, Stage.OVER) else 0
        guard.feed(piece)
        looping = (looping or at) if guard.looping else 0
    same = settled.candidates.look[settled.candidates.same]
    (answer,) = (run.answer for run in trace.full_runs.values())
    one = {
        "tokens": len(trace),
        "thinking": thinking or len(trace),
        "standing": int(settled.at[same[0]]) if len(same) and answer is not None else 0,
        "looping": looping,
    }
    return Shape(
        **{name: np.array([value], dtype=np.int64) for name, value in one.items()},
        answered=np.array([answer is not None]),
        truncated=np.array([bool(trace.item.extra.get("truncated"))]),
    )
