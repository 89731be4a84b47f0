"""Texts -> what is needed of them: their looks, what simple rules would have done, where their tokens went.

A text is read, walked along once a method and forgotten: what stays are numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields

import numpy as np

from bitcal_tts.calibration.recording import Recording, mark_of
from bitcal_tts.halting.identity import Identity
from bitcal_tts.halting.loops import LoopGuard
from bitcal_tts.halting.methods import build_method
from bitcal_tts.halting.reading import Reading, Stage, ThinkingTracker
from bitcal_tts.halting.rules.stated import Stated
from bitcal_tts.logs.counting import splitter
from bitcal_tts.logs.texts import LoggedText
from bitcal_tts.tasks.base import Task
from bitcal_tts.tasks.registry import TEXTS, restore_task
from bitcal_tts.traces.cut import Bools, Cut, Ints
from bitcal_tts.traces.looks import LookTable
from bitcal_tts.traces.replay import full_run, read_off
from bitcal_tts.traces.texts import trace_of
from bitcal_tts.traces.trace import Trace
from bitcal_tts.traces.walk import Judge

FOLDS = 5
BITS = 16.0
"""Of what precision texts are is not known, and does not matter to what is read off them."""
_LONG = 10**9


@dataclass(frozen=True)
class Setting:
    """How the texts of a file are read, and where `settled` looks.

    Attributes:
        answers: The answer format.
        close: What ends the thinking, or None.
        tokenizer: Counts tokens; None approximates.
        opening: What begins the thinking, or None where every text begins inside it.
        looks: Where `settled` looks.
        every: Tokens between boundaries.
        budget: Cap on new tokens; by default one from which a text's own length cannot be told.
        bits: Precision of the model that wrote the texts.
    """

    answers: str
    close: str | None
    tokenizer: str | None = None
    opening: str | None = None
    looks: str = "sentences"
    every: int = 16
    budget: int = _LONG
    bits: float = BITS

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
    def questions(self) -> int:
        """About how many questions."""
        return len(set(self.marks))

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


def recording_of(trace: Trace, setting: Setting) -> Recording:
    """A text as a recording of one."""
    markers = [setting.opening, setting.close] if setting.close else None
    told = {"bits": setting.bits, "budget": setting.budget, "thinking": markers, "probes": setting.every}
    return Recording(told, [trace], setting.task, Identity())


def simple_rule(setting: Setting) -> Stated:
    """What stops at stated answers."""
    stated = build_method(
        "stated", reserve=0, bits=BITS, budget=_LONG, answers=setting.answers, opening=setting.opening,
        close=setting.close,
    )  # fmt: skip
    assert isinstance(stated, Stated)
    return stated


def _walk(trace: Trace, setting: Setting, task: Task, score: Callable[[LookTable, int], LookTable] | None) -> Walked:
    settled = recording_of(trace, setting).table(setting.budget, setting.looks)
    mark = mark_of(trace)
    if score is not None:
        settled = score(settled, fold_of(mark))
    stated = simple_rule(setting)
    full = full_run(trace, stated.parameters)
    judge = Judge(trace, full.answer, task)
    thinking = _thinking(trace, setting.close)
    answered = _answered(trace, setting, task)
    reasoning = thinking - 1 if setting.close is not None and setting.close in trace.text else len(trace)
    undisturbed = LookTable.undisturbed(full.tokens, *judge.worth(full.answer))
    return Walked(
        lines=[trace.item.extra["line"]],
        marks=[mark],
        shape=_shape(trace, settled, thinking, full.answer),
        settled=settled if score is None else settled.condensed(),
        stated=_stated(trace, stated, judge, min(reasoning, answered - 1), undisturbed),
        complete=_complete(trace, task, judge, answered, undisturbed),
    )


def _answered(trace: Trace, setting: Setting, task: Task) -> int:
    """Tokens at which an answer stands outside the thinking; more than there are where none ever does."""
    stages = Reading(task.format, setting.opening, setting.close).stages(trace.token_texts)
    return stages.index(Stage.OVER) + 1 if Stage.OVER in stages else len(trace) + 1


def _stated(trace: Trace, method: Stated, judge: Judge, reasoning: int, undisturbed: LookTable) -> LookTable:
    """The looks of the simple rules, without a session: they see nothing but the text of the reasoning."""
    format = method.parameters.format
    looks: list[tuple[int, float]] = []
    stops: list[tuple[int, int, bool, bool, bool, str]] = []
    for at, piece in enumerate(trace.token_texts[:reasoning], 1):
        method.tokens = at
        score = method.token(piece, None, None, None)
        if score is not None and (not looks or score > looks[-1][1]):
            looks.append((at, score))
            tokens, answer = read_off(format, method.stands_for())
            stops.append((at + tokens, 0, *judge.worth(answer), True, str(method.reason)))
    return undisturbed.with_looks(looks, stops)


def _complete(trace: Trace, task: Task, judge: Judge, answered: int, undisturbed: LookTable) -> LookTable:
    """`complete` as a table: it looks once, where an answer stands outside the thinking, and stops."""
    if answered >= len(trace):
        return undisturbed
    worth = judge.worth(task.format.value(trace.text_at(answered)))
    return undisturbed.with_looks([(answered, 1.0)], [(answered, 0, *worth, True, "")])


def _shape(trace: Trace, settled: LookTable, thinking: int, final: str | None) -> Shape:
    same = settled.candidates.look[settled.candidates.same]
    one = {
        "tokens": len(trace),
        "thinking": thinking,
        "standing": int(settled.at[same[0]]) if len(same) and final is not None else 0,
        "looping": _looping(trace),
    }
    return Shape(
        **{name: np.array([value], dtype=np.int64) for name, value in one.items()},
        answered=np.array([final is not None]),
        truncated=np.array([bool(trace.item.extra.get("truncated"))]),
    )


def _looping(trace: Trace) -> int:
    """Tokens from which on the text repeats itself to its end, or 0."""
    guard = LoopGuard()
    tail = "".join(trace.token_texts[-guard.least :])
    if trace.text.find(tail) == len(trace.text) - len(tail):
        return 0  # its end has not been there before
    looping = 0
    for at, piece in enumerate(trace.token_texts, 1):
        guard.feed(piece)
        looping = (looping or at) if guard.looping else 0
    return looping


def _thinking(trace: Trace, close: str | None) -> int:
    """Tokens up to the end of the thinking."""
    if close is None:
        return len(trace)
    return min(len(trace), ThinkingTracker(None, close).still_inside(trace.token_texts) + 1)
