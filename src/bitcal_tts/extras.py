"""How to get what is not installed."""

from __future__ import annotations


def install_command(extra: str) -> str:
    """What installs an optional part; from the clone, for the name on PyPI is another program's."""
    return f"pip install '.[{extra}]' in the clone"
