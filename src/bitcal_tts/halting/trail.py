"""What the signals of a text's tokens have been along it: means and extremes, kept up to date in O(1) a token."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from functools import reduce
from operator import add

from bitcal_tts.halting.signals import Signal

WINDOW = 16
_VALUE = 8  # tokens that a stated value is judged by
_FLOOR = -12.0  # below this a log-probability says no more
_UNLIKELY = -0.7
_ALL = frozenset({Signal.ENTROPY, Signal.LOGPROB, Signal.MARGIN})

OF_THE_SIGNALS = (
    "entropy_window",
    "entropy_since_statement",
    "entropy_max_since_statement",
    "logprob_mean",
    "logprob_min",
    "logprob_min_since_redo",
    "logprob_min_since_statement",
    "logprob_min_value",
    "probability_min_since_redo",
    "unlikely_since_redo",
    "margin_min_since_redo",
    "margin_min_since_statement",
    "margin_min_value",
)
"""What is told of them, in order."""
_MADE_OF = (
    ("entropy_", Signal.ENTROPY),
    ("logprob_", Signal.LOGPROB),
    ("probability_", Signal.LOGPROB),
    ("unlikely_", Signal.LOGPROB),
    ("margin_", Signal.MARGIN),
)


def signal_of(name: str) -> Signal | None:
    """The signal that a feature is made of; None where the text is enough."""
    return next((signal for prefix, signal in _MADE_OF if name.startswith(prefix)), None)


_COLUMNS_OF = {signal: [i for i, name in enumerate(OF_THE_SIGNALS) if signal_of(name) is signal] for signal in _ALL}


class Trail:
    """The signals of one text. What is not known of one token is not known of the text.

    Numbers are added up one by one, so that a sum does not depend on how many come at once.
    """

    def __init__(self) -> None:
        self._absent: frozenset[Signal] = frozenset()
        self._unread: tuple[list[float], list[float], list[float]] = ([], [], [])
        """Entropies, log-probabilities and margins since anybody asked: extremes are found for many at once."""
        self._entropies: deque[float] = deque(maxlen=WINDOW)
        self._recent: deque[tuple[float, float]] = deque(maxlen=_VALUE)
        self._logprob_sum = 0.0
        self._logprob_min = 0.0
        self._since_statement = _Stretch()
        self._before_statement = _Stretch()
        self._since_redo = _Stretch()
        self._value = (0.0, 0.0)
        """The smallest log-probability and margin of the tokens that wrote the last stated value."""

    def add(self, entropy: float | None, logprob: float | None, margin: float | None) -> None:
        """Take the next token's."""
        if entropy is None or logprob is None or margin is None:
            values = {Signal.ENTROPY: entropy, Signal.LOGPROB: logprob, Signal.MARGIN: margin}
            self._absent = self._absent | {name for name, value in values.items() if value is None}
            if self._absent == _ALL:
                return
        entropies, logprobs, margins = self._unread
        entropies.append(entropy or 0.0)
        logprobs.append(logprob or 0.0)
        margins.append(margin or 0.0)

    def add_all(
        self,
        entropies: Sequence[float] | None,
        logprobs: Sequence[float] | None,
        margins: Sequence[float] | None,
        first: int,
        last: int,
    ) -> None:
        """Take those of some tokens, from `first` to before `last`, all at once."""
        if entropies is not None and logprobs is not None and margins is not None:
            for waiting, column in zip(self._unread, (entropies, logprobs, margins), strict=True):
                waiting += column[first:last]
            return
        for i in range(first, last):
            self.add(*(None if column is None else column[i] for column in (entropies, logprobs, margins)))

    def state(self) -> None:
        """A value was stated here."""
        self._read()
        if self._recent:
            self._value = (min(lp for lp, _ in self._recent), min(m for _, m in self._recent))
        self._before_statement, self._since_statement = self._since_statement, _Stretch()

    def redo(self) -> None:
        """The text takes back here what it has done."""
        self._read()
        self._since_redo = _Stretch()

    def told(self, tokens: int, *, at_statement: bool) -> list[float]:
        """The numbers of `OF_THE_SIGNALS` after so many tokens; NaN is what cannot be known.

        At a statement, `since` reaches back to the one before.
        """
        self._read()
        since = self._before_statement if at_statement else self._since_statement
        redo = self._since_redo
        told = [
            sum(self._entropies) / max(1, len(self._entropies)),
            since.entropy_sum / max(1, since.count),
            since.entropy_max,
            self._logprob_sum / max(1, tokens),
            self._logprob_min,
            redo.logprob_min,
            since.logprob_min,
            self._value[0],
            math.exp(redo.logprob_min),
            math.log1p(redo.unlikely),
            min(redo.margin_min, 10.0),
            min(since.margin_min, 10.0),
            min(self._value[1], 10.0),
        ]
        for signal in self._absent:
            for column in _COLUMNS_OF[signal]:
                told[column] = math.nan
        return told

    def _read(self) -> None:
        """Bring everything up to date."""
        entropies, logprobs, margins = self._unread
        if not entropies:
            return
        self._unread = ([], [], [])
        if min(logprobs) < _FLOOR:
            logprobs = [max(logprob, _FLOOR) for logprob in logprobs]
        self._entropies.extend(entropies)
        self._recent.extend(zip(logprobs[-_VALUE:], margins[-_VALUE:], strict=True))
        self._logprob_sum = reduce(add, logprobs, self._logprob_sum)
        entropy_max, logprob_min, margin_min = max(entropies), min(logprobs), min(margins)
        unlikely = sum(logprob < _UNLIKELY for logprob in logprobs) if logprob_min < _UNLIKELY else 0
        self._logprob_min = min(self._logprob_min, logprob_min)
        for stretch in (self._since_statement, self._since_redo):
            stretch.count += len(entropies)
            stretch.entropy_sum = reduce(add, entropies, stretch.entropy_sum)
            stretch.entropy_max = max(stretch.entropy_max, entropy_max)
            stretch.logprob_min = min(stretch.logprob_min, logprob_min)
            stretch.margin_min = min(stretch.margin_min, margin_min)
            stretch.unlikely += unlikely


class _Stretch:
    """Sums and extremes over a stretch of text."""

    __slots__ = ("count", "entropy_max", "entropy_sum", "logprob_min", "margin_min", "unlikely")

    def __init__(self) -> None:
        self.count = self.unlikely = 0
        self.entropy_sum = self.entropy_max = self.logprob_min = 0.0
        self.margin_min = math.inf
