"""Tokens that a session was fed and has not decided on yet, with what is known of each."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from bitcal_tts.halting.controller import Step
from bitcal_tts.halting.exchange import Tokens
from bitcal_tts.halting.reading import Stage

_SIGNALS = ("entropies", "logprobs", "margins", "top_logprobs")


class Waiting:
    """The tokens that wait, in columns: a method takes them in steps of one or of many."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.stages: list[Stage] = []
        """Where each stands; empty where nobody reads along."""
        self._signals: dict[str, list[Any]] = {}
        self._gaps = False  # something is known of some tokens and not of others
        self._similarities: deque[float | None] = deque()

    def __len__(self) -> int:
        return len(self.texts)

    def add(self, tokens: Tokens, stages: Sequence[Stage], similarities: Sequence[float | None]) -> None:
        """Queue tokens.

        Args:
            tokens: With their signals; a column that has another length is refused.
            stages: Of each of them, where anybody reads along.
            similarities: Of the hidden states at the boundaries that they come to, where those are compared.
        """
        n, before = len(tokens.texts), len(self.texts)
        for name in _SIGNALS:
            column, waiting = getattr(tokens, name), self._signals.get(name)
            if column is None:
                if waiting is not None:
                    waiting.extend([None] * n)
                    self._gaps = True
                continue
            if len(column) != n:
                raise ValueError(f"there are {n} tokens, but {len(column)} {name}")
            if waiting is None:
                waiting = self._signals[name] = [None] * before
                self._gaps = self._gaps or before > 0
            waiting.extend(column)
            self._gaps = self._gaps or None in column
        self.texts.extend(tokens.texts)
        self.stages.extend(stages)
        self._similarities.extend(similarities)

    def step(self, first: int, last: int) -> Step:
        """Some of them, as a method sees them."""
        texts = self.texts[first:last]
        columns: dict[str, Sequence[Any]] = {}
        for name, column in self._signals.items():
            values = column[first:last]
            if not self._gaps or None not in values:  # what is not known of one token is not known of the step
                columns[name] = values
        entropies = columns.get("entropies")
        return Step(
            text=texts[0] if last - first == 1 else "".join(texts),
            n_tokens=last - first,
            entropy=None if entropies is None else entropies[-1],
            hidden_similarity=self._similarities.popleft() if self._similarities else None,
            token_texts=texts,
            stage=self.stages[last - 1] if self.stages else Stage.REASONING,
            **columns,
        )

    def alike(self, at: int, most: int) -> int:
        """How many may be handed over at once: at one stage, with the same signals; `most` of them at the most."""
        if self._gaps or self._similarities:
            return 0
        most = min(most, len(self.texts) - at)
        if not self.stages or most < 2:
            return most
        stages = self.stages[at : at + most]
        stage = stages[0]
        if stages.count(stage) == most:
            return most
        return next(i for i, other in enumerate(stages) if other is not stage)

    def leave(self, n: int) -> None:
        """The first so many were decided on."""
        del self.texts[:n]
        del self.stages[:n]
        for column in self._signals.values():
            del column[:n]

    def clear(self) -> None:
        """Nobody will decide on them."""
        self.texts.clear()
        self.stages.clear()
        self._signals.clear()
        self._similarities.clear()
