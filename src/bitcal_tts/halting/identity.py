"""What a promise is tied to: everything that decides which text a model writes and what is seen of it.

*Unknown* is a value of its own: a promise is refused on what differs and on what nobody knows, unless somebody
declares it, and what was declared stays marked as declared.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

KEYS = (
    "engine",
    "model",
    "model_sha256",
    "bits",
    "scheme",
    "compute_dtype",
    "template_sha256",
    "template_options",
    "system",
    "task",
    "prompt_sha256",
    "style",
    "thinking",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "repetition_penalty",
    "signals",
    "budget",
    "handed_to",
)
"""What an identity may know."""
_USUAL = {"handed_to": None}
"""What nobody has to say: a model answers by itself, and hands nothing over to another."""
LOG = "log"
"""The engine of texts that were imported."""
_IMPORTED = {
    "bits": "as the log was imported (bitcal import --bits says another)",
    "model": "as the log was imported (bitcal import --model-name says another)",
}
DECODING = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
_IMPLIED = {"task": ("prompt_sha256", "system", "template_options")}
"""Who declares a task declares how it is asked."""


class Unknown(Enum):
    """The value of what nobody knows."""

    UNKNOWN = "unknown"

    def __repr__(self) -> str:
        return "unknown"


UNKNOWN = Unknown.UNKNOWN


class IdentityError(ValueError):
    """A declaration that cannot be taken; the message says why."""


@dataclass(frozen=True)
class Identity:
    """What is known of a recording, or of what is being served.

    Attributes:
        known: By key; None is a known value (no thinking, no system prompt), a missing key is unknown.
        declared: Keys whose value somebody declared, because it could not be read.
    """

    known: Mapping[str, Any] = field(default_factory=dict)
    declared: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        strange = sorted(set(self.known) - set(KEYS))
        if strange:
            raise IdentityError(f"an identity knows {', '.join(KEYS)}; not {', '.join(strange)}")

    @classmethod
    def of(cls, description: Mapping[str, Any], **more: Any) -> Identity:
        """The identity in a wider description, such as a manifest's; `decoding` is spread."""
        spread = {**description, **description.get("decoding", {}), **more}
        known = {key: _plain(spread[key]) for key in KEYS if key in spread}
        return cls(known, frozenset(spread.get("declared", ())))

    def __getitem__(self, key: str) -> Any:
        return self.known.get(key, _USUAL.get(key, UNKNOWN))

    @property
    def is_log(self) -> bool:
        """Whether it is of imported texts: nobody knows how they came about."""
        return bool(self["engine"] == LOG)

    def with_known(self, **values: Any) -> Identity:
        """The same with more known."""
        return Identity({**self.known, **{key: _plain(value) for key, value in values.items()}}, self.declared)

    def without(self, *keys: str) -> Identity:
        """The same with less known."""
        known = {key: value for key, value in self.known.items() if key not in keys}
        return Identity(known, self.declared - set(keys))

    def declare(self, values: Mapping[str, Any]) -> Identity:
        """The same with what is unknown declared; what is known and differs is refused."""
        known, declared = dict(self.known), set(self.declared)
        for key, value in values.items():
            if key not in KEYS:
                raise IdentityError(f"{key!r} cannot be declared; what can: {', '.join(KEYS)}")
            value = _plain(value)
            if key in known and key not in declared and known[key] != value:
                way = _IMPORTED.get(key, "as it was imported") if self.is_log else "which was read"
                raise IdentityError(f"{key} is {known[key]!r} here, {way}; it cannot be declared {value!r}")
            if key not in known:
                known[key] = value
                declared.add(key)
        return Identity(known, frozenset(declared))

    def contradictions(self, served: Identity) -> dict[str, str]:
        """Where something else is known to be served than this: by key, in words."""
        values = {key: (self[key], served[key]) for key in self._compared(served)}
        return {key: _another(key, *both) for key, both in values.items() if UNKNOWN not in both and both[0] != both[1]}

    def differences(self, served: Identity) -> dict[str, str]:
        """Where something else is served than this, or where either is unknown: by key, in words."""
        implied = {key for task, keys in _IMPLIED.items() if task in served.declared | self.declared for key in keys}
        told = {}
        for key in self._compared(served):
            mine, theirs = self[key], served[key]
            if key in implied and (mine is UNKNOWN or theirs is UNKNOWN):
                continue
            if mine is UNKNOWN:
                told[key] = f"the {key} it was fitted for is unknown (--declare {key}=VALUE where it is fitted)"
            elif theirs is UNKNOWN:
                task = next((task for task in _IMPLIED if key in _IMPLIED[task] and served[task] is UNKNOWN), None)
                way = f"--declare {key}=VALUE, if you know it" if task is None else f"declaring the {task} is enough"
                told[key] = f"fitted for {key} {_short(mine)}, which is unknown here ({way})"
            elif mine != theirs:
                told[key] = _another(key, mine, theirs)
                if key == "model" and self.is_log and served.is_log:
                    told[key] += " (where no column names it, import takes the file's name: --model-name NAME)"
        return told

    def _compared(self, served: Identity) -> list[str]:
        """Keys that count: a copy under another name is the same model."""
        mine, theirs = self["model_sha256"], served["model_sha256"]
        same_files = isinstance(mine, str) and mine == theirs  # of a log there are none
        return [key for key in KEYS if key != "model" or not same_files]

    def to_dict(self) -> dict[str, Any]:
        """JSON types; what is unknown is not there."""
        return {**self.known, "declared": sorted(self.declared)}


def _another(key: str, mine: Any, theirs: Any) -> str:
    this = "has none" if theirs is None else f"is {_short(theirs)}"
    return f"fitted for {f'no {key}' if mine is None else f'{key} {_short(mine)}'}, this {this}"


def _short(value: Any) -> str:
    """As a message has it: of a hash its beginning."""
    hashed = isinstance(value, str) and len(value) == 64 and set(value) <= set("0123456789abcdef")
    return f"{value[:12]}..." if hashed else repr(value)


def _plain(value: Any) -> Any:
    """As JSON has it, so that what was read back compares equal."""
    if isinstance(value, tuple | list):
        return [_plain(part) for part in value]
    return value
