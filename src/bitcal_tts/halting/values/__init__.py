"""What a text stands for: its values, read sentence by sentence."""

from bitcal_tts.halting.values.asking import Asking
from bitcal_tts.halting.values.candidates import COLUMNS, SHARED, Candidates, Look
from bitcal_tts.halting.values.kinds import KINDS, ValueKind, as_text
from bitcal_tts.halting.values.sentences import Sentences

__all__ = ["COLUMNS", "KINDS", "SHARED", "Asking", "Candidates", "Look", "Sentences", "ValueKind", "as_text"]
