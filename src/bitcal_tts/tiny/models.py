"""The models in the box, by name."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from bitcal_tts.halting.checks import did_you_mean

PREFIX = "tiny-"
# The paper recommends a floor near the model's solution lengths; these models answer after some 90 tokens.
MIN_TOKENS = 48
_NEARLY = 0.8


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
    # One that is nearly the name of one of them would be looked for on the hub, for half a minute.
    meant = "" if "/" in name else did_you_mean(name, available(), likeness=_NEARLY)
    if (name.startswith(PREFIX) or meant) and not Path(name).exists():
        raise ValueError(f"there is no model {name!r} in the box{meant}; available: {', '.join(available()) or 'none'}")
    return name
