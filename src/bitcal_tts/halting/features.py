"""What decoding yields for free about whether an answer is settled, kept up to date token by token in O(1).

Three sources: the values that the text has named (`halting.values`), its statements and the words between them, and the
signals of its tokens, where there are any.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from bitcal_tts.halting.ahead import Ahead
from bitcal_tts.halting.statements import Statement, StatementDetector
from bitcal_tts.halting.trail import OF_THE_SIGNALS, Trail
from bitcal_tts.halting.values import COLUMNS, KINDS, SHARED, Asking, Candidates, Look, Sentences, as_text

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
_MARKERS = re.compile("|".join(rf"(?P<{name}>\b(?:{words})\b)" for name, words in _WORDS.items()))
"""In small letters: found several times faster than where case is not heeded."""
MARKERS = tuple(_WORDS)

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
    *OF_THE_SIGNALS,
    "coarseness",
)
"""Order of the numbers that do not depend on a value."""
NAMES = (*OF_THE_TEXT, *COLUMNS)
"""Order of the numbers in a row; profiles name the ones they use. Those of `COLUMNS` need the question."""

NO_CANDIDATE = -10.0
"""In place of what is told of a candidate where none stands yet."""


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
        self._trail = Trail()
        self._ahead = Ahead.of((), "")
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
        first: int = 0,
        most: int | None = None,
    ) -> int:
        """Take tokens all at once up to the first that may end a sentence or complete a statement; how many.

        Args:
            texts: The next tokens, from `first` on; those before were taken.
            entropies: Of each of them, where they are known; the others likewise.
            logprobs: Of each of them.
            margins: Of each of them.
            first: Where to go on.
            most: Tokens at the most; by default all.
        """
        if texts is not self._ahead.texts:
            self._ahead = Ahead.of(texts, self._line)
        last = self._ahead.quiet_until(first)
        last = last if most is None else min(last, first + most)
        run = self._ahead.text_of(first, last)
        if len(self._line) + len(run) > _LONG:
            return 0
        if run and not self._skips(run, self._detector.skip):
            # A line that announces an answer: it is given where a word or a number has come to its end.
            last = next((i for i in range(first, last) if not texts[i][-1:].isalnum()), last)
            run = self._ahead.text_of(first, last)
            if run and not self._skips(run, self._detector.skip_words):
                return 0
        self._trail.add_all(entropies, logprobs, margins, first, last)
        self.tokens += last - first
        self._line += run
        self.at_sentence_end = False
        return last - first

    def _skips(self, run: str, states_nothing: Callable[[str], bool]) -> bool:
        """Whether text ends and completes nothing; then all that wait for that have taken it."""
        if self._kind is None:
            return states_nothing(run)
        if not self._sentences.may_skip(run) or not states_nothing(run):
            return False
        self._sentences.skip(run)
        return True

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
        self._trail.add(entropy, logprob, margin)
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

    def _state(self, statement: Statement) -> None:
        self._trail.state()
        self.statements += 1
        self._agreeing = self._agreeing + 1 if statement.value == self.value else 1
        self.value, self._strong = statement.value, statement.strong
        self._values.add(statement.value)
        self._redo_before_statement, self._redo_since_statement = self._redo_since_statement, False

    def _count_markers(self) -> None:
        """Markers are counted in whole lines, so that none is cut in two."""
        *lines, rest = self._line.split("\n")
        self._line = rest[-_MARKED:]
        for line in lines:
            for match in _MARKERS.finditer(line[-_MARKED:].lower()):
                name = match.lastgroup or ""
                self._counts[name] += 1
                if name == "redos":
                    self._trail.redo()
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
        return [
            self.tokens / 256,
            self.tokens / self._budget,
            at_statement,
            at_statement and self._strong,
            math.log1p(self.statements),
            math.log1p(self._agreeing),
            math.log1p(max(0, len(self._values) - 1)),
            *(math.log1p(self._counts[name]) for name in MARKERS),
            math.log1p(self._confirmations_since_redo),
            self._redo_before_statement if at_statement else self._redo_since_statement,
            *self._trail.told(self.tokens, at_statement=at_statement),
            8.0 / self._bits,
        ]
