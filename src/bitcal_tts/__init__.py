"""BitCal-TTS: stop a quantized reasoning model when its answer is settled."""

from bitcal_tts.halting import (
    METHODS,
    Action,
    Controller,
    Decision,
    Parameters,
    Reason,
    Step,
    UnreachableStopWarning,
    build_method,
)

__version__ = "0.1.0"

__all__ = [
    "METHODS",
    "Action",
    "Controller",
    "Decision",
    "Parameters",
    "Reason",
    "Step",
    "UnreachableStopWarning",
    "__version__",
    "build_method",
]
