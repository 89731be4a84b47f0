"""Everything that the documentation tells people to type can be typed."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from short_task import short_task

from bitcal_tts.cli import COMMANDS, _module, parse

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def commands_in(text: str) -> list[str]:
    """Lines that begin with `bitcal`, in blocks: indented or fenced, continued lines joined, comments cut off."""
    joined = re.sub(r"\\\n\s*", " ", text)
    found = re.findall(r"^(?: {2,8})?(bitcal(?: [^\n`|=][^\n`|]*)?)$", joined, re.MULTILINE)
    return [one for line in found for one in re.sub(r"\s+#.*$", "", line).split(" && ")]


PAGE_COMMANDS = [(page.name, line) for page in PAGES for line in commands_in(page.read_text(encoding="utf-8"))]


def check(line: str) -> None:
    arguments = shlex.split(line)[1:]
    if ">" in arguments:
        arguments = arguments[: arguments.index(">")]
    if arguments and arguments != ["serve", "status"]:
        parse(arguments)  # a line that cannot be parsed ends the program


def test_there_are_commands_to_be_typed() -> None:
    assert len(PAGE_COMMANDS) > 40
    with pytest.raises(SystemExit):
        check("bitcal replay traces --profil profile.json")


@pytest.mark.parametrize(("page", "line"), PAGE_COMMANDS)
def test_a_command_of_the_documentation_is_one(page: str, line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)  # configuration files are named from here
    check(line)


@pytest.mark.parametrize("command", COMMANDS)
def test_the_example_of_a_command_can_be_typed(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    lines = commands_in(_module(command).EXAMPLE)
    assert any(line.split()[1:2] == [command] for line in lines)
    for line in lines:
        check(line)


@pytest.mark.parametrize("page", ["how-halting-works.md", "methods.md", "traces.md", "architecture.md"])
def test_the_code_of_a_page_runs(page: str, probed: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from bitcal_tts.halting.answers import FORMATS
    from bitcal_tts.halting.rules import RULES

    before, formats = dict(RULES), dict(FORMATS)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "traces").mkdir()
    (tmp_path / "traces" / "calibration").symlink_to(probed.folder)
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / page).read_text(encoding="utf-8"), re.DOTALL)
    assert blocks
    told: dict[str, Any] = {}
    for block in blocks:
        if "self.stream(prompt)" not in block:  # a sketch of an engine, which has a test of its own
            exec(block, told)
    if page == "architecture.md":
        try:
            method = told["LongEnough"](told["GateParameters"](name="long_enough", bits=32, budget=320, threshold=5.0))
            from bitcal_tts.traces.replay import outcomes

            assert len(outcomes(probed.read()[:2], method, short_task())) == 2
            assert FORMATS["final"].given("FINAL: 42\n") and not FORMATS["final"].given("#### 42\n")
        finally:
            for registry, those in ((RULES, before), (FORMATS, formats)):
                registry.clear()
                registry.update(those)  # type: ignore[arg-type]


def test_the_site_is_built_and_no_link_is_broken(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs")
    site = tmp_path / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(site)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert (site / "getting-started.html").exists()
    assert (site / "results" / "box" / "frontier-4.png").exists()
    page = site / "results.html"
    pictures = re.findall(r'src="([^":]+\.png)"', page.read_text(encoding="utf-8"))
    assert pictures and all((page.parent / picture).resolve().exists() for picture in pictures)


@pytest.mark.parametrize("shell", ["bash", "zsh", "tcsh"])
def test_completion_knows_commands_and_options(shell: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    from bitcal_tts.cli import main

    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert "replay" in script and "budgets" in script
    if shell == "bash" and shutil.which("bash"):
        (tmp_path / "script").write_text(script)
        ask = (
            f"source {tmp_path / 'script'}; COMP_WORDS=(bitcal replay --bud); COMP_CWORD=2; _shtab_bitcal; "
            'echo "${COMPREPLY[@]}"'
        )
        told = subprocess.run(["bash", "-c", ask], capture_output=True, text=True, check=True)
        assert told.stdout.strip() == "--budgets"
