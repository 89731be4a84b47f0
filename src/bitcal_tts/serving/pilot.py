"""The autopilot: earns a promise from the traffic itself, keeps measuring it, and takes it back where it fails.

It begins by letting everything run to its end. Of a sampled share it notes what `settled` would have seen; a scorer is
fitted on that, and from then on would-be stops of the sampled share are tried as side requests: a stop is lost where it
answers otherwise than the whole request did. When losses are proven to be rarer than the risk, requests are stopped. A
promise that saves little stands while a scorer from more requests is tried. A share runs to its end for ever, and is
what the promise and the savings are measured by.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from anyio import CapacityLimiter, to_thread
from anyio.abc import TaskGroup

from bitcal_tts.calibration.anytime import Alarm, Mean
from bitcal_tts.calibration.recording import Walker
from bitcal_tts.calibration.store import save_profile
from bitcal_tts.engines.wire import ServerError
from bitcal_tts.halting.controller import Decision
from bitcal_tts.halting.methods import build_method, to_the_end
from bitcal_tts.halting.session import Session
from bitcal_tts.halting.settled import Settled
from bitcal_tts.halting.signals import TEXT_ONLY, Signals
from bitcal_tts.halting.words import percent
from bitcal_tts.serving.course import Admitted, Course, Ended
from bitcal_tts.serving.memory import Memory
from bitcal_tts.serving.observing import Observed, spread
from bitcal_tts.serving.promise import profile_of
from bitcal_tts.serving.rounds import Kept, Round, Tried, fit_round
from bitcal_tts.serving.state import Setting, State, Terms
from bitcal_tts.serving.status import described
from bitcal_tts.serving.trying import Trying
from bitcal_tts.traces.looks import LookTable

GROWTH = 3
_AGAIN = 50
ENOUGH = 0.2
"""Of the tokens: where what the first scorer promises saves less, another is fitted on more; for the second, half."""
ASKED = 4
"""Looks at which a request that is learned from is made to answer; more would hardly teach more."""
MOST_LEARNED = 20_000
"""Requests that are learned from; past them only the share that always runs to its end is, and tries what there is."""
REFINED = 600
"""Requests after which a round's looser thresholds are no longer tried on the share that learning takes."""
PATIENCE = 1000.0
"""Measured requests, on average, after which a promise that is just kept is taken back in error."""
_MOST_WAITING = 512
_AT_ONCE = 8
_HISTORY = 400
_LOG = logging.getLogger("bitcal.autopilot")


class Pilot:
    """Learns from the requests of one setting, and decides which of them are stopped.

    Args:
        setting: What they have in common.
        terms: What is to be promised.
        memory: Keeps what it learns.
        chance: Draws the share that is sampled: a number from 0 to 1.
    """

    def __init__(
        self, setting: Setting, terms: Terms, memory: Memory, *, chance: Callable[[], float] | None = None
    ) -> None:
        self.setting, self.terms, self.name = setting, terms, setting.name(terms)
        self._memory, self._chance = memory, chance or random.SystemRandom().random
        self._walker = Walker(setting.parameters())
        self.state = memory.load(self.name) or State(due=terms.first)
        self._method: Settled | None = None
        self._next = self.state.numbers
        self._ended: dict[int, tuple[Observed, Ended] | None] = {}
        self._open = self._begun = self._applied = 0
        self._found: dict[int, tuple[Tried | None, Round | None, int]] = {}
        self._fitting = False
        self._limiter = CapacityLimiter(_AT_ONCE)
        self._tasks: TaskGroup | None = None
        if self.state.serving is None:
            self._stop_stopping()
        else:
            self._serve()

    def begin(self, tasks: TaskGroup) -> None:
        """Side requests are made among these tasks."""
        self._tasks = tasks

    @property
    def phase(self) -> str:
        """`learning`, or `stopping` where a promise holds."""
        return "learning" if self.state.served is None else "stopping"

    @property
    def gives_way(self) -> bool:
        """Whether its place may be another's: it has no scorer yet, and nothing is open or being found out."""
        at_work = self._open or self._ended or self._fitting or self._begun != self._applied
        return not at_work and self.state.round is None and self.state.served is None

    def course(
        self, signals: Signals = TEXT_ONLY, watch: Callable[[Decision], None] | None = None, **options: Any
    ) -> Course:
        """What the next request will take.

        Args:
            signals: What the server can tell of its tokens.
            watch: Told of decisions, where somebody follows the request.
            **options: Of its session.
        """
        admitted = self._admit()
        self._open += 1
        if admitted.role == "watched":
            observed = Observed(self._walker, signals=signals, **options)
            return Course(observed.session, self, admitted, observed)
        if admitted.method is None:
            read = TEXT_ONLY if watch is None else signals
            return Course(Session(to_the_end(self.setting.budget), signals=read, **options), self, admitted)
        return Course(Session(admitted.method, signals=signals, watch=watch, **options), self, admitted)

    def _admit(self) -> Admitted:
        """Decide what becomes of the next request, by chance alone."""
        state, terms = self.state, self.terms
        share = terms.learn if self._learns else terms.shadow
        if self._chance() < share and len(self._ended) < _MOST_WAITING:
            state.numbers += 1
            return Admitted("watched", self.phase, state.numbers - 1)
        return Admitted("plain" if self._method is None else "stopped", self.phase, method=self._method)

    def spent(self, admitted: Admitted, tokens: int) -> None:
        """A request has ended, after so many tokens."""
        self._open -= 1
        counts = self.state.counts
        setattr(counts, admitted.role, getattr(counts, admitted.role) + 1)
        counts.tokens += tokens
        if admitted.role != "stopped":
            return
        counts.stopped_tokens += tokens
        monitor = None if self._method is None else self._method.monitor
        if admitted.method is self._method and monitor is not None and monitor.drifted:
            self._relearn(f"scores have drifted after {monitor.requests} requests: this is not what was learned from")

    def unfinished(self, admitted: Admitted) -> None:
        """A request did not come to its end: it counts for nothing."""
        self._open -= 1
        self.state.counts.unfinished += 1
        if admitted.role == "watched":
            self.ended(admitted, None)

    def ended(self, admitted: Admitted, what: tuple[Observed, Ended] | None) -> None:
        """A watched request has ended. Requests are learned from in the order in which they were asked."""
        self._ended[admitted.number] = what
        while self._tasks is not None and self._next in self._ended:
            following = self._ended.pop(self._next)
            self._next += 1
            if following is not None:
                self._begun += 1
                self._tasks.start_soon(self._ask, self._begun - 1, *following, self.state.round)

    def _learn(self, table: LookTable) -> None:
        self._memory.keep(self.name, self.state.epoch, self.state.learned, table)
        self.state.learned += 1

    async def _fit_when_due(self) -> None:
        """Fit a scorer where there is enough to fit it on."""
        state, terms = self.state, self.terms
        if state.round is not None or self._fitting or state.learned < state.due:
            return
        self._fitting, epoch = True, state.epoch
        level = (1 - terms.confidence) * 0.5 ** (state.rounds + 1)  # all rounds together keep the confidence
        try:
            of = await to_thread.run_sync(self._fitted, epoch, level)
        except ValueError as error:
            if state.epoch == epoch:
                state.due = state.learned + _AGAIN
                self._event(f"no scorer yet: {error}", why=state.served is None)
            return
        finally:
            self._fitting = False
        if state.epoch != epoch:
            return  # what it was fitted on does not hold any more
        self.remember()  # that there is none: what is kept next must not be taken for the one before
        self._memory.keep_scorer(self.name, of.scorer)
        state.round = of
        state.rounds += 1
        state.due = self._next_scorer
        fitted = f"scorer {state.rounds} fitted on {state.learned} requests; stops are being tried"
        self._event(fitted, why=state.served is None)

    def _fitted(self, epoch: int, level: float) -> Round:
        return fit_round(self._memory.kept(self.name, epoch), self.terms.risk, level)

    async def _ask(self, place: int, observed: Observed, ended: Ended, of: Round | None) -> None:
        """Learn from a request, and try a round on it. What goes wrong costs this request, and no other one."""
        try:
            await self._find_out(place, observed, ended, of)
            while self._applied in self._found:
                self._applied += 1
                found, tried, epoch = self._found.pop(self._applied - 1)
                self._apply(found, tried, over=epoch != self.state.epoch)
            await self._fit_when_due()
            self.remember()
        except Exception:
            _LOG.exception("a request could not be learned from")

    async def _find_out(self, place: int, observed: Observed, ended: Ended, of: Round | None) -> None:
        """By side requests, what stops of a request would have come to."""
        found: Tried | None = None
        epoch, standing, served = self.state.epoch, self.state.standing, self.state.served
        trying = Trying(observed, ended)
        try:
            self._memory.keep_text(*observed.text())
            async with self._limiter:
                if of is None:
                    trial = None
                    await trying.ask(spread(len(observed.places), ASKED, self._chance()))
                else:
                    trial = await trying.trial(of, self._wanted(of))
                learned, kept = trying.learned(), None
                if standing is not None and served is not None:
                    kept = (await trying.trial(standing, range(served, served + 1))).kept(served)
                found = Tried(learned, trial, trying.spent, kept)
        except ServerError as error:
            _LOG.warning("a side request failed: %s", error)
        finally:
            self._found[place] = found, of, epoch

    def _wanted(self, of: Round) -> range:
        """Thresholds that are worth a side request: the one that is served, and those after it that may pass."""
        served = self.state.served
        if served is None or self.state.standing is not None:
            return range(len(of.thresholds))
        last = len(of.thresholds) if of.n < REFINED else min(served + 2, len(of.thresholds))
        return range(served, last)

    def _apply(self, found: Tried | None, of: Round | None, *, over: bool = False) -> None:
        """Take what was found for a round; for nothing where it is over, or what it was learned in."""
        state = self.state
        if found is None:
            state.counts.unfinished += 1
            return
        state.counts.trial_tokens += found.spent
        if over or (of is not None and of is not state.round):
            return
        if self._learns:
            self._learn(found.learned)
        epoch, trial, kept = state.epoch, found.trial, found.kept
        if of is not None and trial is not None:
            of.take(trial)
        if state.standing is None:
            kept = None if trial is None else trial.kept(state.served)
        if kept is not None:
            self._measure(kept)
        if of is None or trial is None or state.epoch != epoch:
            return  # the measured loss may have ended the promise
        if self._wants_another(of):
            self._make_way(of)
        elif self._is_better(of):
            self._promise(of)
        self._note()

    def _make_way(self, of: Round) -> None:
        """Have another scorer fitted; what this one or the one before it has earned stands meanwhile."""
        state = self.state
        earned = "no promise" if of.served is None else f"one that saves {percent(of.saved)}"
        text = f"{of.n} requests earned {earned}: another scorer is fitted on {state.learned}"
        if state.served is None:
            self._event(text, why=True)
        else:
            self._event(f"{text}, and what is promised stands meanwhile")
        if state.served is not None and state.standing is None:
            self._memory.keep_scorer(self.name, of.scorer, standing=True)
            state.standing = of
        state.round, state.due = None, state.learned

    def _is_better(self, of: Round) -> bool:
        """Whether a round has earned something else than what is promised, and where another stands, something more."""
        if of.served is None:
            return False
        return of.served != self.state.served if self.state.standing is None else of.saved > self._stands_for

    @property
    def _stands_for(self) -> float:
        """Of all tokens, how many the promise saves that stands while another scorer is tried."""
        standing, served = self.state.standing, self.state.served
        return 0.0 if standing is None or served is None else 1 - standing.share(served)

    def _wants_another(self, of: Round) -> bool:
        """Whether a scorer from three times as many requests may save what this one does not."""
        return not self._saves_enough(of) and self.state.learned >= self._next_scorer

    @property
    def _next_scorer(self) -> int:
        """Requests on which the next scorer would be fitted."""
        return self.terms.first * int(GROWTH**self.state.rounds)

    def _saves_enough(self, of: Round) -> bool:
        """Whether a promise is kept for what it saves; the next takes longer to earn, for less that it could add."""
        return max(of.saved, self._stands_for) >= ENOUGH / max(1, self.state.rounds)

    @property
    def _earned(self) -> bool:
        """Whether there is a promise, and little to be learned that would better it."""
        of = self.state.round
        return self.state.served is not None and of is not None and of.n >= REFINED and self._saves_enough(of)

    @property
    def _learns(self) -> bool:
        """Whether a scorer may yet be fitted that does better."""
        return not self._earned and self.state.learned < MOST_LEARNED

    def _measure(self, kept: Kept) -> None:
        """The promise and the savings, by a request of the share that runs to its end."""
        alarm = self.state.alarm
        if alarm is None:
            return
        alarm.take(lost=kept.lost)
        self.state.saved.take(min(1.0, max(0.0, 1 - kept.cost / max(1, kept.full))))
        if alarm.rung:
            self._relearn(f"{alarm.losses} of {alarm.n} stops were lost where {percent(self.terms.risk)} were promised")

    def _promise(self, of: Round) -> None:
        served = of.served
        assert served is not None
        first = self.state.served is None
        self.state.served, self.state.standing = served, None
        self._serve()
        self.state.alarm = Alarm(self.terms.risk, PATIENCE)
        if first:
            self.state.since, self.state.saved = time.time(), Mean()
        bets = of.bets[served]
        promise = f"promised: at most {percent(self.terms.risk)} lost (confidence {self.terms.confidence:g})"
        evidence = f"by {bets.losses} lost of {bets.n} tried; it takes {percent(of.share(served))} of the tokens"
        self._event(f"{promise}, {evidence}", why=True)

    def _serve(self) -> None:
        """Make the method that keeps the promise, from a profile that is a file like any other."""
        profile = profile_of(self.setting, self.terms, self.state)
        save_profile(self._memory.folder / f"profile-{self.name}.json", profile)
        self._method = build_method("settled", bits=self.setting.bits, budget=self.setting.budget, profile=profile)

    def _relearn(self, why: str) -> None:
        """Stop stopping; what was learned does not hold any more."""
        state = self.state
        self._event(f"no promise holds any more: {why}; learning again", why=True)
        state.epoch, state.round, state.rounds, state.learned, state.due = state.epoch + 1, None, 0, 0, self.terms.first
        self._stop_stopping()
        self._memory.forget(self.name, state.epoch)
        self.remember()

    def _stop_stopping(self) -> None:
        """End the promise, where there is one."""
        if self.state.served is not None:
            self.state.since = time.time()
        self.state.standing, self.state.served, self.state.alarm, self._method = None, None, None, None

    def _event(self, text: str, *, why: bool = False) -> None:
        if why:
            self.state.why = text
        _LOG.info(text, extra={"setting": self.name})
        self.state.events.append({"time": time.time(), "text": text})
        del self.state.events[:-_HISTORY]

    def _note(self) -> None:
        """A point for the page; of many, every other one is kept."""
        of, state = self.state.round, self.state
        if of is None:
            return
        point = {
            "time": time.time(), "requests": state.counts.requests, "epoch": state.epoch,
            "evidence": [bets.highest for bets in of.bets], "saved": state.counts.net(state.saved),
        }  # fmt: skip
        state.history.append(point)
        if len(state.history) > _HISTORY:
            state.history = state.history[::2]

    def remember(self) -> None:
        """Keep what is known."""
        self._memory.save(self.name, self.remembered())

    def remembered(self) -> dict[str, Any]:
        """The state, with what it was learned for."""
        setting = {**self.setting.identity.to_dict(), "bits": self.setting.bits, "answers": self.setting.answers}
        return {"setting": setting, "terms": asdict(self.terms), "state": self.state.to_dict()}

    def status(self) -> dict[str, Any]:
        """For people and the page."""
        return described(self.name, self.remembered())
