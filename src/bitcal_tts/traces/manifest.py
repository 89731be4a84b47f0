"""What a trace folder says of itself: what determines its tokens, what it holds of them, and what has grown since.

`identity` is what determines the tokens. Everything else may grow or be read anew: items are added in segments, probes
to finished traces, and the answer format of `reading` is only the usual one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from bitcal_tts.halting.identity import Identity
from bitcal_tts.halting.signals import Signals
from bitcal_tts.traces.trace import TraceError

SCHEMA_VERSION = 3
_REQUIRED = frozenset({"model", "bits", "task", "budget", "decoding"})
"""What reading, scoring and naming a recording needs of its identity."""
_NEW_IN_3 = {"top_p": 1.0, "top_k": 0, "min_p": 0.0}


@dataclass(frozen=True)
class Segment:
    """Items that were added together, cut into blocks of similar length."""

    first: int
    items: int
    batch_size: int
    block_size: int
    skipped_long: int = 0

    @property
    def blocks(self) -> int:
        """How many blocks."""
        return -(-self.items // self.block_size)


@dataclass(frozen=True)
class Manifest:
    """A recording, as its manifest.json tells it.

    Attributes:
        tokens: What determines the tokens: engine, model, template, prompt, task, seed, decoding, budget.
        content: Which signals are recorded: `signals` (full, top or absent), `k`, `chunk_size`, `keep_hidden`, and
            `hidden`, false where there are no hidden states.
        reading: How answers are usually read: `answers`, and `execute` where code is run.
        segments: Items, in the order in which they were added.
        probes: `every` and `answers` of the probes, or None.
        environment: Versions and machine.
        older_sha256: Under which parts of an older schema were written.
    """

    tokens: Mapping[str, Any]
    content: Mapping[str, Any]
    reading: Mapping[str, Any]
    environment: Mapping[str, Any]
    segments: Sequence[Segment] = ()
    probes: Mapping[str, Any] | None = None
    older_sha256: str | None = None

    @property
    def n(self) -> int:
        """Items asked for so far, those that did not fit left out."""
        return sum(segment.items for segment in self.segments)

    @property
    def skipped_long(self) -> int:
        """Items that did not fit."""
        return sum(segment.skipped_long for segment in self.segments)

    @property
    def blocks(self) -> int:
        """How many blocks they make."""
        return sum(segment.blocks for segment in self.segments)

    @property
    def signals(self) -> Signals:
        """What a trace holds of every token."""
        return Signals(
            self.content["signals"],
            k=self.content.get("k"),
            hidden_every=self.content["chunk_size"] if self.content.get("hidden", True) else None,
            probes=self.probes is not None,
        )

    @property
    def identity(self) -> Identity:
        """What a promise is tied to."""
        return Identity.of(self.tokens, signals=str(self.signals))

    @property
    def description(self) -> dict[str, Any]:
        """All of it in one flat mapping, for titles, tables and methods."""
        return {
            **self.tokens,
            **self.content,
            **self.reading,
            "n": self.n,
            "skipped_long": self.skipped_long,
            "probes": self.probes["every"] if self.probes else None,
            "probed_answers": self.probes["answers"] if self.probes else None,
        }

    @property
    def sha256(self) -> str:
        """Ties parts to the recording they belong to."""
        return _sha256(self.tokens)

    @property
    def accepted_sha256(self) -> set[str]:
        """What the parts may say they belong to."""
        return {self.sha256, *([self.older_sha256] if self.older_sha256 else [])}

    def with_segment(self, segment: Segment) -> Manifest:
        """The same, with items added."""
        return replace(self, segments=(*self.segments, segment))

    def with_probes(self, probes: Mapping[str, Any]) -> Manifest:
        """The same, probed."""
        return replace(self, probes=probes)

    def to_dict(self) -> dict[str, Any]:
        """JSON types."""
        return {
            "schema": SCHEMA_VERSION,
            "identity": dict(self.tokens),
            "content": dict(self.content),
            "reading": dict(self.reading),
            "segments": [asdict(segment) for segment in self.segments],
            "probes": None if self.probes is None else dict(self.probes),
            **({"older_sha256": self.older_sha256} if self.older_sha256 else {}),
            "environment": dict(self.environment),
        }

    @classmethod
    def from_dict(cls, data: Any, where: str) -> Manifest:
        """Read what `to_dict` wrote, or the schema before it, distrusting it."""
        version = data.get("schema") if isinstance(data, dict) else None
        if version not in (2, SCHEMA_VERSION) or isinstance(version, bool):
            raise TraceError(f"{where} has schema {version!r}, this version reads schema {SCHEMA_VERSION} and 2")
        tokens = data.get("identity")
        missing = _REQUIRED - (tokens.keys() if isinstance(tokens, dict) else set())
        if missing:
            raise TraceError(f"{where} lacks {', '.join(sorted(missing))} in its 'identity'")
        try:
            manifest = _from_2(data) if version == 2 else _from_3(data)
            _read_all(manifest)
            return manifest
        except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError) as error:
            raise TraceError(f"{where} is damaged: {type(error).__name__}: {error}") from None


def _read_all(manifest: Manifest) -> None:
    """Every part, once: what is damaged is found now."""
    manifest.blocks, manifest.description, manifest.identity  # noqa: B018
    manifest.tokens["decoding"]["temperature"]


def _from_3(data: Mapping[str, Any]) -> Manifest:
    return Manifest(
        tokens=data["identity"],
        content=data["content"],
        reading=data["reading"],
        environment=data["environment"],
        segments=tuple(Segment(**segment) for segment in data["segments"]),
        probes=data["probes"],
        older_sha256=data.get("older_sha256"),
    )


def _from_2(data: Mapping[str, Any]) -> Manifest:
    """Schema 2 had all of it in one identity, and could not grow."""
    old = dict(data["identity"])
    sha256 = _sha256(old)
    segment = Segment(
        first=0,
        items=old.pop("n"),
        batch_size=old.pop("batch_size"),
        block_size=old.pop("block_size"),
        skipped_long=old.pop("skipped_long", 0),
    )
    old.pop("blocks")
    answers = old.pop("answers")
    reading = {"answers": answers, "execute": old.pop("execute", False)}
    content = {"signals": "full", "chunk_size": old.pop("chunk_size"), "keep_hidden": old.pop("keep_hidden")}
    every = old.pop("probes", None)
    old["decoding"] = {**old["decoding"], **_NEW_IN_3}
    old["style"] = "thinking" if old.get("thinking") else "instruct"
    old |= {"system": None, "repetition_penalty": 1.0}
    return Manifest(
        tokens=old,
        content=content,
        reading=reading,
        environment=data.get("environment", {}),
        segments=(segment,),
        probes=None if every is None else {"every": every, "answers": answers},
        older_sha256=sha256,
    )


def differing(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """The keys whose values differ; one that is missing differs from all but None."""
    return [key for key in sorted(one.keys() | other.keys()) if one.get(key) != other.get(key)]


def _sha256(value: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
