"""The loop guard: exact repetition and density of hesitation, both in O(1) a token."""

from __future__ import annotations

import re
from collections import deque
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
        self.least, self._hesitation = least, hesitation
        self._history: list[str] = []
        self._seen: dict[tuple[str, ...], int] = {}
        self._tokens = 0
        self._period = 0
        self._run = 0
        self._window: deque[bool] = deque(maxlen=window)
        self._hesitations = 0

    def feed(self, token: str) -> None:
        """Take the next token."""
        self._tokens += 1
        window, history = self._window, self._history
        hesitates = _hesitates(token)
        self._hesitations += hesitates - (len(window) == window.maxlen and window[0])
        window.append(hesitates)
        history.append(token)
        known = self._period and history[-1 - self._period] == token
        if known:
            self._run += 1
        if self._tokens < _GRAM:
            return
        gram = tuple(history[-_GRAM:])
        before = self._seen.get(gram)
        self._seen[gram] = self._tokens
        if not known:
            self._period = 0 if before is None else self._tokens - before
            self._run = _GRAM if self._period else 0

    @property
    def looping(self) -> bool:
        """Whether the text is repeating itself now."""
        return self._period > 0 and self._run >= max(self.least, 2 * self._period)

    @property
    def hesitating(self) -> bool:
        """Whether the last window is dense with hesitation."""
        return len(self._window) == self._window.maxlen and self._hesitations >= self._hesitation * len(self._window)
