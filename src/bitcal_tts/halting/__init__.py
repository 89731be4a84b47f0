"""The controller: numpy and the standard library, no engine, no file, no benchmark."""

from bitcal_tts.halting.controller import Controller, Decision, Step
from bitcal_tts.halting.methods import METHODS, build_method
from bitcal_tts.halting.parameters import Parameters, UnreachableStopWarning
from bitcal_tts.halting.policy import Action, Reason

__all__ = [
    "METHODS",
    "Action",
    "Controller",
    "Decision",
    "Parameters",
    "Reason",
    "Step",
    "UnreachableStopWarning",
    "build_method",
]
