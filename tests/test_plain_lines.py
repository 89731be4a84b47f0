"""Lines for people: broken between words in a terminal, left alone elsewhere."""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Any

import pytest

from bitcal_tts.cli import main
from bitcal_tts.commands.progress import note, say, suggest


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], str]:
    """What a terminal of forty columns shows of something."""
    monkeypatch.setenv("COLUMNS", "40")

    def show(act: Callable[[], object]) -> str:
        screen = Terminal()
        with redirect_stdout(screen), redirect_stderr(screen), suppress(SystemExit):
            act()
        return screen.getvalue()

    return show


Shown = Callable[[Callable[[], object]], str]
LONG = "playground: http://127.0.0.1:8100/a/path/that/is/longer/than/a/line and some more words behind it"


@pytest.mark.parametrize("tell", [note, say])
def test_words_and_addresses_stay_whole(shown: Shown, tell: Callable[[str], None]) -> None:
    assert shown(lambda: tell(LONG)).splitlines() == [
        "playground:",
        "http://127.0.0.1:8100/a/path/that/is/longer/than/a/line",
        "and some more words behind it",
    ]


def test_a_command_to_be_pasted_stays_in_one_line(shown: Shown) -> None:
    long = "bitcal report traces/a-rather-long-name/replays/1"
    assert shown(lambda: suggest(long)) == f"next:\n{long}\n"
    assert shown(lambda: suggest("bitcal doctor")) == "next: bitcal doctor\n"
    told = shown(lambda: suggest("the same bitcal record with a larger --n adds items; then fit again"))
    assert told == "next: the same bitcal record with a\nlarger --n adds items; then fit again\n"  # is none to paste


def test_where_there_is_no_terminal_a_line_is_a_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    say(LONG)
    note(LONG)
    assert capsys.readouterr() == (LONG + "\n", LONG + "\n")


def test_errors_are_broken_between_words(shown: Shown, tmp_path: Path) -> None:
    for arguments, message in (
        (["audit", str(tmp_path)], f"bitcal: {tmp_path} is a folder: name the files in it"),
        (["fit", "--riks", "0.01"], "there is no option --riks"),
    ):
        told = shown(lambda arguments=arguments: main(arguments))  # type: ignore[misc]
        assert message in " ".join(told.split())
        assert all(len(line) <= 40 or " " not in line for line in told.splitlines())


def test_a_note_on_the_papers_setting_comes_where_all_is_asked_for(
    store: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    replay = ["replay", str(store.folder), "--out", str(tmp_path / "a"), "--methods"]
    assert main([*replay, "fixed,adaptive"]) == 0
    assert "cannot fire" not in capsys.readouterr().err
    assert main([*replay, "fixed,adaptive", "--full"]) == 0
    assert capsys.readouterr().err.count("note: the confidence stop of 'adaptive' cannot fire") == 1
