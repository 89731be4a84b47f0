"""Method `complete`: stop as soon as the answer after the marker is complete. Nothing is fitted."""

from __future__ import annotations

from bitcal_tts.halting.controller import Controller, Decision, Step
from bitcal_tts.halting.policy import Action, Reason
from bitcal_tts.halting.reading import Reading, Stage
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
        self._reading.feed(step.text)
        return self._decided(step.n_tokens, step.entropy)

    def ahead(self) -> int:
        """As many as there are."""
        most: int = self.parameters.budget
        return most

    def skim(self, step: Step) -> tuple[int, Decision]:
        """Take tokens one by one up to the one that completes an answer."""
        texts = [step.text] if step.token_texts is None else step.token_texts
        stages = self._reading.stages(texts)
        n = 1 + stages.index(Stage.OVER) if self._reading.answered and len(texts) == step.n_tokens else step.n_tokens
        return n, self._decided(n, step.entropy if step.entropies is None else step.entropies[n - 1])

    def _decided(self, n: int, entropy: float | None) -> Decision:
        self._tokens += n
        if self._reading.answered:
            return Decision(Action.STOP, Reason.COMPLETE, self._tokens, entropy=entropy, score=1.0)
        return Decision(Action.CONTINUE, Reason.UNDECIDED, self._tokens, entropy=entropy)
