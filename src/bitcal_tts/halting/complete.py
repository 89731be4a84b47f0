"""Method `complete`: stop as soon as the answer after the marker is complete. Nothing is fitted."""

from __future__ import annotations

from bitcal_tts.halting.controller import Controller, Decision, Step
from bitcal_tts.halting.policy import Action, Reason
from bitcal_tts.halting.reading import Reading
from bitcal_tts.halting.request import RequestParameters


class Complete(Controller):
    """Stops at the first answer that is complete."""

    def __init__(self, parameters: RequestParameters) -> None:
        self.parameters = parameters
        self._tokens = 0
        self._reading = Reading(parameters.format, parameters.opening, parameters.close)

    def fresh(self) -> Complete:
        """The same method for another request."""
        return Complete(self.parameters)

    def begin(self, prefix: str, question: str | None) -> None:
        """Take the text that stands before the first token."""
        self._reading.feed(prefix)

    def observe(self, step: Step) -> Decision:
        """Take the next step and decide."""
        self._tokens += step.n_tokens
        self._reading.feed(step.text)
        if self._reading.answered:
            return Decision(Action.STOP, Reason.COMPLETE, self._tokens, entropy=step.entropy, score=1.0)
        return Decision(Action.CONTINUE, Reason.UNDECIDED, self._tokens, entropy=step.entropy)
