"""One request that is watched inside somebody else's decoding loop: what has come, and what must come next."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Protocol

from bitcal_tts.halting.controller import Controller
from bitcal_tts.halting.exchange import Force, Tokens
from bitcal_tts.halting.identity import Identity
from bitcal_tts.halting.session import Session
from bitcal_tts.halting.signals import Signals

SIGNALS = Signals("full")


class Texts(Protocol):
    """Token ids to text, one after the other."""

    def add(self, token_id: int) -> str:
        """The text that this token adds."""
        ...


class Vocabulary(Protocol):
    """What a model's tokens say."""

    @property
    def ends(self) -> frozenset[int]:
        """Tokens that end a sequence."""
        ...

    def texts(self) -> Texts:
        """For a new response."""
        ...

    def encode(self, text: str) -> list[int]:
        """Token ids of a part of a response."""
        ...


class Watched:
    """One request that is watched.

    Args:
        method: Halts it.
        out: Its tokens, as the engine keeps them.
        vocabulary: The model's.
        identity: What is being served.
        question: What was asked, for methods that read it.
        stop: The token that is forced to end it; by default one that ends a sequence anyway.
    """

    def __init__(
        self,
        method: Controller,
        out: list[int],
        vocabulary: Vocabulary,
        identity: Identity,
        *,
        question: str | None = None,
        stop: int | None = None,
    ) -> None:
        self.out = out
        self._vocabulary, self._texts = vocabulary, vocabulary.texts()
        self.ends = vocabulary.ends
        self.stop = min(self.ends) if stop is None else stop
        self.session = Session(
            method,
            signals=SIGNALS,
            identity=identity,
            question=question,
            count_tokens=lambda text: len(vocabulary.encode(text)),
        )
        self._fed = 0
        self._landing: deque[int] | None = None
        """Tokens of a landing that have not come back yet; None before it."""
        self._forced = 0
        self._given_up = False
        self.known: dict[int, Sequence[float]] = {}
        """Signals by position, off the device: entropy, log-probability, margin, mean of the likeliest."""

    @property
    def landing(self) -> bool:
        """Whether an answer is being forced out of it."""
        return self._landing is not None and not self._given_up

    def give_up(self) -> None:
        """Let it run to its end by itself."""
        self._given_up = True

    @property
    def forces(self) -> int | None:
        """The token that must come next, or None where the model is free."""
        if self._given_up:
            return None
        if self.session.over:
            return self.stop
        return self._landing[0] if self._landing else None

    def take(self) -> None:
        """Feed what has come since the last time, as far as its signals are known, and follow what the session says."""
        if self._given_up:
            self.known.clear()
            return
        if self.session.over:
            return
        if self.landing:
            self._take_landing()
            return
        ids: list[int] = []
        while self._fed + len(ids) < len(self.out) and self._fed + len(ids) in self.known:
            ids.append(self.out[self._fed + len(ids)])
        ended = next((i for i, token in enumerate(ids) if token in self.ends), None)
        kept = ids if ended is None else ids[:ended]
        if kept:
            columns = zip(*(self.known.pop(self._fed + i) for i in range(len(kept))), strict=True)
            entropies, logprobs, margins, tops = map(list, columns)
            directive = self.session.feed(
                Tokens([self._texts.add(token) for token in kept], entropies, logprobs, margins, tops)
            )
            self._fed += len(kept)
            if isinstance(directive, Force):
                ids = [token for text in directive.landing for token in self._vocabulary.encode(text)]
                self._landing, self._forced = deque(ids), len(self.out)
        if ended is not None and not self.session.over:
            self.session.end()

    def _take_landing(self) -> None:
        assert self._landing is not None
        for token in self.out[self._forced :]:
            self._forced += 1
            if self._landing:
                self._landing.popleft()
                self.session.feed(Tokens([self._texts.add(token)]), forced=True)
            elif token in self.ends or token == self.stop:
                self.session.end()
            else:
                self.session.feed(Tokens([self._texts.add(token)]))
            if self.session.over:
                return
