"""What one request takes while an autopilot learns from all of them, and what it is to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from bitcal_tts.halting.exchange import WouldBe
from bitcal_tts.halting.session import Session
from bitcal_tts.halting.settled import Settled
from bitcal_tts.serving.observing import Observed

if TYPE_CHECKING:
    from bitcal_tts.serving.pilot import Pilot


class Ended(Protocol):
    """A request that ran to its end and can still be asked what a stop would have answered."""

    async def if_stopped(self, where: WouldBe) -> tuple[int, str | None, int]:
        """Tokens and answer of a stop, and tokens that finding out took."""
        ...


@dataclass(frozen=True)
class Admitted:
    """What becomes of a request: `watched` runs to its end and is learned from, `stopped` is, `plain` runs to its end.

    Attributes:
        role: One of the three.
        phase: Of the autopilot.
        number: Of a watched one.
        method: What halts a stopped one.
    """

    role: str
    phase: str
    number: int = -1
    method: Settled | None = None


class Course:
    """What one request takes: a session, and where it is the autopilot's, what it is to it.

    Args:
        session: Decides.
        pilot: Learns from it, where it does.
        admitted: What becomes of it.
        observed: Looks at it, where it is watched.
    """

    def __init__(
        self,
        session: Session,
        pilot: Pilot | None = None,
        admitted: Admitted | None = None,
        observed: Observed | None = None,
    ) -> None:
        self.session, self.admitted = session, admitted
        self.cap: int | None = None
        """Most tokens in all, where another server goes on with what is not settled; else the session has them all."""
        self.looks: list[tuple[int, float]] = []
        """Tokens and scores of looks that nobody has been told of yet."""
        self._pilot, self._observed = pilot, observed

    @property
    def method(self) -> str:
        """What halts it; `autopilot` where nothing does yet."""
        stopped = self.admitted is None or self.admitted.role == "stopped"
        return str(self.session.method.parameters.name) if stopped else "autopilot"

    def leave(self, ended: Ended) -> None:
        """It has come to its end, or has been given up."""
        pilot, self._pilot = self._pilot, None
        if pilot is None or self.admitted is None:
            return
        if not self.session.over:
            pilot.unfinished(self.admitted)
            return
        pilot.spent(self.admitted, self.session.outcome.tokens)
        if self._observed is not None:
            pilot.ended(self.admitted, (self._observed, ended))
