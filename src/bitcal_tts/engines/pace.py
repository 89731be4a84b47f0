"""How many steps a device is given at a time, and when."""

from __future__ import annotations

import math
from collections import deque

_ENOUGH = 0.015  # seconds of work that a device is given at least
_A_ROW = 3e-5  # and at least so many a row: the host has as much to do for it, however few its steps are
_LEAD = 0.005  # seconds before it is done that it is given more


class Pace:
    """Enough for the host to look at the last steps meanwhile, and no more.

    What is decoded for a row past its end is in vain, and who waits for its slot waits. A small model takes a
    millisecond a step, and the host looks at many steps together; one of billions of weights takes as long as the host.

    Args:
        most: Steps.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._took: deque[float] = deque(maxlen=4)
        self.steps = most

    def note(self, steps: int, seconds: float, rows: int) -> None:
        """So many took so long; once in a while longer, where one is captured or others use the device."""
        self._took.append(seconds / steps)
        enough = max(_ENOUGH, _A_ROW * rows) / max(self._step, 1e-9)
        self.steps = min(self._most, 1 << math.ceil(math.log2(max(1.0, enough))))

    def patience(self, steps: int) -> float:
        """Seconds for which a device that begins with so many steps need not be given more."""
        return steps * self._step - _LEAD

    @property
    def _step(self) -> float:
        return min(self._took, default=0.0)
