"""Where results go: a place of their own, and nothing is overwritten unasked."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

_LEAST = 1 << 20  # bytes that there must be room for


def check_writable(out: Path, option: str = "--out") -> None:
    """Where nothing can be written, say so before the work and not after it, and which option names another place."""
    place = out.parent if out.is_file() else out
    while not place.exists():
        place = place.parent
    try:
        with TemporaryFile(dir=place) as file:
            file.write(bytes(_LEAST))
            file.flush()
    except OSError as error:
        raise ValueError(
            f"nothing can be written to {out}: making a file of a mebibyte in {place} fails ({error.strerror}); choose "
            f"another {option}"
        ) from None


def place_of_results(home: Path, key: dict[str, Any], *, inside: bool = False) -> Path:
    """The folder for a summary: where the same results are already, else one that is free.

    Args:
        home: A run folder, or a trace folder.
        key: What the summary's results follow from.
        inside: Whether `home` itself may hold them, as a run folder does.
    """
    candidates = [home] if inside else []
    number = 1
    while True:
        for folder in candidates:
            there = _key_of(folder)
            if there is None or there == key:
                return folder
        candidates = [home / "replays" / str(number)]
        number += 1


def refuse_overwriting(out: Path, key: dict[str, Any], *, overwrite: bool) -> None:
    """Other results than those that are there are refused."""
    there = _key_of(out)
    if there is not None and there != key and not overwrite:
        raise ValueError(f"{out} holds other results: choose another --out, or say --overwrite")


def refuse_existing(path: Path, *, overwrite: bool) -> None:
    """A file that is there is not replaced unasked."""
    if path.exists() and not overwrite:
        raise ValueError(f"{path} is there already: choose another --out, or say --overwrite")


def _key_of(folder: Path) -> dict[str, Any] | None:
    """What the results in a folder follow from; None where it has none."""
    if not (folder / "summary.json").exists():
        return None
    key = summary_in(folder).get("key")
    return key if isinstance(key, dict) else {}


def summary_in(folder: Path) -> dict[str, Any]:
    """The summary of a folder, empty where it has none that can be read."""
    try:
        found = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        found = None
    return found if isinstance(found, dict) else {}
