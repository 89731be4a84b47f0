"""How many steps a device is given at a time, and when."""

from __future__ import annotations

import math
from collections import deque

_ENOUGH = 0.015  # seconds of work that a device is given at least
_A_ROW = 4e-5  # and at least so many a row: the host has as much to do for it, however few its steps are
_LEAD = 0.004  # seconds before it is done that it is given more
_LEAD_A_ROW = 8e-6  # and so many for each row: some join then, and some are landed


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
        self._rows = 0
        self.steps = most

    def note(self, steps: int, seconds: float, rows: int) -> None:
        """So many took so long; once in a while longer, where one is captured or others use the device."""
        self._took.append(seconds / steps)
        self._rows = rows
        enough = max(_ENOUGH, _A_ROW * rows) / max(self._step, 1e-9)
        self.steps = min(self._most, math.ceil(enough))

    def patience(self, steps: int) -> float:
        """Seconds for which a device that begins with so many steps need not be given more."""
        return steps * self._step - _LEAD - _LEAD_A_ROW * self._rows

    @property
    def _step(self) -> float:
        return min(self._took, default=0.0)
