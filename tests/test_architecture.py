"""The house stands as DESIGN says: imports point one way, and the core needs numpy alone."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from short_task import short_task

SRC = Path(__file__).parents[1] / "src" / "bitcal_tts"
# What each part may import of the package, besides itself.
ALLOWED = {
    "halting": set(),
    "engines": {"halting", "files", "installing"},
    "tasks": {"halting", "installing"},
    "logs": {"halting"},
    "traces": {"halting", "engines", "tasks", "logs", "files", "workers"},
    "calibration": {"halting", "tasks", "traces", "files", "openmp"},
    "evaluation": {"halting", "engines", "tasks", "traces", "files"},
    "serving": {"halting", "engines", "traces", "calibration"},
    "auditing": {"halting", "tasks", "logs", "traces", "calibration", "evaluation"},
    "tiny": {"halting", "tasks"},
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
        "heavy |= {'lightgbm', 'tokenizers'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_rule_in_the_documentation_works(probed: Any) -> None:
    """It is written there as a few lines: they are run, and the rule replayed and swept."""
    from bitcal_tts import build_method
    from bitcal_tts.halting.rules import RULES
    from bitcal_tts.traces.replay import outcomes
    from bitcal_tts.traces.walk import gate_looks

    text = (SRC.parents[1] / "docs" / "architecture.md").read_text(encoding="utf-8")
    code = re.search(r"```python\n(from .*?)```", text, re.DOTALL)
    assert code is not None
    try:
        exec(code[1], {})
        opening, close = probed.description["thinking"]
        method = build_method("long_enough", bits=32, budget=320, threshold=4.0, opening=opening, close=close)
        traces = probed.read()[:8]
        done = outcomes(traces, method, short_task())
        assert any(o.reason == "exit" for o in done)
        assert gate_looks(traces, method, short_task()).cut(4.0).cost.tolist() == [o.cost for o in done]
    finally:
        RULES.pop("long_enough", None)


def test_the_code_in_the_readme_runs_as_it_stands_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each block by itself, in the clone: its own generate call, a session, and a profile (docs/engines.md)."""
    root = SRC.parents[1]
    monkeypatch.chdir(root)
    blocks = [
        block
        for page in ("README.md", "docs/engines.md")
        for block in re.findall(r"```python\n(.*?)```", (root / page).read_text(encoding="utf-8"), re.DOTALL)
    ]
    assert len(blocks) == 3
    told: dict[str, Any] = {}
    exec(blocks[0], told)
    assert told["bitcal"].results[0].tokens > 0
    exec(blocks[1], told := {})
    assert (told["session"].outcome.answer, told["session"].outcome.tokens) == ("7", 4)
    exec(blocks[2], told := {})
    assert told["bitcal"].results[0].tokens > 0 and told["settled"].promises  # the profile was not refused
