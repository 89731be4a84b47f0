"""How optional parts are installed, from where this program came: its name on PyPI is another program's."""

from __future__ import annotations

import json
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from shlex import quote
from urllib.parse import urlsplit
from urllib.request import url2pathname


def install_command(extra: str) -> str:
    """What installs an optional part: from the wheel that this was installed from, or from the clone."""
    wheel = _wheel()
    return f"pip install '.[{extra}]' in the clone" if wheel is None else f"pip install {quote(f'{wheel}[{extra}]')}"


def can_draw() -> bool:
    """Whether figures can be drawn here."""
    return find_spec("matplotlib") is not None


@lru_cache(maxsize=1)
def _wheel() -> Path | None:
    """The file that pip wrote down as what it installed, where it is one and still there."""
    try:
        told = distribution("bitcal-tts").read_text("direct_url.json")
    except PackageNotFoundError:
        return None
    url = urlsplit(json.loads(told)["url"] if told else "")
    file = Path(url2pathname(url.path))
    return file if url.scheme == "file" and file.suffix == ".whl" and file.is_file() else None
