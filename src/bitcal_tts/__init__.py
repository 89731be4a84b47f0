"""BitCal-TTS: stop a quantized reasoning model when its answer is settled.

The core needs numpy alone and is here at once; what needs more packages is imported when it is asked for:

- `BitCal`: halting inside `model.generate`
- `record`, `replay`: traces of a model, and any method on them
- `load_profile`, `save_profile`: profiles as files
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from bitcal_tts.calibration.store import load_profile, save_profile
from bitcal_tts.halting import (
    METHODS,
    TEXT_ONLY,
    UNKNOWN,
    Action,
    Ask,
    Controller,
    Decision,
    End,
    Force,
    Go,
    Identity,
    Parameters,
    Probe,
    Profile,
    ProfileError,
    Reason,
    Session,
    Signals,
    Step,
    Token,
    Tokens,
    UnreachableStopWarning,
    build_method,
)

if TYPE_CHECKING:
    from bitcal_tts.engines.generate import BitCal
    from bitcal_tts.recordings import record, replay

__version__ = "0.2.0.dev0"

_LATER = {"BitCal": "engines.generate", "record": "recordings", "replay": "recordings"}


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return getattr(import_module(f"bitcal_tts.{_LATER[name]}"), name)
    raise AttributeError(f"module 'bitcal_tts' has no attribute {name!r}")


__all__ = [
    "METHODS",
    "TEXT_ONLY",
    "UNKNOWN",
    "Action",
    "Ask",
    "BitCal",
    "Controller",
    "Decision",
    "End",
    "Force",
    "Go",
    "Identity",
    "Parameters",
    "Probe",
    "Profile",
    "ProfileError",
    "Reason",
    "Session",
    "Signals",
    "Step",
    "Token",
    "Tokens",
    "UnreachableStopWarning",
    "__version__",
    "build_method",
    "load_profile",
    "record",
    "replay",
    "save_profile",
]
