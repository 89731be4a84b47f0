"""The loop guard: exact repetition, in O(1) a token, and density of hesitation."""

from __future__ import annotations

import re
from functools import lru_cache

_GRAM = 6
_HESITATION = re.compile(r"^\W*(wait|hmm+|hold|but|actually|alternatively|however|maybe|perhaps|no)\b", re.IGNORECASE)


@lru_cache(maxsize=1 << 16)  # tokens come again
def _hesitates(token: str) -> bool:
    return _HESITATION.match(token) is not None


class LoopGuard:
    """Notices a text that repeats itself exactly, or does little but hesitate.

    A loop is a stretch of at least `least` tokens, two periods or more, that equals the stretch one period before it.
    The period is guessed from where the last six tokens were seen before, and kept as long as it predicts the next.

    Args:
        least: Tokens that must repeat before it counts.
        window: Tokens over which hesitation is counted.
        hesitation: Share of hesitation words in the window from which on the text counts as hesitating.
    """

    def __init__(self, *, least: int = 96, window: int = 128, hesitation: float = 0.12) -> None:
        if least < 1 or window < 1 or not 0 < hesitation <= 1:
            raise ValueError(f"need least >= 1, window >= 1, 0 < hesitation <= 1, got {least}, {window}, {hesitation}")
        self.least, self._window, self._hesitation = least, window, hesitation
        self._tokens: list[str] = []
        self._read = 0
        """Of them: those after it are read when somebody asks, many at once."""
        self._seen: dict[tuple[str, ...], int] = {}
        self._period = 0
        self._run = 0

    def feed(self, *tokens: str) -> None:
        """Take the next tokens."""
        self._tokens.extend(tokens)

    @property
    def looping(self) -> bool:
        """Whether the text is repeating itself now."""
        self._read_on()
        return self._period > 0 and self._run >= max(self.least, 2 * self._period)

    @property
    def hesitating(self) -> bool:
        """Whether the last window is dense with hesitation."""
        if len(self._tokens) < self._window:
            return False
        return sum(map(_hesitates, self._tokens[-self._window :])) >= self._hesitation * self._window

    def _read_on(self) -> None:
        tokens, seen, period, run = self._tokens, self._seen, self._period, self._run
        for n in range(self._read + 1, len(tokens) + 1):
            known = period and tokens[n - 1 - period] == tokens[n - 1]
            if known:
                run += 1
            if n < _GRAM:
                continue
            gram = tuple(tokens[n - _GRAM : n])
            before = seen.get(gram)
            seen[gram] = n
            if not known:
                period = 0 if before is None else n - before
                run = _GRAM if period else 0
        self._read, self._period, self._run = len(tokens), period, run
