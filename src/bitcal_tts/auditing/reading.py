"""What a text stood for where a rule would have stopped it: found again for the few texts that are shown."""

from __future__ import annotations

import dataclasses

from bitcal_tts.auditing.walking import Setting, recording_of, simple_rule
from bitcal_tts.halting.controller import Decision
from bitcal_tts.halting.profile import Profile
from bitcal_tts.halting.session import Session
from bitcal_tts.halting.settled import Settled
from bitcal_tts.halting.signals import Signal
from bitcal_tts.logs.counting import splitter
from bitcal_tts.logs.texts import LoggedText
from bitcal_tts.traces.replay import read_off, replay
from bitcal_tts.traces.texts import trace_of


class _Reader(Settled):
    """Judges, and promises nothing."""

    promises = False

    @property
    def needs(self) -> frozenset[Signal]:
        """Whatever there is."""
        return frozenset()


class ReadText:
    """A text that is read again.

    Args:
        text: The text.
        setting: How it is read.
        scorer: What `settled` judges it by; None where it never stops.
    """

    def __init__(self, text: LoggedText, setting: Setting, scorer: Profile | None) -> None:
        self._trace, self._setting, self._scorer = trace_of(text, 0, splitter(setting.tokenizer)), setting, scorer

    def by(self, rule: str, at: int) -> str | None:
        """The answer that a rule would have taken after so many tokens."""
        format = self._setting.task.format
        if rule == "complete":
            return format.value(self._trace.text_at(at))
        return read_off(format, self._stated(at) if rule.startswith("stated") else self._settled(at))[1]

    def _stated(self, at: int) -> str | None:
        method = simple_rule(self._setting)
        for tokens, piece in enumerate(self._trace.token_texts[:at], 1):
            method.tokens = tokens
            method.token(piece, None, None, None)
        return method.stands_for()

    def _settled(self, at: int) -> str | None:
        if self._scorer is None:
            return None
        setting, recording = self._setting, recording_of(self._trace, self._setting)
        method = _Reader(dataclasses.replace(recording.settings(setting.looks, setting.budget), profile=self._scorer))
        found: dict[int, str | None] = {}

        def note(_: Session, decision: Decision) -> None:
            found[decision.tokens] = decision.answer

        replay(self._trace, method, identity=recording.identity, watch=note, fed=self._trace.signals.present)
        return found.get(at)
