"""Texts -> what is needed of them: their looks, what simple rules would have done, where their tokens went.

A text is read, walked along once a method and forgotten: what stays are numbers.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from bitcal_tts.calibration.recording import Recording, mark_of
from bitcal_tts.halting.identity import Identity
from bitcal_tts.halting.loops import LoopGuard
from bitcal_tts.halting.methods import build_method
from bitcal_tts.halting.reading import Reading
from bitcal_tts.logs.counting import splitter
from bitcal_tts.logs.texts import LoggedText
from bitcal_tts.tasks.base import Task
from bitcal_tts.tasks.registry import TEXTS, restore_task
from bitcal_tts.traces.looks import Bools, Cut, Ints, LookTable
from bitcal_tts.traces.replay import full_run
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
    markers = [None, setting.close] if setting.close else None
    recording = Recording({"bits": BITS, "budget": budget, "thinking": markers}, [trace], task, Identity())
    settled = recording.table(budget, "sentences")
    mark = mark_of(trace)
    if score is not None:
        settled = score(settled, fold_of(mark))
    stated_method = build_method("stated", reserve=0, **shared)
    stated = gate_looks([trace], stated_method, task)
    thinking, final = _thinking(trace, setting.close), full_run(trace, stated_method.parameters).answer
    return Walked(
        lines=[trace.item.extra["line"]],
        marks=[mark],
        shape=_shape(trace, settled, thinking, final),
        settled=settled if score is None else settled.condensed(),
        stated=stated,
        complete=_complete(trace, setting, task, thinking, final, stated),
    )


def _complete(
    trace: Trace, setting: Setting, task: Task, thinking: int, final: str | None, like: LookTable
) -> LookTable:
    """`complete` as a table: it looks once, where an answer stands outside the thinking, and stops."""
    reading = Reading(task.format, None, setting.close)
    texts = trace.token_texts
    at = thinking if setting.close is not None else 0
    reading.feed("".join(texts[:at]))
    while not reading.answered and at < len(texts):
        reading.feed(texts[at])
        at += 1
    if not reading.answered or at == len(texts):
        return like.at_most_once(None)
    answer = task.format.value(trace.text_at(at))
    same = final is None or (answer is not None and task.format.equal(answer, final))
    return like.at_most_once(at, right=task.correct(answer, trace.item), same=same)


def _shape(trace: Trace, settled: LookTable, thinking: int, final: str | None) -> Shape:
    guard = LoopGuard()
    looping = 0
    for at, piece in enumerate(trace.token_texts, 1):
        guard.feed(piece)
        looping = (looping or at) if guard.looping else 0
    same = settled.candidates.look[settled.candidates.same]
    one = {
        "tokens": len(trace),
        "thinking": thinking,
        "standing": int(settled.at[same[0]]) if len(same) and final is not None else 0,
        "looping": looping,
    }
    return Shape(
        **{name: np.array([value], dtype=np.int64) for name, value in one.items()},
        answered=np.array([final is not None]),
        truncated=np.array([bool(trace.item.extra.get("truncated"))]),
    )


def _thinking(trace: Trace, close: str | None) -> int:
    """Tokens up to the end of the thinking."""
    closes_at = -1 if close is None else trace.text.find(close)
    if close is None or closes_at < 0:
        return len(trace)
    ends = list(itertools.accumulate(map(len, trace.token_texts)))
    return bisect.bisect_left(ends, closes_at + len(close)) + 1
