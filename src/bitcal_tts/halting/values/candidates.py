"""Every value that a reasoning text has named, and what speaks for each of them being its answer.

A text is read sentence by sentence. At the end of one the few best candidates are told with a row of numbers each: how
often a value came out, how recently, out of which of the question's numbers, whether something was computed from it
since, whether the words around it are those of the question. A fitted scorer turns the rows into a choice.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from operator import sub
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bitcal_tts.halting.values.asking import Asking, stem
from bitcal_tts.halting.values.cues import CUES, words_in
from bitcal_tts.halting.values.kinds import ValueKind
from bitcal_tts.halting.values.numbers import Mention
from bitcal_tts.halting.values.relevance import Relevance

MAX_VALUES = 128
"""Values kept at a time; of more, those that were mentioned longest ago are forgotten."""
KEPT = 6
"""Candidates told at a look."""
_UNKNOWN = -9.0
_SUPPOSE = CUES.index("suppose")

OWN = (
    "mentions", "results", "computed", "said", "closes_sentence", "operand", "carried_on", "checked_back", "called",
    "boxed", "concluded", "overlap_max", "overlap_last", "overlap_mean", "overlap_of_result", "in_question",
    "since_mention", "since_result", "since_first", "since_first_result", "results_since", "last_to_come_out",
    "latest", "share_of_closings", "share_called", "share_of_results", "rival_results", "operand_share",
    "carried_share", "per_share", "supposed_share", "coverage", "coverage_gap", "covers_last", "covers_asked",
    "depth", "ways", "unit_share", "currency_share", "percent_share", "currency_gap", "unit_gap", "newer_results",
    "ancestors", "just_said", "relevance_max", "relevance_last", "relevance_mean", "relevance_gap",
    "closed_the_thinking", "named_share", "misnamed_share",
    *(f"{cue}_since_first_result" for cue in CUES),
)  # fmt: skip
"""What is told of a candidate."""
SHARED = (
    "question_used", "told_used_least", "told_used_last", "told_used", "overlap", "weighted_overlap", "since_new_value",
    "since_new_result", "answers_named", "since_conclusion", "writing", "thinking_closed", "per", "supposed", "asks",
    *(f"{cue}_count" for cue in CUES), *(f"{cue}_here" for cue in CUES), *(f"{cue}_before" for cue in CUES),
    *(f"since_{cue}" for cue in CUES),
)  # fmt: skip
"""What is told of the text."""
COLUMNS = (*OWN, *SHARED)


class Look(NamedTuple):
    """The end of a sentence once a candidate stands: the candidates, and a row of numbers for each."""

    values: Sequence[Hashable]
    rows: NDArray[np.float32]


class Standing(NamedTuple):
    """The best candidates, with a row of `OWN` for each, and what is `SHARED`."""

    values: list[Hashable]
    own: list[list[float]]
    shared: list[float]


class _Value:
    """What has been seen of one value."""

    __slots__ = (
        "ancestors", "at", "boxed", "called", "carried_on", "checked_back", "closed_the_thinking", "closes", "computed",
        "concluded", "cues_before", "currency", "depth", "first", "first_result", "given", "made_of", "mentions",
        "misnamed", "named", "operand", "overlap_last", "overlap_max", "overlap_of_result", "overlap_sum", "per",
        "percent", "rank", "relevance_last", "relevance_max", "relevance_sum", "result_at", "result_number", "results",
        "said", "supposed", "unit", "ways",
    )  # fmt: skip

    def __init__(self, tokens: int, given: bool) -> None:
        self.first = self.at = tokens
        self.given = given
        self.mentions = self.results = self.computed = self.said = self.closes = self.operand = 0
        self.carried_on = self.checked_back = self.called = self.boxed = self.concluded = 0
        self.per = self.supposed = self.unit = self.currency = self.percent = self.named = self.misnamed = 0
        self.result_at = self.first_result = self.result_number = self.rank = self.depth = self.made_of = 0
        self.overlap_max = self.overlap_last = self.overlap_sum = self.overlap_of_result = 0.0
        self.relevance_max = self.relevance_last = _UNKNOWN
        self.relevance_sum = 0.0
        self.ancestors: frozenset[Hashable] = frozenset()
        self.ways: set[frozenset[Hashable]] = set()
        self.cues_before: tuple[int, ...] = ()
        self.closed_the_thinking = False

    @property
    def stands(self) -> bool:
        """Whether it may be the answer: it came out, or was called so."""
        return self.results > 0 or self.called > 0


class Candidates:
    """The values of one text.

    Args:
        asking: The question.
        kind: What values look like.
    """

    def __init__(self, asking: Asking, kind: ValueKind) -> None:
        self._asking, self._kind, self._relevance = asking, kind, Relevance(asking)
        self._question_words = set[str]().union(*asking.told)
        self._values: dict[Hashable, _Value] = {}
        self._tokens = 0
        self._results = self._distinct = self._answers = 0
        self._new_value_at = self._new_result_at = self._concluded_at = 0
        self._used = 0
        self._latest: Hashable = None
        self._last_of_sentence: Hashable = None
        self._last_of_numbers: Hashable = None
        self._subjects: frozenset[str] = frozenset()
        self._computed_with: set[str] = set()
        self._told_used = self._shares_told()
        self._cues = [0] * len(CUES)
        self._cues_here = self._cues_before = (0,) * len(CUES)
        self._cues_at = [0] * len(CUES)
        self._overlap = self._weighted_overlap = 0.0
        self._per = self._supposed = self._asks = self._writing = False
        self._closed: bool = False

    def feed(self, sentence: str, tokens: int, *, writing: bool) -> bool:
        """Take a sentence that has ended; whether it is worth a look.

        Args:
            sentence: Its text.
            tokens: Of the text so far.
            writing: Whether the thinking is over and the answer is being written up.
        """
        says = words_in(sentence)
        if says is None:
            return False
        if writing and not self._writing:
            self._close_thinking()
        self._tokens, self._writing = tokens, writing
        self._count_cues(says.cues)
        found, boxed = self._kind.mentions(sentence, self._asking), self._kind.boxed(sentence)
        results = [mention for mention in found if mention.result]
        last = boxed[-1] if boxed else results[-1].value if results else None
        called = None
        if says.answers:
            self._answers += 1
            called = last if last is not None else found[-1].value if found else None
        if any(mention.computed for mention in results):
            self._computed_with |= says.content & self._question_words
            self._told_used = self._shares_told()
        self._overlap = len(says.content & self._asking.asked) / max(1, len(self._asking.asked))
        self._weighted_overlap = self._asking.overlap(says.content)
        self._per, self._asks = says.per, says.asks
        self._supposed = says.cues[_SUPPOSE] > 0
        self._take(found, last, called, concludes=says.concludes)
        for value in boxed:
            self._box(value, last, called, mentioned=any(mention.value == value for mention in found))
        self._last_of_sentence = last
        self._latest = self._latest if last is None else last
        if found or boxed:
            self._last_of_numbers = last
        names = [word for word in self._asking.names if word in sentence]
        if names:
            # Of `Ann` and `Anna` at one place the longer is meant; a set has no order of its own.
            self._subjects = frozenset({max(names, key=lambda word: (sentence.rfind(word), len(word)))})
        self._forget()
        return self.stand

    @property
    def stand(self) -> bool:
        """Whether any value may be the answer."""
        return any(value.stands for value in self._values.values())

    def _close_thinking(self) -> None:
        """The thinking is over: what its last result was is most likely what it stands for."""
        self._closed = True
        if self._last_of_numbers in self._values:
            self._values[self._last_of_numbers].closed_the_thinking = True

    def _count_cues(self, cues: tuple[int, ...]) -> None:
        self._cues_before, self._cues_here = self._cues_here, cues
        for i, count in enumerate(cues):
            if count:
                self._cues[i] += count
                self._cues_at[i] = self._tokens

    def _take(self, found: Sequence[Mention], last: Hashable, called: Hashable, *, concludes: bool) -> None:
        asking, subjects = self._asking, self._subjects
        seen: set[Hashable] = set()
        for mention in found:
            named = asking.names.intersection(mention.before)
            subjects = frozenset(named) if named else subjects
            given = asking.given_by(mention.worth)
            self._used |= given
            value = self._value(mention.value, known=given > 0)
            if mention.percent:
                self._value(mention.worth, known=given > 0).made_of |= given
            else:
                value.made_of |= given
            if mention.value not in seen:
                seen.add(mention.value)
                self._mention(value, mention, last, called)
            value.unit += not asking.unit.isdisjoint(map(stem, mention.after))
            value.currency += mention.currency
            value.percent += mention.percent
            if mention.result:
                self._come_out(value, mention, subjects)
                if concludes:
                    value.concluded += 1
                    self._concluded_at = self._tokens

    def _value(self, key: Hashable, *, known: bool) -> _Value:
        value = self._values.get(key)
        if value is None:
            value = self._values[key] = _Value(self._tokens, key in self._asking.given)
            if not known:
                self._new_value_at = self._tokens
        return value

    def _mention(self, value: _Value, mention: Mention, last: Hashable, called: Hashable) -> None:
        overlap = self._weighted_overlap
        value.mentions += 1
        value.at = self._tokens
        value.overlap_max, value.overlap_last = max(value.overlap_max, overlap), overlap
        value.overlap_sum += overlap
        value.per += self._per
        value.supposed += self._supposed
        value.operand += mention.operand
        value.called += mention.value == called
        value.closes += mention.value == last

    def _come_out(self, value: _Value, mention: Mention, subjects: frozenset[str]) -> None:
        """A value is said to be the result of something."""
        self._results += 1
        self._result(value)
        value.overlap_of_result = max(value.overlap_of_result, self._weighted_overlap)
        parents = [parent for parent in mention.parents if parent != mention.value]
        if mention.computed and parents:
            value.computed += 1
            self._derive(value, mention.value, parents)
        else:
            value.said += 1
        self._note(value, mention, subjects)
        asked = self._asking.asked_names
        value.named += bool(asked & subjects)
        value.misnamed += bool(asked and subjects - asked)

    def _note(self, value: _Value, mention: Mention, subjects: frozenset[str]) -> None:
        says = self._relevance(mention, subjects, value.made_of)
        value.relevance_max, value.relevance_last = max(value.relevance_max, says), says
        value.relevance_sum += says

    def _result(self, value: _Value) -> None:
        value.results += 1
        value.result_at, value.result_number = self._tokens, self._results
        if not value.first_result:
            self._distinct += 1
            value.first_result = self._new_result_at = self._tokens
            value.rank, value.cues_before = self._distinct, tuple(self._cues)

    def _derive(self, value: _Value, key: Hashable, parents: list[Hashable]) -> None:
        """A value was computed from others. Where it is what one of them was made of, that was a check."""
        ancestors = set(value.ancestors)
        depth = 0
        for name in parents:
            parent = self._values.get(name)
            if parent is None:
                continue
            if key in parent.ancestors:
                parent.checked_back += 1
                continue
            parent.carried_on += not value.given or parent.depth > 0
            value.made_of |= parent.made_of
            ancestors |= {name, *parent.ancestors}
            depth = max(depth, parent.depth)
        value.ancestors = frozenset(ancestors - {key})
        value.depth = max(value.depth, depth + 1)
        value.ways.add(frozenset(parents))

    def _box(self, key: Hashable, last: Hashable, called: Hashable, *, mentioned: bool) -> None:
        value = self._value(key, known=True)
        value.boxed += 1
        if not mentioned:
            value.mentions += 1
            value.at = self._tokens
            value.closes += key == last
            value.called += key == called
        self._result(value)

    def _forget(self) -> None:
        if len(self._values) > MAX_VALUES:
            recent = sorted(self._values, key=lambda key: (self._values[key].stands, self._values[key].at))
            for key in recent[: len(self._values) - MAX_VALUES // 2]:
                del self._values[key]
            for value in self._values.values():  # who remembers the forgotten remembers more with every sentence
                value.ancestors = frozenset(value.ancestors & self._values.keys())

    def look(self) -> Standing:
        """The best candidates now; there must be one that stands."""
        standing = [(key, value) for key, value in self._values.items() if value.stands]
        recent = sorted(standing, key=_came_out, reverse=True)
        strong = sorted(standing, key=_strength, reverse=True)
        kept = {id(value): (key, value) for key, value in [*strong[: KEPT - 2], *recent[:2]]}
        values = [value for _, value in standing]
        bar = _Bar(
            last=recent[0][1],
            closings=max(value.closes for value in values),
            called=max(value.called for value in values),
            results=sorted((value.results for value in values), reverse=True)[:2],
            coverage=max(value.made_of.bit_count() for value in values),
            relevance=max(value.relevance_max for value in values),
        )
        rows = [self._own(key, value, bar) for key, value in kept.values()]
        return Standing([key for key, _ in kept.values()], rows, self._shared())

    def _shared(self) -> list[float]:
        t, log = self._tokens, math.log1p
        return [
            self._used.bit_count() / max(1, len(self._asking.given)), *self._told_used,
            self._overlap, self._weighted_overlap,
            log(t - self._new_value_at), log(t - self._new_result_at), log(self._answers),
            log(t - self._concluded_at) if self._concluded_at else -1.0,
            self._writing, self._closed, self._per, self._supposed, self._asks,
            *map(log, self._cues), *[2 if count > 2 else count for count in self._cues_here],
            *map(bool, self._cues_before), *[log(t - at) if at else -1.0 for at in self._cues_at],
        ]  # fmt: skip

    def _shares_told(self) -> tuple[float, float, float]:
        """How many of a sentence's words, of those that the question consists of, something was computed with.

        The least of all sentences, the last, and their mean.
        """
        used = [len(words & self._computed_with) / len(words) for words in self._asking.told] or [1.0]
        return min(used), used[-1], sum(used) / len(used)

    def _own(self, key: Hashable, v: _Value, bar: _Bar) -> list[float]:
        t, log, asking = self._tokens, math.log1p, self._asking
        coverage, n, results = v.made_of.bit_count(), max(1, v.mentions), max(1, v.results)
        rival = bar.results[-1] if v.results == bar.results[0] and len(bar.results) > 1 else bar.results[0]
        rival = 0 if len(bar.results) == 1 else rival
        told = v.said + v.computed
        before = v.cues_before or tuple(self._cues)
        return [
            log(v.mentions), log(v.results), log(v.computed), log(v.said), log(v.closes), log(v.operand),
            log(v.carried_on), log(v.checked_back), log(v.called), v.boxed, log(v.concluded), v.overlap_max,
            v.overlap_last, v.overlap_sum / n, v.overlap_of_result, v.given, log(t - v.at), log(t - v.result_at),
            log(t - v.first), log(t - v.first_result), log(self._results - v.result_number), v is bar.last,
            key == self._latest, v.closes / max(1, bar.closings), v.called / bar.called if bar.called else 0.5,
            v.results / max(1, self._results), rival / (v.results + 1), v.operand / n, v.carried_on / results,
            v.per / n, v.supposed / n, coverage / max(1, len(asking.given)), bar.coverage - coverage,
            v.made_of & asking.last_given > 0,
            (v.made_of & asking.asked_given).bit_count() / asking.asked_given.bit_count() if asking.asked_given else -1,
            v.depth,
            len(v.ways), v.unit / n, v.currency / n, v.percent / n, asking.money - (v.currency > 0),
            bool(asking.unit) - (v.unit > 0), self._distinct - v.rank, len(v.ancestors), key == self._last_of_sentence,
            v.relevance_max, v.relevance_last, v.relevance_sum / told if told else _UNKNOWN,
            v.relevance_max - bar.relevance, v.closed_the_thinking,
            v.named / told if told else 0.0, v.misnamed / told if told else 0.0,
            *map(log, map(sub, self._cues, before)),
        ]  # fmt: skip


class _Bar(NamedTuple):
    """The best of all candidates, against which each is measured."""

    last: _Value
    closings: int
    called: int
    results: list[int]
    coverage: int
    relevance: float


def _came_out(one: tuple[Hashable, _Value]) -> int:
    return one[1].result_at


def _strength(one: tuple[Hashable, _Value]) -> tuple[float, ...]:
    v = one[1]
    return v.boxed, v.called, v.closes + v.results - 0.5 * v.carried_on, v.result_at
