"""Profiles that clients may ask for by name: files in a folder that whoever started the server has named."""

from __future__ import annotations

import json
import re
from functools import lru_cache
from pathlib import Path

from bitcal_tts.halting.profile import Profile

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")


def named_profile(folder: Path | None, name: str) -> Profile:
    """A profile by its name: clients name no paths."""
    path = None if folder is None or not _NAME.fullmatch(name) else folder / f"{name}.json"
    if path is None or not path.is_file():
        raise ValueError(f"there is no profile {name[:80]!r} on the server")
    try:
        return _read(path, path.stat().st_mtime_ns)
    except (OSError, UnicodeDecodeError, json.JSONDecodeError):
        raise ValueError(f"the profile {name!r} on the server cannot be read") from None


@lru_cache(maxsize=32)
def _read(path: Path, changed: int) -> Profile:
    """A profile's file, read once as long as it is not changed: its trees take longer to read than many tokens."""
    return Profile.from_dict(json.loads(path.read_text(encoding="utf-8")))
