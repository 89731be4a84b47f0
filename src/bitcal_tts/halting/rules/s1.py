"""s1's budget forcing (simplescaling/s1), the part that ends thinking: a cap on it, then the answer is cued.

Deviations: the cue is the task's own in place of `Final Answer:`. The other part, appending "Wait" where the model
would end by itself, writes text that no recording holds and is not ported.
"""

from __future__ import annotations

from bitcal_tts.halting.controller import Step
from bitcal_tts.halting.reading import Stage
from bitcal_tts.halting.rules.truncate import Truncate


class S1(Truncate):
    """The cap counts all tokens up to here, and acts inside the thinking only."""

    def boundary(self, step: Step) -> float | None:
        """Tokens so far; None outside of the thinking."""
        if self.parameters.close is not None and step.stage is not Stage.THINKING:
            return None
        return float(self.tokens)
