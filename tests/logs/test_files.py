"""Files as people have them: every ending, and everything that can be wrong with them."""

from __future__ import annotations

import bz2
import csv
import gzip
import json
import lzma
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bitcal_tts.logs import Fault, LogError, LoggedText, read_records, read_texts
from bitcal_tts.logs.files import bare_name

ROWS = [
    {"question": "1+1?", "response": "It is 2.\nSo \\boxed{2}", "gold": "2"},
    {"question": "ü", "response": "x" * 9},
]


def values(path: Path) -> list[Any]:
    return [record if isinstance(record, Fault) else record.values for record in read_records(path)]


@pytest.mark.parametrize("ending", ["", ".gz", ".xz", ".bz2"])
def test_jsonl_plain_and_compressed(tmp_path: Path, ending: str) -> None:
    raw = "\n".join(json.dumps(row, ensure_ascii=False) for row in ROWS).encode()
    path = tmp_path / f"log.jsonl{ending}"
    packers: dict[str, Any] = {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress, ".bz2": bz2.compress}
    path.write_bytes(packers[ending](raw))
    assert values(path) == ROWS


def test_a_name_keeps_the_dots_that_are_its_own() -> None:
    names = ("r1-1.5b-bf16.jsonl.xz", "r1-1.5b-3bit.jsonl", "s1.1.csv.gz", "log.2026-11-19.parquet", "plain.json")
    assert [bare_name(Path("logs") / name) for name in names] == [
        "r1-1.5b-bf16", "r1-1.5b-3bit", "s1.1", "log.2026-11-19", "plain"
    ]  # fmt: skip


def test_json_csv_and_parquet(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(ROWS))
    (tmp_path / "b.json").write_text(json.dumps({"rows": ROWS, "version": 1}, indent=1))
    (tmp_path / "c.json").write_text("\n".join(map(json.dumps, ROWS)))
    for name in "abc":
        assert values(tmp_path / f"{name}.json") == ROWS, name
    pq.write_table(pa.Table.from_pylist(ROWS), tmp_path / "d.parquet")
    assert [row["question"] for row in values(tmp_path / "d.parquet")] == ["1+1?", "ü"]
    with (tmp_path / "e.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, ["question", "response"])
        writer.writeheader()
        writer.writerows(
            [
                {"question": "1+1?", "response": 'two\nlines, and a "quote"'},
                {"question": "x", "response": "y" * 300_000},
            ]
        )
    assert values(tmp_path / "e.csv")[0]["response"] == 'two\nlines, and a "quote"'
    assert len(values(tmp_path / "e.csv")[1]["response"]) == 300_000


def test_json_on_one_line_and_a_single_chat(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"rows": ROWS, "version": 1}))
    assert values(path) == ROWS
    path.write_bytes(b"\xef\xbb\xbf" + "\n".join(map(json.dumps, ROWS)).encode())
    assert values(path) == ROWS
    chat = {"messages": [{"role": "user", "content": "q?"}, {"role": "assistant", "content": "r"}], "gold": "7"}
    for indent in (None, 1):
        path.write_text(json.dumps(chat, indent=indent))
        assert values(path) == [chat]


def test_columns_of_a_parquet_file_that_nobody_needs_are_in_nobodys_way(tmp_path: Path) -> None:
    nowhere = pa.array([0, 1], pa.timestamp("us", tz="Mars/Phobos"))
    far = pa.array([2**62, 1], pa.timestamp("us"))  # past the last year that Python has
    raw = pa.array([b"It is 2.", b"\xff"], pa.binary())
    picture = pa.array([b"\xff\xd8", b"\xff\xd8"], pa.binary())
    table = pa.table({"question": ["1+1?", "ü"], "asked": nowhere, "told": far, "response": raw, "picture": picture})
    pq.write_table(table, tmp_path / "a.parquet")
    first, second = read_texts(tmp_path / "a.parquet", gold=False)
    assert isinstance(first, LoggedText) and (first.question, first.response) == ("1+1?", "It is 2.")
    assert isinstance(second, Fault) and second.why == "has a response that is not UTF-8"


def test_a_bad_record_is_told_and_the_rest_is_read(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    lines = [
        json.dumps(ROWS[0]).encode(),
        b"{broken",
        b'{"question": "\xff"}',
        b"[1]",
        b"",
        b"[" * 100_000,
        json.dumps(ROWS[1]).encode(),
    ]
    path.write_bytes(b"\n".join(lines))
    found = values(path)
    assert [type(record).__name__ for record in found] == ["dict", "Fault", "Fault", "Fault", "Fault", "dict"]
    assert found[1].line == 2 and "is no JSON" in found[1].why
    assert found[2].line == 3 and "is not UTF-8" in found[2].why
    assert found[3].why == "is no JSON object"


def test_csv_with_bad_lines(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_bytes(b"question,response\na,b\nonly one\n\xff,c\nd,e\n")
    assert [record.why if isinstance(record, Fault) else record["question"] for record in values(path)] == [
        "a", "has another number of fields than the 2 of the first line", "is not UTF-8", "d",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("log.txt", b"", "has an unknown ending"),
        ("log.jsonl.gz", b"no gzip", "cannot be read to its end"),
        ("log.parquet", b"no parquet", "cannot be read"),
        ("log.parquet.gz", b"", "is compressed inside"),
    ],
)
def test_a_file_that_cannot_be_read(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(LogError, match=message):
        values(tmp_path / name)
    with pytest.raises(LogError, match="is not a file"):
        values(tmp_path / "nowhere.jsonl")
