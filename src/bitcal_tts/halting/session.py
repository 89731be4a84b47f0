"""The life of one request: tokens in, with whatever signals there are; out comes what to do next.

Every engine, replay, the sweeps and whoever decodes by himself drive this one object. It keeps count, budget, chunks,
thinking, probing and landing; a method sees steps and decides. Nothing else counts tokens or lands.

    session = Session(method, signals=Signals("top", k=20))
    for token in stream:
        match session.feed(token):
            case Go(): ...
            case Force(landing=landing): ...  # append its tokens, and feed them back with forced=True
            case Ask(landing=landing): ...    # find out, now or later, and tell(probe)
            case End(): break
    session.outcome

An engine that works ahead feeds many tokens at once and is told *at* which of them the directive applies: it cuts back
to there. So the end does not depend on how tokens arrive, and what was decoded past it counts as decoded, not as used.
"""

from __future__ import annotations

import codecs
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from bitcal_tts.halting.controller import Controller, Decision, Probe, Question
from bitcal_tts.halting.exchange import (
    GO,
    Ask,
    Directive,
    End,
    Force,
    SessionOutcome,
    Token,
    Tokens,
    Weigh,
    WouldBe,
)
from bitcal_tts.halting.identity import Identity
from bitcal_tts.halting.landing import AnswerWriting, Landing, fitting, landing
from bitcal_tts.halting.policy import Action, Reason
from bitcal_tts.halting.reading import Reading, Stage
from bitcal_tts.halting.signals import Signal, Signals
from bitcal_tts.halting.stopping import answer_of, stopped
from bitcal_tts.halting.waiting import Waiting


class Session:
    """One request.

    Args:
        method: Decides; a fresh copy is taken. Budget, chunk size, answer format and think markers are its parameters'.
        signals: What will be fed. A method that needs more is refused.
        identity: What is being served, for methods whose promise is tied to it.
        prefix: Text that the response already begins with; it is not counted.
        question: What was asked, for methods that read it.
        count_tokens: Tokens of a text that would be forced; by default no more than it has bytes.
        watch: Told of every decision that rests on a look or ends the request; of the others where they come up.
        heed: Whether decisions are followed; otherwise they are only told, and the request runs to its end.
        weigh_later: Whether looks are judged by whoever drives it, who may have many to be judged: it says `Weigh`.
    """

    def __init__(
        self,
        method: Controller,
        *,
        signals: Signals | None = None,
        identity: Identity | None = None,
        prefix: str = "",
        question: str | None = None,
        count_tokens: Callable[[str], int] | None = None,
        watch: Callable[[Decision], None] | None = None,
        heed: bool = True,
        weigh_later: bool = False,
    ) -> None:
        self.method = method.fresh()
        self._p = p = self.method.parameters
        self.signals = signals or Signals()
        self._check_signals()
        if self.method.promises:
            served = identity or Identity()
            self.method.check(served.with_known(signals=str(self.signals), budget=p.budget))
        self._watch, self._heed, self._weigh_later = watch, heed, weigh_later
        self._count_tokens = count_tokens or (lambda text: len(text.encode()))
        self._decides = self.method.halts or watch is not None
        self._begin(prefix, question)

    def another(self, *, prefix: str = "", question: str | None = None) -> Session:
        """The same for another request: what was checked need not be checked again."""
        other = object.__new__(Session)
        other.__dict__.update(self.__dict__, method=self.method.fresh())
        other._begin(prefix, question)
        return other

    def _begin(self, prefix: str, question: str | None) -> None:
        p = self._p
        self.method.weighs_later = self._weigh_later
        self._reading = Reading(p.format, p.opening, p.close) if self.method.lands else None
        self._stage, self._last = Stage.REASONING, prefix[-1:]
        if self._reading is not None:
            self._reading.feed(prefix)
            self._stage = self._reading.stage
        if question is None and self.method.reads_question:
            raise ValueError(f"{p.name} reads the question, which is not known here: Session(..., question=...)")
        self.method.begin(prefix, question)
        self.tokens = 0
        """Tokens decided on; those of an unfinished chunk wait."""
        self.decoded = self.landing_tokens = self.probe_tokens = 0
        self._texts: list[str] = []
        self._waiting = Waiting()
        self._asking: Question | None = None
        self._landing: Landing | None = None
        self._writing: AnswerWriting | None = None
        self._room = 0
        self._decision: Decision | None = None
        self._end: End | None = None
        self._bytes: codecs.IncrementalDecoder | None = None
        self._held = ""
        self._missing = None if self.signals.distribution == "absent" else 0.0

    def _check_signals(self) -> None:
        needs, name = self.method.needs, self._p.name
        lacking = self.signals.lacks(needs)
        if lacking:
            words = ", ".join(signal.words for signal in lacking)
            raise ValueError(f"{name} needs {words}, which is not to be had here ({self.signals} signals)")
        if Signal.HIDDEN in needs and self.signals.hidden_every != self._p.chunk_size:
            raise ValueError(
                f"{name} compares hidden states every {self._p.chunk_size} tokens, here they are compared every "
                f"{self.signals.hidden_every}: choose the same chunk_size, or hidden=False"
            )

    @property
    def over(self) -> bool:
        """Whether the request has ended."""
        return self._end is not None

    @property
    def would_land(self) -> bool:
        """Whether a stop here would be followed by a landing: no answer stands yet."""
        return self._reading is not None and self._stage is not Stage.OVER

    def feed(self, tokens: Token | Tokens, *, forced: bool = False) -> Directive:
        """Take the next tokens; `forced` are those of a landing, which nobody chose."""
        if self._end is not None:
            raise ValueError("the request has ended: nothing more can be fed")
        columns = self._columns(tokens) if isinstance(tokens, Token) else tokens
        self.decoded += len(columns.texts)
        if self._landing is not None:
            return self._feed_landing(columns.texts, forced=forced)
        if forced:
            raise ValueError("nothing is being forced: there was no landing")
        self._queue(columns)
        return GO if self._asking is not None else self._advance()

    def tell(self, probe: Probe) -> Directive:
        """Take what was asked for."""
        if self._asking not in (Question.ANSWER, Question.CLOSING):
            raise ValueError("no probe was asked for")
        self.probe_tokens += probe.close_tokens if self._asking is Question.CLOSING else probe.n_tokens
        self._asking = None
        directive = self._resolve(self.method.tell(probe))
        return self._advance() if directive is GO else directive

    def weighed(self, judged: Sequence[tuple[float, Any]]) -> Directive:
        """Take what looks were judged to be worth, each with the value that it stands for."""
        if self._asking is not Question.SCORE:
            raise ValueError("no look was to be weighed")
        self._asking = None
        at = 0
        directive: Directive = GO
        for decision in self.method.weighed(judged):
            taken = decision.tokens - self.tokens
            self._take(at, taken)
            at, directive = at + taken, self._resolve(decision)
            if directive is not GO:
                break
        self._waiting.leave(at)
        return self._advance() if directive is GO else directive

    def landed(self, probe: Probe) -> End:
        """Take a landing that was carried out aside, as a whole."""
        if self._landing is None:
            raise ValueError("nothing is being landed")
        written = fitting(probe, self._room, self._p.format)
        if written is not None:
            self.landing_tokens, text = written
            self.decoded += self.landing_tokens
            self._writing = AnswerWriting(self._p.format, self._landing.cue, self._room, text)
            self._texts.append(self._landing.closing + self._landing.cue + text)
        return self._finish("halted")

    def stop_here(self) -> WouldBe:
        """What a stop here would be."""
        return WouldBe(self.tokens, self._landing_here() if self.would_land else None, self._landing_room())

    def if_stopped(self, probe: Callable[[], Probe]) -> tuple[int, str | None]:
        """Tokens and answer if the request were stopped here, given what the model writes after a landing here."""
        return stopped(self.stop_here(), lambda: "".join(self._texts), probe, self._p)

    def end(self, finish: str = "eos") -> End:
        """The model has ended by itself, and the token that says so is not counted; or `budget`: it was cut off."""
        if self._end is not None:
            return self._end
        if self._landing is None:
            self.tokens += len(self._waiting)
            self._texts += self._waiting.texts
        return self._finish(finish if self._landing is None else "halted")

    @property
    def outcome(self) -> SessionOutcome:
        """How the request went; it must have ended."""
        if self._end is None:
            raise ValueError("the request has not ended")
        text = "".join(self._texts)
        answer = answer_of(text, self._p) if self._writing is None else self._writing.answer
        return SessionOutcome(
            text=text,
            tokens=self.tokens + self.landing_tokens,
            decoded=self.decoded,
            landing_tokens=self.landing_tokens,
            probe_tokens=self.probe_tokens,
            finish=self._end.finish,
            decision=self._decision,
            answer=answer,
            missing=self._missing,
        )

    def _columns(self, token: Token) -> Tokens:
        """A piece of a stream as columns: its bytes made text, its parts held until it is whole."""
        text = token.text if isinstance(token.text, str) else self._decoded(token.text)
        if token.count < 0:
            raise ValueError(f"count must be at least 0, got {token.count}")
        text, self._held = self._held + text, ""
        if token.count == 0:
            self._held = text
            return Tokens(())
        # The text stands with the first of several tokens: wherever they are cut, it has come.
        rest: list[Any] = [None] * (token.count - 1)
        values = (token.entropy, token.logprob, token.margin, token.top_logprob)
        entropies, logprobs, margins, tops = (None if value is None else [value, *rest] for value in values)
        missing = None if token.missing is None else [token.missing] * token.count
        return Tokens([text, *[""] * (token.count - 1)], entropies, logprobs, margins, tops, missing=missing)

    def _decoded(self, part: bytes) -> str:
        """Bytes as text; those of an unfinished character wait."""
        if self._bytes is None:
            self._bytes = codecs.getincrementaldecoder("utf-8")("replace")
        return self._bytes.decode(part)

    def _queue(self, tokens: Tokens) -> None:
        if self.signals.distribution == "top" and tokens.texts:
            self._note_missing(tokens.missing)
        stages: Sequence[Stage] = ()
        if self._reading is not None:
            stages = self._reading.stages(tokens.texts) if tokens.stages is None else tokens.stages
        compared = self.signals.hidden_every == self._p.chunk_size
        self._waiting.add(tokens, stages, tokens.hidden_similarities if compared else ())

    def _note_missing(self, missing: Sequence[float] | None) -> None:
        """Keep the most mass that any token's distribution has left out; None once it is not known of one."""
        if missing is None:
            raise ValueError(f"{self.signals} signals must say how much mass is missing: Token.from_top does")
        if self._missing is not None:
            self._missing = None if any(map(math.isnan, missing)) else max(self._missing, *missing)

    def _advance(self) -> Directive:
        """Take whole chunks of what waits, until a directive comes of one or no chunk is whole."""
        waiting = len(self._waiting)
        chunk, budget = self._p.chunk_size if self._decides else max(1, waiting), self._p.budget
        at = 0
        directive: Directive = GO
        while directive is GO:
            left = budget - self.tokens
            if left <= chunk and waiting - at >= left:
                # Nothing is decided on a chunk that exhausts the budget: nothing is left to halt.
                self._texts += self._waiting.texts[at : at + left]
                self.tokens += left
                return self._finish("budget")
            if waiting - at < chunk:
                break
            if self._decides:
                taken, decision = self._observed(at, chunk)
                if decision.asks is Question.SCORE:
                    directive = self._resolve(decision)
                    break  # how much of it stands is known when that is
                self._take(at, taken)
                directive = self._resolve(decision)
            else:
                taken = chunk
                self._take(at, taken)
            at += taken
        self._waiting.leave(at)
        return directive

    def _observed(self, at: int, chunk: int) -> tuple[int, Decision]:
        """How many of the tokens that wait the method takes next, and what it decides at the last of them."""
        ahead = min(self.method.ahead(), self._p.budget - self.tokens - 1) if chunk == 1 else 0
        run = self._waiting.alike(at, ahead)
        if run > 1:
            return self.method.skim(self._waiting.step(at, at + run))
        return chunk, self.method.observe(self._waiting.step(at, at + chunk))

    def _take(self, first: int, n: int) -> None:
        """Count tokens that wait as taken."""
        texts = self._waiting.texts[first : first + n]
        self._texts += texts
        self.tokens += n
        if self._reading is not None:
            self._stage = self._waiting.stages[first + n - 1]
            last = texts[-1] or next((text for text in reversed(texts) if text), self._last)
            self._last = last[-1:]

    def _resolve(self, decision: Decision) -> Directive:
        if decision.asks is not None:
            self._asking = decision.asks
            if decision.asks is Question.SCORE:
                return Weigh(self.method.unweighed, self._p.profile)
            return Ask(self.tokens, self._landing_here(), decision.asks)
        if decision.action is Action.CONTINUE and self._must_land():
            decision = replace(decision, action=Action.STOP, reason=Reason.RESERVE)
        if self._watch is not None:
            self._watch(decision)
        return self._halt(decision) if decision.halts and self._heed else GO

    def _must_land(self) -> bool:
        """Whether the budget is down to what writing the answer may take, as far ahead as the next boundary."""
        p = self._p
        if self._reading is None or not p.reserve or not self.method.looks_at(self._stage):
            return False
        at_boundary = self.tokens // p.every > (self.tokens - p.chunk_size) // p.every
        return bool(at_boundary and self.tokens + max(p.every, p.chunk_size) > p.budget - p.reserve)

    def _landing_here(self) -> Landing:
        close = self._p.close if self._stage is Stage.THINKING else None
        return landing(self._last, close, self._p.format.cue)

    def _landing_room(self) -> int:
        """Tokens that a landing and the answer after it may take."""
        room: int = min(self._p.format.reserve, self._p.budget - self.tokens)
        return room

    def _halt(self, decision: Decision) -> Directive:
        self._decision = decision
        self._release_held()
        if decision.action is Action.STOP and self.would_land:
            where = self._landing_here()
            room = self._landing_room()
            if sum(self._count_tokens(part) for part in where if part) < room:
                self._landing, self._room = where, room
                return Force(self.tokens, where, room, decision)
        return self._finish("halted")

    def _feed_landing(self, texts: Sequence[str], *, forced: bool) -> Directive:
        assert self._landing is not None
        if forced:
            self._texts += texts
            self.landing_tokens += len(texts)
            return GO
        if self._writing is None:
            p, left = self._p, self._room - self.landing_tokens
            scarce = self._room < p.format.reserve
            self._writing = AnswerWriting(p.format, self._landing.cue, left, must_end=scarce)
        for text in texts:
            if self._writing.over:
                break
            self._writing.feed(text)
            self._texts.append(text)
            self.landing_tokens += 1
        return self._finish("halted") if self._writing.over else GO

    def _release_held(self) -> None:
        """What was held back for the rest of a token or a character that will not come."""
        unfinished = "" if self._bytes is None else self._bytes.decode(b"", final=True)
        held, self._held = self._held + unfinished, ""
        if held:
            self._texts.append(held)

    def _finish(self, finish: str) -> End:
        self._release_held()
        self._waiting.clear()
        self.method.finish()
        self._end = End(self.tokens + self.landing_tokens, finish, self._decision)
        return self._end
