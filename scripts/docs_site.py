"""Hooks of the documentation's site: pages link to results and to REPRODUCIBILITY.md, which lie outside `docs`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
_OUTSIDE = re.compile(r"\]\(\.\./((?:results/[^)#]+|REPRODUCIBILITY\.md))")


def on_files(files: Files, config: Any) -> Files:
    """Bring along what pages link to."""
    pages = [ROOT / "REPRODUCIBILITY.md", *(ROOT / "docs").glob("*.md")]
    linked = {name for page in pages for name in _OUTSIDE.findall(page.read_text(encoding="utf-8"))}
    for name in sorted({"REPRODUCIBILITY.md", *linked}):
        if (ROOT / name).is_file():
            files.append(File.generated(config, name, abs_src_path=str(ROOT / name)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links as they are inside the site."""
    if page.file.src_uri == "REPRODUCIBILITY.md":
        return re.sub(r"\]\(docs/", "](", markdown)
    return _OUTSIDE.sub(r"](\1", markdown)
