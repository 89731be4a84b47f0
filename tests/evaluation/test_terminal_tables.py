"""Tables in the terminal: as narrow as it is, and nothing is cut off."""

from __future__ import annotations

import pytest

from bitcal_tts.commands.table import print_table

NAMES = ("method", "target", "threshold", "setting", "accuracy %", "saved %", "probes free", "lost %")
ROWS = [
    ("halt_cot, our looks", "0.5 %", "-2.55e-05", "looks statements", "65.0", "-0.2", "4.3", "0.00"),
    ("oracle_final", "5 %", "19.7", "mu0 0.353, looks sentences", "62.5", "22.5", "22.5", "5.00"),
]


def test_a_narrow_table_keeps_words_whole_and_folds_the_rest(capsys: pytest.CaptureFixture[str]) -> None:
    print_table("A table", NAMES, ROWS, width=80)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    text = "\n".join(lines)
    assert "…" not in text
    for word in ("halt_cot,", "our looks", "oracle_final"):
        assert f"│ {word} " in text
    cells = [
        "".join(part.strip() for part in column)
        for column in zip(*(line.split("│")[1:-1] for line in lines if line.startswith("│")), strict=True)
    ]
    assert cells[2] == "-2.55e-0519.7" and cells[3] == "looksstatementsmu00.353,lookssentences"


def test_a_table_that_fits_is_left_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    print_table("A table", NAMES, ROWS, width=120)
    assert "│ halt_cot, our looks │" in capsys.readouterr().out
