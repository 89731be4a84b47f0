"""The loop guard as a rule of its own: give up text that repeats itself exactly or does little but hesitate."""

from __future__ import annotations

from typing import Any

from bitcal_tts.halting.complete import GateParameters
from bitcal_tts.halting.controller import Decision, Step
from bitcal_tts.halting.gate import tokens_of
from bitcal_tts.halting.loops import LoopGuard
from bitcal_tts.halting.policy import Action, Reason


class Guard:
    """Escalates with reason `loop` or `hesitating`."""

    def __init__(self, parameters: GateParameters) -> None:
        self.parameters = parameters
        self._guard = LoopGuard()
        self._tokens = 0

    def fresh(self) -> Guard:
        """The same rule for another request."""
        return Guard(self.parameters)

    def observe(self, step: Step) -> Decision:
        """Take the next step and decide."""
        self._tokens += step.n_tokens
        for text, *_ in tokens_of(step):
            self._guard.feed(text)
        verdict: tuple[Action, Reason] = (Action.CONTINUE, Reason.UNDECIDED)
        if self._guard.looping:
            verdict = (Action.ESCALATE, Reason.LOOP)
        elif self._guard.hesitating:
            verdict = (Action.ESCALATE, Reason.HESITATING)
        rest: Any = (self._tokens, 0.0, step.entropy, 0.0, 0.0)
        return Decision(*verdict, *rest)
