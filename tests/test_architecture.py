"""The house stands as DESIGN says: imports point one way, and the core needs numpy alone."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SRC = Path(__file__).parents[1] / "src" / "bitcal_tts"
# What each part may import of the package, besides itself.
ALLOWED = {
    "halting": set(),
    "engines": {"halting"},
    "tasks": {"halting"},
    "traces": {"halting", "engines", "tasks", "files"},
    "calibration": {"halting", "tasks", "traces", "files"},
    "evaluation": {"halting", "engines", "tasks", "traces", "files"},
    "tiny": {"tasks"},
}


def imported(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return names


@pytest.mark.parametrize("part", ALLOWED)
def test_imports_point_one_way(part: str) -> None:
    files = sorted((SRC / part).rglob("*.py"))
    assert files
    for path in files:
        for name in imported(path):
            if name.startswith("bitcal_tts."):
                other = name.split(".")[1]
                assert other == part or other in ALLOWED[part], f"{path} imports {name}"


def test_halting_imports_numpy_and_the_standard_library_only() -> None:
    for path in (SRC / "halting").rglob("*.py"):
        for name in imported(path):
            top = name.split(".")[0]
            assert top in {"numpy", "bitcal_tts"} or top in sys.stdlib_module_names, f"{path} imports {name}"


def test_importing_the_package_loads_no_engine() -> None:
    code = (
        "import sys, bitcal_tts\n"
        "heavy = {'torch', 'transformers', 'pyarrow', 'rich', 'yaml', 'scipy', 'sklearn', 'reasoning_gym'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
