"""What decoding yields for free about whether an answer is settled, kept up to date token by token in O(1).

Three sources: the values that the text has named (`halting.values`), its statements and the words between them, and the
signals of its tokens, where there are any.
"""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from bitcal_tts.halting.signals import Signal
from bitcal_tts.halting.statements import Statement, StatementDetector
from bitcal_tts.halting.values import COLUMNS, KINDS, SHARED, Asking, Candidates, Look, Sentences, as_text

WINDOW = 16
_FLOOR = -12.0  # below this a log-probability says no more
_UNLIKELY = -0.7
_MARKED = 400  # characters at the end of a line in which markers are counted
_LONG = 2000
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
_LOUD = re.compile(r"[.!?\n\\<]")

OF_THE_TEXT = (
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
"""Order of the numbers that do not depend on a value."""
NAMES = (*OF_THE_TEXT, *COLUMNS)
"""Order of the numbers in a row; profiles name the ones they use. Those of `COLUMNS` need the question."""

NO_CANDIDATE = -10.0
"""In place of what is told of a candidate where none stands yet."""


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
_ALL_SIGNALS = frozenset({Signal.ENTROPY, Signal.LOGPROB, Signal.MARGIN})
_COLUMNS_OF = {
    signal: [i for i, name in enumerate(OF_THE_TEXT) if signal_of(name) is signal]
    for signal in (Signal.ENTROPY, Signal.LOGPROB, Signal.MARGIN)
}


@lru_cache(maxsize=1 << 16)  # tokens come again
def _may_end(token: str) -> bool:
    """Whether a token may end a sentence or a line, or belong to a box or a tag."""
    return _LOUD.search(token) is not None


class Features:
    """The state of one request: everything a profile may look at.

    Args:
        detector: Finds statements.
        bits: Served weight precision.
        budget: Hard cap on new tokens.
        question: What was asked; without it the text's values are not looked at.
        values: Their kind, by its name in `KINDS`; None where answers are any text.
    """

    def __init__(
        self,
        detector: StatementDetector,
        *,
        bits: float,
        budget: int,
        question: str | None = None,
        values: str | None = None,
    ) -> None:
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
        self._absent: frozenset[Signal] = frozenset()
        self._unread: list[tuple[float, float, float]] = []
        """Signals since anybody asked: extremes are found for many at once."""
        self._entropies: deque[float] = deque(maxlen=WINDOW)
        self._recent: deque[tuple[float, float]] = deque(maxlen=8)
        self._logprob_sum = 0.0
        self._logprob_min = 0.0
        self._since_statement = _Extremes()
        self._last = _Extremes()
        self._since_redo = _Extremes()
        self._at: tuple[float, float] = (0.0, 0.0)
        self.at_sentence_end = False
        """Whether the last token ended a sentence, and a candidate stands."""
        self._sentences = Sentences()
        self._question = question
        self._kind = None if question is None or values is None else KINDS[values]

    @cached_property
    def _candidates(self) -> Candidates | None:
        """Values of the text; the question is read when there is a text to go with it."""
        if self._question is None or self._kind is None:
            return None
        return Candidates(Asking(self._question), self._kind)

    def skip(
        self,
        texts: Sequence[str],
        entropies: Sequence[float] | None,
        logprobs: Sequence[float] | None,
        margins: Sequence[float] | None,
    ) -> int:
        """Take tokens all at once up to the first that may end a sentence or complete a statement; how many.

        Args:
            texts: The next tokens.
            entropies: Of each of them, where they are known; the others likewise.
            logprobs: Of each of them.
            margins: Of each of them.
        """
        n = next((i for i, text in enumerate(texts) if _may_end(text)), len(texts))
        run = "".join(texts[:n])
        if len(self._line) + len(run) > _LONG:
            return 0
        if n and not self._skips(run, self._detector.skip):
            # A line that announces an answer: it is given where a word or a number has come to its end.
            n = next((i for i, text in enumerate(texts[:n]) if not text[-1:].isalnum()), n)
            run = "".join(texts[:n])
            if n and not self._skips(run, self._detector.skip_words):
                return 0
        if entropies is not None and logprobs is not None and margins is not None:
            self._unread += zip(entropies[:n], logprobs[:n], margins[:n], strict=True)
        else:
            for i in range(n):
                self._take_signals(
                    *(None if column is None else column[i] for column in (entropies, logprobs, margins))
                )
        self.tokens += n
        self._line += run
        self.at_sentence_end = False
        return n

    def _skips(self, run: str, states_nothing: Callable[[str], bool]) -> bool:
        """Whether text ends and completes nothing; then all that wait for that have taken it."""
        if self._kind is None:
            return states_nothing(run)
        if not self._sentences.may_skip(run) or not states_nothing(run):
            return False
        self._sentences.skip(run)
        return True

    def _take_signals(self, entropy: float | None, logprob: float | None, margin: float | None) -> None:
        if entropy is logprob is margin is None:
            self._absent = _ALL_SIGNALS
        else:
            self._unread.append(self._known(entropy, logprob, margin))

    def update(
        self,
        text: str,
        entropy: float | None,
        logprob: float | None,
        margin: float | None,
        *,
        writing: bool = False,
    ) -> Statement | None:
        """Take a token; the statement that it completes, or None. What is not known of one token is not known.

        Args:
            text: The token.
            entropy: Of the distribution that it was chosen from.
            logprob: Its own.
            margin: Between the two likeliest.
            writing: Whether the thinking is over.
        """
        self.tokens += 1
        self._take_signals(entropy, logprob, margin)
        self._line += text
        if "\n" in text or len(self._line) > _LONG:
            self._count_markers()
        self.at_sentence_end = False
        if self._candidates is not None:
            for sentence in self._sentences.feed(text):
                stands = self._candidates.feed(sentence, self.tokens, writing=writing)
                self.at_sentence_end = stands or self.at_sentence_end
        statement = self._detector.feed(text)
        if statement is not None:
            self._state(statement)
        return statement

    def _known(self, entropy: float | None, logprob: float | None, margin: float | None) -> tuple[float, float, float]:
        """What takes the place of unknown numbers inside; the vector tells them as unknown."""
        if entropy is not None and logprob is not None and margin is not None:
            return entropy, logprob, margin
        values = {Signal.ENTROPY: entropy, Signal.LOGPROB: logprob, Signal.MARGIN: margin}
        self._absent = self._absent | {name for name, value in values.items() if value is None}
        return entropy or 0.0, logprob or 0.0, margin or 0.0

    def _read_signals(self) -> None:
        """Bring everything that is made of signals up to date."""
        if not self._unread:
            return
        entropies, logprobs, margins = zip(*self._unread, strict=True)
        self._unread.clear()
        if min(logprobs) < _FLOOR:
            logprobs = tuple(max(logprob, _FLOOR) for logprob in logprobs)
        self._entropies.extend(entropies)
        self._recent.extend(zip(logprobs, margins, strict=True))
        for logprob in logprobs:  # one by one: the sum does not depend on how many come at once
            self._logprob_sum += logprob
        self._logprob_min = min(self._logprob_min, *logprobs)
        self._since_statement.add(entropies, logprobs, margins)
        self._since_redo.add(entropies, logprobs, margins)

    def _state(self, statement: Statement) -> None:
        self._read_signals()
        self.statements += 1
        self._agreeing = self._agreeing + 1 if statement.value == self.value else 1
        self.value, self._strong = statement.value, statement.strong
        self._values.add(statement.value)
        if self._recent:
            self._at = (min(lp for lp, _ in self._recent), min(m for _, m in self._recent))
        self._last, self._since_statement = self._since_statement, _Extremes()
        self._redo_before_statement, self._redo_since_statement = self._redo_since_statement, False

    def _count_markers(self) -> None:
        """Markers are counted in whole lines, so that none is cut in two."""
        self._read_signals()
        *lines, rest = self._line.split("\n")
        self._line = rest[-_MARKED:]
        for line in lines:
            for match in _MARKERS.finditer(line[-_MARKED:]):
                name = match.lastgroup or ""
                self._counts[name] += 1
                if name == "redos":
                    self._since_redo = _Extremes()
                    self._confirmations_since_redo = 0
                    self._redo_since_statement = True
                elif name == "confirmations":
                    self._confirmations_since_redo += 1

    def look(self, *, at_statement: bool) -> Look:
        """The values that the text may stand for now, and a row of `NAMES` for each; NaN is what cannot be known."""
        values: Sequence[Any] = [] if self.value is None else [self.value]
        own: Any = math.nan if self._candidates is None else NO_CANDIDATE
        shared: Any = own
        if self._candidates is not None and self._candidates.stand:
            values, own, shared = self._candidates.look()
        rows = np.empty((max(1, len(values)), len(NAMES)), dtype=np.float32)
        rows[:, : len(OF_THE_TEXT)] = self.of_the_text(at_statement=at_statement)
        rows[:, len(OF_THE_TEXT) : -len(SHARED)] = own
        rows[:, -len(SHARED) :] = shared
        return Look(values, rows)

    def text_of(self, value: Any) -> str:
        """A value of a look as an answer is written."""
        return as_text(value, self._kind)

    def of_the_text(self, *, at_statement: bool) -> list[float]:
        """What does not depend on a value, in the order of `OF_THE_TEXT`; NaN is what cannot be known.

        At a statement, `since` reaches back to the one before.
        """
        self._read_signals()
        since = self._last if at_statement else self._since_statement
        redone = self._redo_before_statement if at_statement else self._redo_since_statement
        redo = self._since_redo
        told: list[float] = [
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
        for signal in self._absent:
            for column in _COLUMNS_OF[signal]:
                told[column] = math.nan
        return told


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

    def add(self, entropies: Sequence[float], logprobs: Sequence[float], margins: Sequence[float]) -> None:
        """Take the next tokens; at least one."""
        self.count += len(entropies)
        for entropy in entropies:
            self.entropy_sum += entropy
        self.entropy_max = max(self.entropy_max, *entropies)
        self.logprob_min = min(self.logprob_min, *logprobs)
        self.margin_min = min(self.margin_min, *margins)
        if self.unlikely or min(logprobs) < _UNLIKELY:
            self.unlikely += sum(logprob < _UNLIKELY for logprob in logprobs)
