"""Profiles as files: JSON, written whole or not at all."""

from __future__ import annotations

import json
from pathlib import Path

from bitcal_tts.files import write_json
from bitcal_tts.halting.profile import Profile, ProfileError


def save_profile(path: str | Path, profile: Profile) -> None:
    """Write a profile."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, profile.to_dict())


def load_profile(path: str | Path) -> Profile:
    """Read a profile, distrusting it."""
    path = Path(path)
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ProfileError(f"cannot read the profile {path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise ProfileError(f"{path} is not a profile: not JSON ({error})") from None
    try:
        return Profile.from_dict(data)
    except ProfileError as error:
        raise ProfileError(f"{path}: {error}") from None
