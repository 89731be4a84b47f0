"""The models in the box, by name."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

PREFIX = "tiny-"
# The paper recommends a floor near the model's solution lengths; these models answer after some 90 tokens.
MIN_TOKENS = 48


def weights_folder() -> Path:
    """Where the weights lie."""
    return Path(str(files("bitcal_tts.tiny").joinpath("weights")))


def available() -> list[str]:
    """Names of the models that are in the package, smallest first."""
    found = [path.name for path in weights_folder().glob(f"{PREFIX}*") if (path / "config.json").is_file()]
    return sorted(found, key=lambda name: int(name.removeprefix(PREFIX).rstrip("m")))


def resolve(name: str) -> str:
    """The folder of a model in the box; any other name, a folder or a hub id, as given."""
    if name in available():
        return str(weights_folder() / name)
    if name.startswith(PREFIX) and not Path(name).exists():
        raise ValueError(f"there is no model {name!r} in the box; available: {', '.join(available()) or 'none'}")
    return name
