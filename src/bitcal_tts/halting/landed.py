"""Method `landed`, the baseline: decode to the end, and where the budget runs out land as every other method does.

A method that lands its answer within the budget has an advantage over one that is cut off, which has nothing to do with
when it stops. Against `landed` it has none.
"""

from __future__ import annotations

from bitcal_tts.halting.gate import Gate


class Landed(Gate):
    """Judges nothing."""
