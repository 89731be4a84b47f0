"""The loop guard as a rule of its own: give up text that repeats itself exactly or does little but hesitate."""

from __future__ import annotations

from bitcal_tts.halting.controller import Controller, Decision, Step
from bitcal_tts.halting.loops import LoopGuard
from bitcal_tts.halting.policy import Action, Reason
from bitcal_tts.halting.request import RequestParameters


class Guard(Controller):
    """Escalates with reason `loop` or `hesitating`."""

    def __init__(self, parameters: RequestParameters) -> None:
        self.parameters = parameters
        self._guard = LoopGuard()
        self._tokens = 0

    def fresh(self) -> Guard:
        """The same rule for another request."""
        return Guard(self.parameters)

    def observe(self, step: Step) -> Decision:
        """Take the next step and decide."""
        self._tokens += step.n_tokens
        self._guard.feed(*(text for text, *_ in step.tokens()))
        verdict = (Action.CONTINUE, Reason.UNDECIDED)
        if self._guard.looping:
            verdict = (Action.ESCALATE, Reason.LOOP)
        elif self._guard.hesitating:
            verdict = (Action.ESCALATE, Reason.HESITATING)
        return Decision(
            *verdict, self._tokens, entropy=step.entropy, score=None if verdict[0] is Action.CONTINUE else 1.0
        )
