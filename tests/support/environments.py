"""Environments with some of the extras, put together from what is installed here, so that no network is needed.

Each holds exactly the distributions that `pip install '.[EXTRA]'` would bring, linked into an empty environment.
"""

from __future__ import annotations

import venv
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement

SRC = Path(__file__).parents[2] / "src" / "bitcal_tts"


def closure(names: list[Requirement]) -> dict[str, Distribution]:
    """Distributions that requirements bring, their own included."""
    found: dict[str, Distribution] = {}
    waiting = list(names)
    while waiting:
        requirement = waiting.pop()
        name = requirement.name.lower().replace("_", "-")
        if name not in found:
            found[name] = distribution(requirement.name)
        for line in found[name].requires or []:
            more = Requirement(line)
            wanted = [
                more.marker is None or more.marker.evaluate({"extra": extra}) for extra in ("", *requirement.extras)
            ]
            if any(wanted) and more.name.lower().replace("_", "-") not in found:
                waiting.append(more)
    return found


def environment(folder: Path, extras: list[str]) -> Path:
    """A virtual environment with the package and its extras; the path of its interpreter."""
    venv.create(folder, with_pip=False, symlinks=True)
    (site,) = folder.glob("lib/python*/site-packages")
    wanted = [
        requirement
        for line in distribution("bitcal-tts").requires or []
        if (requirement := Requirement(line)).marker is None
        or any(requirement.marker.evaluate({"extra": extra}) for extra in extras)
    ]
    for found in closure([r for r in wanted if r.name != "bitcal-tts"]).values():
        for top in {file.parts[0] for file in found.files or [] if file.parts[0] not in ("..", "__pycache__")}:
            target = site / top
            if not target.exists():
                target.symlink_to(Path(str(found.locate_file(top))))
    (site / "bitcal_tts").symlink_to(SRC)
    return folder / "bin" / "python"
