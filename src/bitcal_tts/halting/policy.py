"""Actions, reasons, and the ordered case table (Eq. 6, Algorithm 1)."""

from __future__ import annotations

from typing import NamedTuple

from bitcal_tts.halting.parameters import Parameters
from bitcal_tts.halting.words import Word


class Action(Word):
    """What the engine should do next."""

    CONTINUE = "continue"
    STOP = "stop"
    ESCALATE = "escalate"


class Reason(Word):
    """Why an action was chosen."""

    FIXED = "fixed"
    """The method never halts."""
    BELOW_FLOOR = "below_floor"
    """Fewer than `min_tokens` so far."""
    TAIL = "tail"
    """The marker was seen; the confirmation horizon is still running."""
    TAIL_SATISFIED = "tail_satisfied"
    """The marker was seen and the confirmation horizon is over."""
    BUFFER = "buffer"
    """Fewer than `min_remaining` tokens are left."""
    HIGH_ENTROPY = "high_entropy"
    """The model is lost: entropy at or above `escalate_entropy`."""
    CONFIDENT = "confident"
    """Low entropy and high confidence."""
    UNDECIDED = "undecided"
    """None of the above."""
    COMPLETE = "answer_complete"
    """`complete`: an answer stands after the marker and can no longer change."""
    SETTLED = "settled"
    """`settled`: the fitted score of a stated answer reached its threshold."""
    EXIT = "exit"
    """A peer's rule: its statistic reached its threshold."""
    RESERVE = "reserve"
    """The budget is down to what writing the answer may take."""
    LOOP = "loop"
    """The text repeats itself exactly."""
    PROBING = "probing"
    """The method waits for what it asked the model."""
    HESITATING = "hesitating"
    """The text is dense with hesitation: wait, but, hmm, ..."""


class Verdict(NamedTuple):
    """An action and why."""

    action: Action
    reason: Reason


_FIXED = Verdict(Action.CONTINUE, Reason.FIXED)
_BELOW_FLOOR = Verdict(Action.CONTINUE, Reason.BELOW_FLOOR)
_TAIL = Verdict(Action.CONTINUE, Reason.TAIL)
_TAIL_SATISFIED = Verdict(Action.STOP, Reason.TAIL_SATISFIED)
_BUFFER = Verdict(Action.STOP, Reason.BUFFER)
_HIGH_ENTROPY = Verdict(Action.ESCALATE, Reason.HIGH_ENTROPY)
_CONFIDENT = Verdict(Action.STOP, Reason.CONFIDENT)
_UNDECIDED = Verdict(Action.CONTINUE, Reason.UNDECIDED)


def decide(p: Parameters, *, tokens: int, marker_at: int | None, entropy: float, confidence: float) -> Verdict:
    """The case table, in the paper's order.

    Args:
        p: The method's parameters.
        tokens: T_t, tokens generated so far.
        marker_at: T*, the count at the step where the marker first showed, or None.
        entropy: H_t in nats.
        confidence: c_t.
    """
    if not p.halts:
        return _FIXED
    if tokens < p.min_tokens:
        return _BELOW_FLOOR
    if marker_at is not None:
        return _TAIL if tokens - marker_at < p.tail_tokens else _TAIL_SATISFIED
    if p.budget - tokens < p.min_remaining:
        return _BUFFER
    if entropy >= p.escalate_entropy:
        return _HIGH_ENTROPY
    if entropy <= p.stop_entropy and confidence >= p.stop_confidence:
        return _CONFIDENT
    return _UNDECIDED
