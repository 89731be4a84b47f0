"""What decoding yields for free about whether an answer is settled, kept up to date token by token in O(1)."""

from __future__ import annotations

import math
import re
from collections import deque
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitcal_tts.halting.signals import Signal
from bitcal_tts.halting.statements import Statement, StatementDetector

WINDOW = 16
_FLOOR = -12.0  # below this a log-probability says no more
_UNLIKELY = -0.7
_WORDS = {
    "checks": r"check\w*|verif\w+|confirm\w*|double-check\w*|make\s+sure|go\s+over|review\w*|once\s+more|test\s+it"
    r"|is\s+that\s+right",
    "redos": r"redo\w*|mistake|wrong|error|starting\s+over|back\s+to\s+the\s+start|fix\w*|correcting|not\s+right"
    r"|do\s+it\s+again|is\s+off|not\s+[-\d]",
    "hesitations": r"wait|hmm+|hold\s+on|but|actually|alternatively|however|maybe|perhaps",
    "confirmations": r"ok|okay|holds?|consistent|agrees|checks\s+out|good|fine|yes|works|all\s+(?:steps|right)"
    r"|no\s+mistake|are\s+right|correct",
}
_MARKERS = re.compile("|".join(rf"(?P<{name}>\b(?:{words})\b)" for name, words in _WORDS.items()), re.IGNORECASE)
MARKERS = tuple(_WORDS)

NAMES = (
    "tokens",
    "share_of_budget",
    "at_statement",
    "strong",
    "statements",
    "agreeing",
    "other_values",
    *MARKERS,
    "confirmations_since_redo",
    "redo_since_statement",
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
    "coarseness",
)
"""Order of the numbers in a vector; profiles name the ones they use."""


def signal_of(name: str) -> Signal | None:
    """The signal that a feature is made of; None where the text is enough."""
    for prefix, signal in _MADE_OF:
        if name.startswith(prefix):
            return signal
    return None


_MADE_OF = (
    ("entropy_", Signal.ENTROPY),
    ("logprob_", Signal.LOGPROB),
    ("probability_", Signal.LOGPROB),
    ("unlikely_", Signal.LOGPROB),
    ("margin_", Signal.MARGIN),
)
_COLUMNS_OF = {
    signal: [i for i, name in enumerate(NAMES) if signal_of(name) is signal]
    for signal in (Signal.ENTROPY, Signal.LOGPROB, Signal.MARGIN)
}


class Features:
    """The state of one request: everything a profile may look at.

    Args:
        detector: Finds statements.
        bits: Served weight precision.
        budget: Hard cap on new tokens.
    """

    def __init__(self, detector: StatementDetector, *, bits: float, budget: int) -> None:
        self._detector = detector.fresh()
        self._bits, self._budget = bits, budget
        self.tokens = 0
        self.statements = 0
        self.value: str | None = None
        self._strong = False
        self._agreeing = 0
        self._values: set[str] = set()
        self._line = ""
        self._counts = dict.fromkeys(MARKERS, 0)
        self._confirmations_since_redo = 0
        self._redo_since_statement = False
        self._redo_before_statement = False
        self._absent: set[Signal] = set()
        self._entropies: deque[float] = deque(maxlen=WINDOW)
        self._recent: deque[tuple[float, float]] = deque(maxlen=8)
        self._logprob_sum = 0.0
        self._logprob_min = 0.0
        self._since_statement = _Extremes()
        self._last = _Extremes()
        self._since_redo = _Extremes()
        self._at: tuple[float, float] = (0.0, 0.0)

    def update(self, text: str, entropy: float | None, logprob: float | None, margin: float | None) -> Statement | None:
        """Take a token; the statement that it completes, or None. What is not known of one token is not known."""
        self.tokens += 1
        if entropy is None or logprob is None or margin is None:
            entropy, logprob, margin = self._note_absent(entropy, logprob, margin)
        logprob = max(logprob, _FLOOR)
        self._entropies.append(entropy)
        self._recent.append((logprob, margin))
        self._logprob_sum += logprob
        self._logprob_min = min(self._logprob_min, logprob)
        self._since_statement.add(entropy, logprob, margin)
        self._since_redo.add(entropy, logprob, margin)
        self._count_markers(text)
        statement = self._detector.feed(text)
        if statement is not None:
            self._state(statement)
        return statement

    def _note_absent(self, *values: float | None) -> tuple[float, float, float]:
        """What takes the place of unknown numbers inside; the vector tells them as unknown."""
        names = (Signal.ENTROPY, Signal.LOGPROB, Signal.MARGIN)
        self._absent |= {name for name, value in zip(names, values, strict=True) if value is None}
        entropy, logprob, margin = (0.0 if value is None else value for value in values)
        return entropy, logprob, margin

    def _state(self, statement: Statement) -> None:
        self.statements += 1
        self._agreeing = self._agreeing + 1 if statement.value == self.value else 1
        self.value, self._strong = statement.value, statement.strong
        self._values.add(statement.value)
        self._at = (min(lp for lp, _ in self._recent), min(m for _, m in self._recent))
        self._last, self._since_statement = self._since_statement, _Extremes()
        self._redo_before_statement, self._redo_since_statement = self._redo_since_statement, False

    def _count_markers(self, text: str) -> None:
        """Markers are counted in whole lines, so that none is cut in two."""
        self._line += text
        while "\n" in self._line:
            line, _, self._line = self._line.partition("\n")
            for match in _MARKERS.finditer(line[-400:]):
                name = match.lastgroup or ""
                self._counts[name] += 1
                if name == "redos":
                    self._since_redo = _Extremes()
                    self._confirmations_since_redo = 0
                    self._redo_since_statement = True
                elif name == "confirmations":
                    self._confirmations_since_redo += 1
        if len(self._line) > 400:
            self._line = self._line[-400:]

    def vector(self, *, at_statement: bool) -> NDArray[np.float64]:
        """The features now, in the order of `NAMES`; NaN is what cannot be known.

        At a statement, `since` reaches back to the one before.
        """
        since = self._last if at_statement else self._since_statement
        redone = self._redo_before_statement if at_statement else self._redo_since_statement
        redo = self._since_redo
        values: list[Any] = [
            self.tokens / 256,
            self.tokens / self._budget,
            at_statement,
            at_statement and self._strong,
            math.log1p(self.statements),
            math.log1p(self._agreeing),
            math.log1p(max(0, len(self._values) - 1)),
            *(math.log1p(self._counts[name]) for name in MARKERS),
            math.log1p(self._confirmations_since_redo),
            redone,
            sum(self._entropies) / max(1, len(self._entropies)),
            since.entropy_sum / max(1, since.count),
            since.entropy_max,
            self._logprob_sum / max(1, self.tokens),
            self._logprob_min,
            redo.logprob_min,
            since.logprob_min,
            self._at[0],
            math.exp(redo.logprob_min),
            math.log1p(redo.unlikely),
            min(redo.margin_min, 10.0),
            min(since.margin_min, 10.0),
            min(self._at[1], 10.0),
            8.0 / self._bits,
        ]
        vector = np.array(values, dtype=np.float64)
        for signal in self._absent:
            vector[_COLUMNS_OF[signal]] = np.nan
        return vector


class _Extremes:
    """Extremes of the signals over a stretch of text."""

    __slots__ = ("count", "entropy_max", "entropy_sum", "logprob_min", "margin_min", "unlikely")

    def __init__(self) -> None:
        self.count = 0
        self.entropy_sum = 0.0
        self.entropy_max = 0.0
        self.logprob_min = 0.0
        self.margin_min = math.inf
        self.unlikely = 0

    def add(self, entropy: float, logprob: float, margin: float) -> None:
        self.count += 1
        self.entropy_sum += entropy
        self.entropy_max = max(self.entropy_max, entropy)
        self.logprob_min = min(self.logprob_min, logprob)
        self.margin_min = min(self.margin_min, margin)
        self.unlikely += logprob < _UNLIKELY
