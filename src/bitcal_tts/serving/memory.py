"""What the autopilot knows, kept over restarts: numbers that texts were turned into; texts only where asked for."""

from __future__ import annotations

import io
import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from bitcal_tts.halting.profile import Profile
from bitcal_tts.serving.state import State
from bitcal_tts.traces.looks import CandidateRows, LookTable, Stops

FILE = "autopilot.sqlite"
TEXTS = "texts.jsonl"
_STANDING = " standing"
_TABLES = """
CREATE TABLE IF NOT EXISTS pilots (name TEXT PRIMARY KEY, state TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS scorers (name TEXT PRIMARY KEY, profile TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS looks (name TEXT, epoch INTEGER, number INTEGER, data BLOB NOT NULL,
                                  PRIMARY KEY (name, epoch, number));
"""


class StateError(ValueError):
    """State that cannot be read; the message says what to do."""


class Memory:
    """A folder with a database: every change is made as a whole or not at all.

    Args:
        folder: Made where it is not there.
        keep_texts: Whether texts are kept too.
    """

    def __init__(self, folder: Path, *, keep_texts: bool = False) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self._keep_texts = folder, keep_texts
        with _told(folder):
            self._database = sqlite3.connect(folder / FILE, isolation_level=None, check_same_thread=False)
            self._database.execute("PRAGMA journal_mode=WAL")
            self._database.execute("PRAGMA synchronous=NORMAL")
            self._database.executescript(_TABLES)

    def close(self) -> None:
        """Give it back."""
        self._database.close()

    def save(self, name: str, state: dict[str, Any]) -> None:
        """What a pilot knows now."""
        with _told(self.folder):
            self._database.execute("INSERT OR REPLACE INTO pilots VALUES (?, ?)", (name, json.dumps(state)))

    def load(self, name: str) -> State | None:
        """What a pilot knew."""
        with _told(self.folder):
            found = self._database.execute("SELECT state FROM pilots WHERE name = ?", (name,)).fetchone()
            return None if found is None else State.from_dict(json.loads(found[0])["state"], self._scorers(name))

    def keep_text(self, question: str | None, response: str) -> None:
        """What was asked and written, where texts are kept: a line of a log that only its owner may read."""
        if not self._keep_texts:
            return
        line = json.dumps({"question": question, "response": response}) + "\n"
        file = os.open(self.folder / TEXTS, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(file, line.encode())
        finally:
            os.close(file)

    def keep_scorer(self, name: str, scorer: Profile, *, standing: bool = False) -> None:
        """What a pilot's round judges by; it is large, and kept once.

        Args:
            name: Of the pilot.
            scorer: Takes the place of the one before it.
            standing: Whether its promise stands while another scorer is tried; there is one of either kind.
        """
        with _told(self.folder):
            row = (name + _STANDING * standing, json.dumps(scorer.to_dict()))
            self._database.execute("INSERT OR REPLACE INTO scorers VALUES (?, ?)", row)

    def _scorers(self, name: str) -> dict[str, Profile | None]:
        """Those that were kept last: of the `round`, and of the one that is `standing`."""
        query = "SELECT profile FROM scorers WHERE name = ?"
        scorers: dict[str, Profile | None] = {}
        for kind, key in (("round", name), ("standing", name + _STANDING)):
            found = self._database.execute(query, (key,)).fetchone()
            scorers[kind] = None if found is None else Profile.from_dict(json.loads(found[0]))
        return scorers

    def keep(self, name: str, epoch: int, number: int, table: LookTable) -> None:
        """A request that a scorer may be fitted on."""
        with _told(self.folder):
            row = (name, epoch, number, _packed(table))
            self._database.execute("INSERT OR REPLACE INTO looks VALUES (?, ?, ?, ?)", row)

    def kept(self, name: str, epoch: int) -> list[LookTable]:
        """The requests of an epoch, in their order."""
        with _told(self.folder):
            query = "SELECT data FROM looks WHERE name = ? AND epoch = ? ORDER BY number"
            return [_unpacked(data) for (data,) in self._database.execute(query, (name, epoch)).fetchall()]

    def forget(self, name: str, before: int) -> None:
        """Requests of epochs that are over."""
        with _told(self.folder):
            self._database.execute("DELETE FROM looks WHERE name = ? AND epoch < ?", (name, before))


def states(folder: Path) -> dict[str, dict[str, Any]]:
    """What all pilots know, for one who only reads; the sidecar may be running."""
    if not (folder / FILE).exists():
        raise StateError(
            f"there is no autopilot's state in {folder}: bitcal serve --risk 0.02 keeps one (see --state); a sidecar "
            "with a profile has no autopilot, nor has the demo with its own, and both tell what they do at /metrics"
        )
    with _told(folder):
        database = sqlite3.connect(f"{(folder / FILE).resolve().as_uri()}?mode=ro", uri=True)
        try:
            return {name: json.loads(state) for name, state in database.execute("SELECT name, state FROM pilots")}
        finally:
            database.close()


@contextmanager
def _told(folder: Path) -> Iterator[None]:
    try:
        yield
    except (sqlite3.DatabaseError, KeyError, TypeError, ValueError) as error:
        if isinstance(error, sqlite3.OperationalError) and "full" in str(error):
            raise OSError(f"the autopilot's state cannot be written: the disk of {folder} is full") from None
        raise StateError(
            f"the autopilot's state in {folder} cannot be used ({error}): move {FILE} away, and it learns anew"
        ) from None


def _packed(table: LookTable) -> bytes:
    arrays: dict[str, Any] = {}
    for field in fields(LookTable):
        value = getattr(table, field.name)
        if isinstance(value, Stops | CandidateRows):
            arrays |= {f"{field.name}.{part.name}": getattr(value, part.name) for part in fields(value)}
        else:
            arrays[field.name] = np.asarray(value)
    out = io.BytesIO()
    np.savez_compressed(out, **arrays)
    return out.getvalue()


def _unpacked(data: bytes) -> LookTable:
    with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
        values: dict[str, Any] = {}
        for name, kind in (("stops", Stops), ("ends", Stops), ("candidates", CandidateRows)):
            values[name] = kind(**{part.name: arrays[f"{name}.{part.name}"] for part in fields(kind)})
        plain = ("trace", "at", "full_tokens", "full_right", "scores")
        return LookTable(
            **{name: arrays[name] for name in plain}, **values, strict=bool(arrays["strict"]), read=bool(arrays["read"])
        )
