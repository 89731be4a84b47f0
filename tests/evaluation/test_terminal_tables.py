"""Tables in the terminal: as narrow as it is, and nothing is cut off."""

from __future__ import annotations

import pytest

from bitcal_tts.commands.table import print_table

NAMES = ("method", "target", "threshold", "setting", "accuracy %", "saved %", "probes free", "lost %")
ROWS = [
    ("halt_cot, our looks", "0.5 %", "-2.55e-05", "looks statements", "65.0", "-0.2", "4.3", "0.00"),
    ("oracle_final", "5 %", "19.7", "mu0 0.353, looks sentences", "62.5", "22.5", "22.5", "5.00"),
]


def lines_of(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().out.splitlines()


def test_a_narrow_table_breaks_neither_words_nor_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    print_table("A table", NAMES, ROWS, width=80)
    lines = lines_of(capsys)
    assert max(map(len, lines)) <= 80 and not any("…" in line for line in lines)
    told = [line.split() for line in lines]
    assert ["halt_cot,", "our", "0.5", "%", "-2.55e-05", "looks", "65.0", "-0.2", "4.3", "0.00"] in told
    assert ["looks", "statements"] in told
    assert ["oracle_final", "5", "%", "19.7", "mu0", "0.353,", "62.5", "22.5", "22.5", "5.00"] in told


def test_intervals_of_a_narrow_table_go_on_in_the_next_line(capsys: pytest.CaptureFixture[str]) -> None:
    names = ("method", "against", "points [95 % interval]", "won : lost", "p", "verdict")
    rows = [("bitcal_tts", "adaptive", "+18.0 [+11.0, +24.4]", "23 : 0", "3.3e-06", "not resolved")]
    print_table("", names, rows, width=74)
    lines = lines_of(capsys)
    assert max(map(len, lines)) <= 74
    cells = [[part.strip() for part in line.split("│")[1:-1]] for line in lines if line.startswith("│")]
    assert cells == [
        ["bitcal_tts", "adaptive", "+18.0", "23 : 0", "3.3e-06", "not"], ["", "", "[+11.0, +24.4]", "", "", "resolved"],
    ]  # fmt: skip


def test_a_table_that_cannot_fit_is_folded_rather_than_cut(capsys: pytest.CaptureFixture[str]) -> None:
    names = tuple(f"{letter}{letter}" for letter in "abcdefgh")
    print_table("", names, [tuple(letter * 12 for letter in "abcdefgh")], width=40)
    told = "".join(lines_of(capsys))
    assert all(told.count(letter) >= 12 for letter in "abcdefgh")


def test_of_names_that_are_equal_each_stays_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [("dynasor, our looks = convergence, our looks", "72.5", "25.7", "28.8", "0.00")]
    print_table("", ("method", "accuracy %", "saved %", "probes free", "lost %"), rows, width=66)
    told = "\n".join(lines_of(capsys))
    assert "│ dynasor, our looks =   │" in told and "│ convergence, our looks │" in told
    assert "accuracy" in told and "probes" in told  # and so do the words of a column's name


def test_a_table_that_fits_is_left_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    print_table("A table", NAMES, ROWS, width=120)
    assert "│ halt_cot, our looks │" in capsys.readouterr().out
