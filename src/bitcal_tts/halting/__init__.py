"""The core: methods, sessions, profiles. numpy and the standard library; no engine, no file, no benchmark."""

from bitcal_tts.halting.controller import Controller, Decision, Probe, Step
from bitcal_tts.halting.exchange import Ask, End, Force, Go, Token, Tokens
from bitcal_tts.halting.identity import UNKNOWN, Identity
from bitcal_tts.halting.methods import METHODS, build_method
from bitcal_tts.halting.parameters import Parameters, UnreachableStopWarning
from bitcal_tts.halting.policy import Action, Reason
from bitcal_tts.halting.profile import Profile, ProfileError
from bitcal_tts.halting.session import Session
from bitcal_tts.halting.signals import TEXT_ONLY, Signals

__all__ = [
    "METHODS",
    "TEXT_ONLY",
    "UNKNOWN",
    "Action",
    "Ask",
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
    "build_method",
]
