"""`bitcal audit` and `bitcal import` as people run them, on texts made here and, where they are, on the shared ones."""

from __future__ import annotations

import argparse
import gzip
import json
import math
import random
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bitcal_tts.auditing.crossfit import FoldScorers, candidates_of, crossed, fit_folds, loosest
from bitcal_tts.auditing.findings import HEADINGS, Audited, cells, scored, verdict, worth_showing
from bitcal_tts.auditing.page import Example, FilePart, Stop, render
from bitcal_tts.auditing.reading import ReadText
from bitcal_tts.auditing.walking import FOLDS, Setting, Walked, fold_of, walk_texts
from bitcal_tts.calibration.recording import mark_of_question
from bitcal_tts.cli import main
from bitcal_tts.commands.logs import as_told
from bitcal_tts.halting.methods import build_method
from bitcal_tts.logs import LoggedText
from bitcal_tts.logs.counting import splitter
from bitcal_tts.traces.cut import Cut
from bitcal_tts.traces.looks import Stops
from bitcal_tts.traces.replay import outcomes
from bitcal_tts.traces.texts import trace_of
from bitcal_tts.traces.walk import gate_looks

SHARED = Path(__file__).parents[3] / "shared"
FIELDS = {
    "file", "model", "method", "risk", "n", "accuracy", "full_accuracy", "share", "thinking_share", "lost_correct_rate",
    "lost_low", "lost_high", "certified",
}  # fmt: skip


def made(i: int) -> dict[str, Any]:
    """A text that computes in two steps, checks itself, and is right more often than not."""
    draw = random.Random(i)
    a, b, c = draw.randint(2, 40), draw.randint(2, 40), draw.randint(2, 9)
    first, final = a + b, (a + b) * c
    said = final if draw.random() < 0.9 else final + 1
    checks = "".join(
        f"Wait, let me check. {a} + {b} = {first}. {first} * {c} = {said}. Yes, that's right.\n"
        for _ in range(draw.randint(2, 9))
    )
    early = f"So the answer is {first}. Wait, no, that is one day only.\n" if draw.random() < 0.4 else ""
    return {
        "question": f"Ann sells {a} cups and {b} pots a day. How many things does Ann sell in {c} days?",
        "response": f"<think>\nFirst, {a} + {b} = {first} things a day.\n{early}"
        f"So in {c} days Ann sells {first} * {c} = {said} things.\n{checks}So the answer is {said}.\n"
        f"</think>\n\nAnn sells \\boxed{{{said}}} things.",
        "gold": str(final),
        "model": "made up",
    }


def text_of(i: int) -> LoggedText:
    record = made(i)
    return LoggedText(i + 1, str(i), record["question"], record["response"], record["gold"])


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("logs") / "log.jsonl.gz"
    path.write_bytes(gzip.compress("\n".join(json.dumps(made(i)) for i in range(150)).encode()))
    return path


@pytest.fixture(scope="module")
def walked(log: Path) -> Walked:
    return walk_texts([text_of(i) for i in range(150)], Setting("number", "</think>"))


def rows_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, Any]]:
    assert main(["audit", *arguments, "--json", "--jobs", "1"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["schema"] == 1
    rows: list[dict[str, Any]] = told["rows"]
    return rows


def test_a_row_a_method_and_risk(log: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    rows = rows_of(capsys, str(log), "--out", str(tmp_path / "out"), "--starter", "none")
    assert all(row.keys() >= FIELDS for row in rows)
    settled = {row["risk"]: row for row in rows if row["method"] == "settled"}
    assert list(settled) == [0.005, 0.01, 0.02, 0.05]
    by_name = {row["method"]: row for row in rows}
    assert by_name["full"]["share"] == 1.0 and by_name["full"]["lost_correct_rate"] == 0.0
    assert by_name["oracle"]["share"] < 0.8 and by_name["oracle"]["lost_correct_rate"] == 0.0
    assert settled[0.05]["share"] <= settled[0.005]["share"] <= 1.0
    assert settled[0.05]["share"] < 0.9  # these texts are easy
    assert by_name["stated_1"]["lost_correct_rate"] > 0.2  # and state a wrong answer first in two of five
    assert {row["n"] for row in rows} == {150} and by_name["full"]["model"] == "made up"
    assert 0.75 < by_name["full"]["full_accuracy"] < 0.95
    page = (tmp_path / "out" / "audit.html").read_text(encoding="utf-8")
    assert "settled at 1 %" in page and "stated_1 reads " in page and "<script" not in page
    assert "thinking on" in page and "writing it up" in page and "going on" not in page
    assert json.loads((tmp_path / "out" / "audit.json").read_text())["rows"] == rows


def test_two_files_of_one_name_are_two(log: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    other = tmp_path / log.name
    other.write_bytes(gzip.compress("\n".join(json.dumps(made(i)) for i in range(200, 300)).encode()))
    rows = rows_of(capsys, str(log), str(other), "--risks", "0.05")
    assert {(row["file"], row["n"]) for row in rows} == {(str(log), 150), (str(other), 100)}
    assert main(["audit", str(log), str(log)]) == 2
    assert "a file is named twice" in capsys.readouterr().err


def test_examples_are_cut_as_the_row_is(walked: Walked) -> None:
    """Where texts find their way out of loops, the guard is left out of both."""
    table = scored(walked, FoldScorers((None,) * FOLDS)).settled
    tenth = np.arange(table.n) % 10 == 0
    guarded = Stops.of(
        [(9, 0, False, False, True, "loop") if stopped else (9, 0, True, True, False, "") for stopped in tenth]
    )
    one = Audited("f", None, "number", "</think>", "gold", replace(walked, settled=replace(table, ends=guarded)), 0)
    (row,) = [row for row in one.rows([0.01]) if row["method"] == "settled"]
    cut = one.marks(0.01)["settled at 1 %"][1]
    assert row["lost_correct_rate"] == cut.losses("gold").mean() == 0.0


def test_what_is_lost_is_shown_first_and_nothing_saves_that_never_stops() -> None:
    ends = Stops.of(
        [(100, 0, True, True, False, "")] * 5  # decoded to their end
        + [(10, 0, True, True, True, "settled"), (40, 0, False, False, True, "settled"), (20, 0, True, True, True, "")]
    )
    cut = Cut(
        ends.tokens, ends.probe_tokens, ends.right, ends.same, ends.halted, ends.reasons,
        full_tokens=np.full(8, 100), full_correct=np.full(8, True),
    )  # fmt: skip
    shown = worth_showing(cut, "gold")
    assert list(shown.items()) == [
        (6, "settled loses"), (5, "settled saves most"), (7, "settled saves most"),
        *((i, "settled never stops") for i in range(4)),
    ]  # fmt: skip


def test_people_see_a_table_and_sentences(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", str(log), "--jobs", "1", "--risks", "0.05"]) == 0
    shown = capsys.readouterr().out
    *lines, following = shown.splitlines()
    assert max(map(len, lines)) <= 80
    name = log.name.partition(".")[0]
    assert following == f"next: bitcal import {log} --out traces/{name}"  # in one piece, however long
    typed = argparse.Namespace(question="a b", response="c", answer=None, model=None, id=None, tokenizer=None)
    typed.answers, typed.close = "number", None
    assert as_told(typed) == " --question 'a b' --response c --answers number"
    told = " ".join(shown.split())
    assert told.index("lost right answers in") < told.index("texts of") < told.index("lost %")
    assert "settled" in told and "% of all tokens reach the answer" in told
    assert "5 % could be promised" in told or "more texts" in told or "cannot be promised" in told
    assert "provable" in told and "thinking %" not in told and "--full" in told
    assert main(["audit", str(log), "--jobs", "1", "--risks", "0.05", "--full"]) == 0
    shown = capsys.readouterr().out
    assert "thinking" in shown and max(map(len, shown.splitlines()[:-1])) <= 80


def test_a_promise_is_forecast_from_the_texts_that_fit_would_certify_with(walked: Walked) -> None:
    """Of 150 texts none of which settled loses, 150 certify 2 %, 75 do not, and takes as many more as fit would say."""
    table = walked.settled
    kept = np.ones(table.n, dtype=np.bool_)
    right = replace(table.stops, right=np.ones(len(table), dtype=np.bool_))
    harmless = replace(table, stops=right, scores=np.full(len(table), 0.5), full_right=kept)
    whole = Audited("f", None, "number", "</think>", "gold", replace(walked, settled=harmless), 0)
    for one, certified, more in ((whole, True, 0), (replace(whole, certifying=0.5), False, 78)):
        (row,) = [row for row in one.rows([0.02]) if row["method"] == "settled"]
        assert (row["certified"], row["more_items_needed"]) == (certified, more)  # 114 certify 2 %: 2 * 114 - 150


def test_a_cell_says_what_could_be_promised_or_what_it_would_take() -> None:
    row: dict[str, Any] = {"method": "settled", "risk": 0.01, "share": 0.7, "lost_correct_rate": 0.0}
    row |= {"lost_low": 0.0, "lost_high": 0.1, "accuracy": None, "thinking_share": 0.8}

    def provable(**known: Any) -> str:
        return dict(zip(HEADINGS, cells({**row, **known}), strict=True))["provable"]

    assert provable(certified=True, certified_share=0.734) == "at 73.4"
    assert provable(certified=False, more_items_needed=1200) == "+1,200 texts"
    assert provable(certified=False, more_items_needed=None) == "no"
    assert provable(certified=None) == ""


def test_without_gold_another_answer_is_a_loss(log: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "blind.jsonl"
    path.write_text("\n".join(json.dumps({k: v for k, v in made(i).items() if k != "gold"}) for i in range(120)))
    rows = rows_of(capsys, str(path), "--label", "final", "--risks", "0.05")
    settled = next(row for row in rows if row["method"] == "settled")
    assert settled["accuracy"] is settled["full_accuracy"] is None
    assert settled["share"] < 1.0 and settled["lost_correct_rate"] < 0.15
    assert main(["audit", str(path)]) == 2
    assert (
        "has no gold answer (--answer NAME says which column it is in; --label final needs none)"
        in capsys.readouterr().err
    )


def test_bad_records_are_told_and_counted(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    lines = [json.dumps(made(i)) for i in range(60)]
    odd = [
        "{broken",
        json.dumps({**made(1), "response": ""}),
        json.dumps({**made(2), "gold": None}),
        json.dumps({**made(3), "response": "no digits at all. None."}),
        json.dumps({**made(4), "gold": "plenty"}),
        json.dumps({**made(5), "response": "7 and 8. " * 220_000}),
    ]
    path = tmp_path / "odd.jsonl"
    path.write_text("\n".join([*lines, *odd]))
    rows = rows_of(capsys, str(path), "--risks", "0.05", "--starter", "none")
    assert {row["n"] for row in rows} == {63}
    path.write_bytes(path.read_bytes() + b'\n{"question": "\xff"}')
    assert main(["audit", str(path), "--json", "--jobs", "1", "--risks", "0.05", "--starter", "none"]) == 0
    noted = capsys.readouterr().err
    assert "record 61 is no JSON" in noted and "record 62 has no response: it is left out" in noted
    assert "record 67 is not UTF-8" in noted


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere.jsonl"], "is not a file"),
        (["LOG", "--risks", "2"], "risks lie above 0 and below 1"),
        (["LOG", "--question", "nope"], "has no column 'nope'"),
        (["LOG", "--jobs", "0"], "--jobs must be at least 1"),
    ],
)
def test_bad_arguments(log: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str) -> None:
    try:
        code = main(["audit", *[str(log) if part == "LOG" else part for part in arguments]])
    except SystemExit as stop:
        code = int(stop.code or 0)
    assert code == 2 and message in capsys.readouterr().err


def test_questions_are_dealt_by_their_text(walked: Walked) -> None:
    assert walked.folds.tolist() == [fold_of(mark_of_question(made(i)["question"])) for i in range(150)]
    assert set(walked.folds.tolist()) == set(range(FOLDS))


def test_nobody_is_scored_by_what_saw_his_question(walked: Walked, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows that a fold's scorer is fitted on are those of the other folds."""
    seen: list[int] = []

    def spy(rows: Any, *_: Any, **__: Any) -> dict[str, Any]:
        seen.append(len(rows))
        return {"trees": [], "start": 0.0}

    monkeypatch.setattr("bitcal_tts.auditing.crossfit.boosted", spy)
    fit_folds([walked], "gold", None)
    table = walked.settled
    of_fold = np.bincount(walked.folds[table.trace[table.candidates.look]], minlength=FOLDS)
    assert seen == (of_fold.sum() - of_fold).tolist()


def test_thresholds_come_from_the_other_folds(walked: Walked) -> None:
    table = scored(walked, fit_folds([walked], "gold", None, rounds=20)).settled.rising()
    found = crossed(table, walked.folds, 0.05, "gold")
    for fold in range(FOLDS):
        others = table.of(np.nonzero(walked.folds != fold)[0])
        assert others.cut(math.inf).lost.mean() <= 0.05  # the guard is heeded
        assert found.thresholds[fold] == loosest(others, 0.05, "gold")
        assert others.cut(found.thresholds[fold]).lost.mean() <= 0.05
        mine = table.of(np.nonzero(walked.folds == fold)[0])
        assert found.cut.cost[walked.folds == fold].tolist() == mine.cut(found.thresholds[fold]).cost.tolist()
    assert candidates_of(table)[0] == table.scores.max()


def test_more_texts_than_are_fitted_on_are_streamed(
    log: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = rows_of(capsys, str(log), "--risks", "0.05", "--starter", "none")
    monkeypatch.setattr("bitcal_tts.commands.audit._FITTED", 1)  # about 100 of the 150 all the same
    streamed = rows_of(capsys, str(log), "--risks", "0.05", "--starter", "none")
    for name in ("full", "complete", "stated_1", "stated"):
        one, other = (next(row for row in rows if row["method"] == name) for rows in (whole, streamed))
        assert (one["n"], one["share"]) == (other["n"], pytest.approx(other["share"]))
    settled = next(row for row in streamed if row["method"] == "settled")
    assert settled["n"] == 150 and settled["share"] < 1.0


def test_a_sample_is_drawn_and_said_to_be_one(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["audit", str(log), "--jobs", "1", "--risks", "0.05", "--starter", "none", "--sample"]
    assert main([*command, "60", "--json"]) == 0
    (shape,) = json.loads(capsys.readouterr().out)["files"]
    assert 40 <= shape["n"] <= 80 and shape["texts"] == 150
    assert main([*command, "60"]) == 0
    assert f"{shape['n']} texts, drawn at random from 150, of" in capsys.readouterr().out
    assert main([*command, "all", "--json"]) == 0
    (shape,) = json.loads(capsys.readouterr().out)["files"]
    assert shape["n"] == shape["texts"] == 150
    for wrong in ("0", "-3", "many"):
        with pytest.raises(SystemExit):
            main([*command, wrong])
        assert f"at least 1, or all, got '{wrong}'" in capsys.readouterr().err


@pytest.mark.parametrize("close", ["</think>", None])
def test_the_simple_rules_are_walked_as_their_session_would(close: str | None) -> None:
    """They are, without one: the same looks, worth the same."""
    setting = Setting("number", close)
    said = [f"The answer is {i % 3}. So the answer is {i % 2}. The answer is {i % 2}.\n" for i in range(60)]
    texts = [replace(text_of(i), response=said[i] + text_of(i).response) for i in range(60)]
    traces = [trace_of(text, i, splitter(None)) for i, text in enumerate(texts)]
    method = build_method("stated", bits=16.0, budget=10**9, answers="number", close=close, reserve=0)
    there = gate_looks(traces, method, setting.task)
    here = walk_texts(texts, setting).stated
    assert len(here) > (100 if close else 59)
    for name in ("trace", "at", "scores", "full_tokens", "full_right"):
        assert np.array_equal(getattr(here, name), getattr(there, name)), name
    for name in ("tokens", "probe_tokens", "right", "same", "halted", "reasons"):
        for rows in ("stops", "ends"):
            assert np.array_equal(getattr(getattr(here, rows), name), getattr(getattr(there, rows), name)), name


def test_what_is_streamed_keeps_the_looks_that_matter(walked: Walked) -> None:
    """Stops at any threshold, and those of one who knows the answers, are the same; most looks are gone."""
    draw, n = np.random.default_rng(0), len(walked.settled)
    stops = replace(walked.settled.stops, right=draw.random(n) < 0.3, same=draw.random(n) < 0.3)
    table = replace(walked.settled, stops=stops, scores=draw.random(n))
    few = table.condensed()
    assert len(few) < 0.5 * len(table)
    for threshold in (0.1, 0.5, 0.9, 0.99):
        assert few.cut(threshold).tokens.tolist() == table.cut(threshold).tokens.tolist()
        assert few.cut(threshold).correct.tolist() == table.cut(threshold).correct.tolist()
    for name in ("right", "same"):
        one, other = (replace(t, scores=getattr(t.stops, name).astype(float)).cut(0.5) for t in (few, table))
        assert one.tokens.tolist() == other.tokens.tolist()


def test_what_settled_leaves_out_is_pale_and_nothing_else() -> None:
    def shown(*stops: Stop) -> str:
        example = Example("t", "q", "abcdef", stops)
        shape = {"file": "f", "model": None, "n": 1, "thinking_ends_at": None, "reaching": 0.5, "checking": 0.5}
        page = render([FilePart(shape, [], "", [], [example])], "")
        return page.partition('<p class="text">')[2].partition("</p>")[0]

    first = Stop("stated_1", 2, None, "wrong", True, False)
    assert shown(first).startswith("ab ") and shown(first).endswith("cdef") and "rest" not in shown(first)
    assert "stated_1 reads no answer: wrong, which is lost" in shown(first)
    ours = Stop("settled at 1 %", 3, "7", "right", False, True)
    both = shown(Stop("complete", 5, "7", "right", False, False), ours, first)
    assert "settled at 1 % reads 7: right<" in both
    assert re.findall('<span class="rest">([a-z]*)</span>', both) == ["de", "f"]


def test_what_a_mark_says_is_read_is_what_it_was_judged_by(walked: Walked) -> None:
    """Right where, and only where, the value is the right one; and `stated_1` has read what is wrong in some."""
    setting, scorers = Setting("number", "</think>"), fit_folds([walked], "gold", None, rounds=20)
    audited = Audited("f", None, "number", "</think>", "gold", scored(walked, scorers), 0)
    marks = audited.marks(0.05)
    told: dict[str, list[bool]] = {}
    for i in range(60):
        text = text_of(i)
        assert text.answer is not None
        read = ReadText(text, setting, scorers.profiles[walked.folds[i]])
        for name, (at, cut) in marks.items():
            if at[i]:
                answer = read.by(name, int(at[i]))
                right = answer is not None and setting.task.format.equal(answer, text.answer)
                assert right == cut.correct[i], (name, i)
                told.setdefault(name, []).append(right)
    assert len(told) == 3 and all(any(known) for known in told.values())
    assert not all(told["stated_1"]) and not all(told["settled at 5 %"])


def test_a_text_that_does_not_think_is_not_said_to(tmp_path: Path) -> None:
    plain = [{**made(i), "response": made(i)["response"].replace("</think>", "")} for i in range(60)]
    (tmp_path / "log.jsonl").write_text("\n".join(map(json.dumps, plain)))
    assert main(["audit", "log.jsonl", "--risks", "0.05", "--starter", "none", "--jobs", "1", "--out", "page"]) == 0
    page = (tmp_path / "page/audit.html").read_text(encoding="utf-8")
    assert "going on" in page and "thinking on" not in page and "writing it up" not in page


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_the_page_shows_where_rules_would_have_stopped(
    log: Path, tmp_path: Path, browser: Any, width: int, scheme: str
) -> None:
    hostile = {**made(0), "question": "<script>window.harmed = 1</script> How many?", "gold": "<b>7</b>"}
    path = tmp_path / "log.jsonl"
    path.write_text("\n".join(json.dumps(made(i)) for i in range(60)) + "\n" + json.dumps(hostile))
    assert main(["audit", str(path), "--risks", "0.05", "--starter", "none", "--jobs", "1", "--out", "page"]) == 0
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    problems: list[str] = []
    asked: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto((tmp_path / "page/audit.html").as_uri())
    assert page.locator("table").count() >= 1
    assert page.locator("tr.ours").count() >= 1
    examples = page.locator("details")
    assert examples.count() >= 3
    examples.first.locator("summary").click()
    stops = examples.first.locator(".stop")
    assert stops.count() >= 1 and stops.first.is_visible()
    assert "settled" in " ".join(page.locator(".stop").all_inner_texts())
    assert page.evaluate("window.harmed") is None
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth + 1")
    assert not problems and all(url.startswith("file:") for url in asked)
    page.close()


def test_imported_texts_are_traces(log: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = tmp_path / "traces"
    assert main(["import", str(log), "--bits", "4", "--out", str(folder), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["folders"][0]
    assert (told["n"], told["answers"], told["signals"]) == (150, "number", "text only")
    profile = str(tmp_path / "p.json")
    assert main(["fit", str(folder), "--risk", "0.1", "--out", profile, "--json"]) == 0
    fitted = json.loads(capsys.readouterr().out)["evidence"]["4"]
    assert fitted["certified"] and fitted["tokens"] < fitted["full_tokens"]
    assert main(["audit", str(log), "--jobs", "1", "--profile", profile]) == 0
    told = capsys.readouterr()
    for done in ("fitted", "certified"):
        assert re.search(
            rf"the profile was {done} on \d+ of these 150 texts, on which it proves", " ".join(told.err.split())
        )
    assert "seen here" not in told.out  # it has met all of them
    own = rows_of(capsys, str(log), "--profile", profile)
    (settled,) = [row for row in own if row["method"] == "settled"]
    assert settled["risk"] == 0.1 and settled["share"] < 0.9
    replay = ["replay", str(folder), "--methods", "fixed,complete,stated,settled", "--profile", profile, "--json"]
    assert main([*replay, "--out", str(tmp_path / "o")]) == 0
    rows = {row["method"]: row for row in json.loads(capsys.readouterr().out)["rows"]}
    assert rows["settled"]["savings"] > 0.1 and rows["settled"]["lost_correct_rate"] < 0.15
    assert rows["stated"]["lost_correct_rate"] > 0.2
    assert main(["report", str(tmp_path / "o")]) == 0
    capsys.readouterr()
    others = tmp_path / "others"  # of the same model: that its longest text is another is no other budget
    short = tmp_path / "short.jsonl"
    short.write_text("\n".join(sorted(gzip.decompress(log.read_bytes()).decode().splitlines(), key=len)[:40]))
    assert main(["import", str(short), "--bits", "4", "--out", str(others), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["folders"][0]["n"] == 40
    replay[1] = str(others)
    assert main([*replay, "--out", str(tmp_path / "o2")]) == 0
    assert {row["budget"] for row in json.loads(capsys.readouterr().out)["rows"]} == {rows["settled"]["budget"]}
    assert main(["compare", str(folder), "--profile", profile, "--json"]) == 0
    compared = capsys.readouterr()
    assert json.loads(compared.out)["curves"].keys() == {"fixed", "complete", "stated", "settled"}
    (unknown,) = [line for line in compared.err.splitlines() if "without a probe nothing can be known of" in line]
    assert all(name in unknown for name in ("landed", "truncate", "deer"))
    assert "without the entropy nothing can be known of cusum" in compared.err
    assert main(["explain", str(folder), "0", "--methods", "fixed,complete,stated"]) == 0
    capsys.readouterr()
    refused = {
        "adaptive": "adaptive needs the entropy",
        "deer": "this recording has no probes",
        "truncate": "what the model would have answered there cannot be known",
    }
    for method, message in refused.items():
        settings = ["--set", "threshold=32"] if method == "truncate" else []
        assert main(["replay", str(folder), "--methods", method, "--out", str(tmp_path / "x"), *settings]) == 2
        assert message in capsys.readouterr().err
    assert main(["import", str(log), "--bits", "4", "--out", str(folder), "--json"]) == 0  # again: nothing to do


def test_a_text_that_has_ended_needs_no_room_for_an_answer(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The budget of a log follows its longest text, from which no method may take the end."""
    folder, log = str(tmp_path / "traces"), tmp_path / "log.jsonl"
    texts = ("Three and four are seven.", "Now I count them. " * 40 + "They are 7")
    rows = [{"question": "What is 3 + 4?", "response": text, "answer": "7"} for text in texts]
    log.write_text("\n".join(map(json.dumps, rows)))
    assert main(["import", str(log), "--bits", "4", "--answers", "number", "--out", folder, "--json"]) == 0
    capsys.readouterr()
    assert main(["replay", folder, "--methods", "fixed,stated", "--out", str(tmp_path / "run"), "--json"]) == 0
    assert [row["reasons"] for row in json.loads(capsys.readouterr().out)["rows"]] == [{"eos": 2}, {"eos": 2}]


@pytest.mark.skipif(not SHARED.exists(), reason="the shared texts are not here")
def test_real_texts_are_audited(capsys: pytest.CaptureFixture[str]) -> None:
    """On R1-Distill's texts half of the tokens are a write-up, and far less than all is needed at 5 % lost."""
    path = SHARED / "real_texts/gsm8k-r1-distill-qwen-32b.jsonl.xz"
    rows = rows_of(capsys, str(path), "--risks", "0.05", "--starter", "none")
    settled = next(row for row in rows if row["method"] == "settled")
    assert settled["n"] == 582 and settled["share"] < 0.66 and settled["lost_high"] < 0.09
    assert next(row for row in rows if row["method"] == "full")["full_accuracy"] == pytest.approx(0.957, abs=0.006)


def test_complete_stops_where_the_method_does() -> None:
    """The audit reads off the text where `complete` stops; the method itself must stop there."""
    setting, split = Setting("number", "</think>"), splitter(None)
    method = build_method("complete", bits=16, budget=10**9, answers="number", close="</think>")
    endings = ["", " things. And a check: it is so.", "\n\nAnn sells \\boxed{", " \\boxed{4} or \\boxed{5}, who knows"]
    texts = [replace(text_of(i), response=made(i)["response"] + endings[i % 4]) for i in range(12)]
    texts += [replace(text_of(20), response="<think> \\boxed{3} and on")]
    stops = walk_texts(texts, setting).complete.cut(0.5)
    traces = [trace_of(text, i, split) for i, text in enumerate(texts)]
    found = outcomes(traces, method, setting.task)
    assert [outcome.tokens for outcome in found] == stops.tokens.tolist()
    assert [outcome.correct for outcome in found] == stops.correct.tolist()
    assert 0 < stops.halted.sum() < len(texts)


def test_simple_rules_read_the_reasoning_and_not_the_write_up() -> None:
    """What is stated once the thinking is over saves next to nothing, and the method itself does not look there."""
    thought = "<think>\nShe has 2 and gets 3. Let me see whether that is all there is to it.{}\n</think>\n\n"
    written = "She has 2 + 3 = 5.\nThe answer is 5.\nThat is what was asked for, and here it is once more.\n#### 5"
    texts = [
        replace(text_of(i), response=thought.format(" The answer is 5.\nNow write it up." * (i == 1)) + written)
        for i in range(2)
    ]
    stops = walk_texts(texts, Setting("gsm8k", "</think>")).stated.cut(1.0)
    assert stops.halted.tolist() == [False, True]


def test_where_waiting_for_the_answer_is_the_better_rule_that_is_said() -> None:
    def row(method: str, share: float, lost: float) -> dict[str, Any]:
        known = {"label": "gold", "risk": 0.05, "certified": False, "more_items_needed": 0}
        return {"method": method, "share": share, "lost_correct_rate": lost, "lost_low": 0.0, "lost_high": 0.1, **known}

    gates = [row("settled", 0.75, 0.02), row("settled", 0.9, 0.0)]
    said = verdict([*gates, row("complete", 0.584, 0.0)])
    assert said.startswith(
        "complete, which stops when the answer is written out, would have saved 41.6 % of the tokens"
    )
    usual = (
        "settled, aimed at 5 % lost, would have saved 25 % of the tokens "
        "and lost right answers in 2 % [0, 10] of the texts; "
    )
    assert verdict([*gates, row("complete", 0.8, 0.0)]) == f"{usual}5 % cannot be promised here."  # a gate needs fewer
    assert verdict([*gates, row("complete", 0.584, 0.01)]).startswith(usual)  # or loses less
    nothing = [{**gate, "share": 1.0, "lost_correct_rate": 0.0} for gate in gates]
    said = verdict([*nothing, row("complete", 1.0, 0.0)])
    assert said.startswith("settled, aimed at 5 % lost, would have saved nothing to speak of")


def test_the_verdict_is_of_the_risk_nearest_to_the_usual_one_and_says_what_could_be_promised() -> None:
    known = {"method": "settled", "label": "final", "lost_low": 0.0, "lost_high": 0.1, "more_items_needed": 0}
    small = {**known, "risk": 0.005, "share": 0.9, "lost_correct_rate": 0.0, "certified": False}
    usual = {**known, "risk": 0.02, "share": 0.8, "lost_correct_rate": 0.01, "certified": True, "certified_share": 0.85}
    large = {**known, "risk": 0.05, "share": 0.5, "lost_correct_rate": 0.05, "certified": True, "certified_share": 0.55}
    begun = (
        "settled, aimed at 2 % lost, would have saved 20 % of the tokens and lost answers in 1 % [0, 10] of the texts; "
    )
    assert verdict([usual, large]) == f"{begun}2 % could be promised with so many texts, saving 15 %."
    few = {**small, "more_items_needed": 1200}
    assert verdict([few, usual, large]).endswith("; to promise 0.5 % takes about 1,200 more texts, and saves less.")
    none = {**usual, "share": 0.998}
    oracle = {"method": "oracle", "share": 0.979}
    said = "settled, aimed at 2 % lost, would have saved nothing to speak of here"
    assert verdict([none, large, oracle]) == f"{said}; an oracle would save 2.1 %." and verdict([none]) == f"{said}."
    assert verdict([{**usual, "certified_share": 1.0002}]).endswith("with so many texts, saving 0 %.")
    profile = {**usual, "certified": None}
    assert verdict([profile]).startswith(
        "settled, with the profile's threshold, would have saved 20 % of the tokens and lost "
    )


def samples(n: int, each: int) -> list[dict[str, Any]]:
    """So many questions, each answered several times in the same words."""
    return [made(i) for i in range(n) for _ in range(each)]


def test_several_texts_about_one_question_count_once_for_a_promise(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """As `bitcal fit` counts them: what audit says could be promised, it could certify."""
    log = tmp_path / "samples.jsonl"
    log.write_text("\n".join(map(json.dumps, samples(80, 3))))
    assert main(["audit", str(log), "--jobs", "1", "--risks", "0.02,0.2", "--starter", "none"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "They are about 80 questions: for intervals and promises" in told
    rows = {row["risk"]: row for row in rows_of(capsys, str(log), "--risks", "0.02,0.2", "--starter", "none")
            if row["method"] == "settled"}  # fmt: skip
    # Half of the questions would certify, and 2 % takes 114 without a loss.
    assert not rows[0.02]["certified"] and rows[0.02]["more_items_needed"] >= 2 * 114 - 80
    assert rows[0.02]["lost_high"] - rows[0.02]["lost_low"] > 0.04  # of 80, not of 240
    assert main(["import", str(log), "--out", str(tmp_path / "traces")]) == 0
    assert "--from starter --risk 0.05" in capsys.readouterr().out  # 240 would do for 2 %, 80 do not


def test_a_profile_audits_texts_as_it_was_certified(
    log: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """At its own looks, under its own budget; and what it says is what replay says."""
    folder, fresh = tmp_path / "traces", tmp_path / "fresh.jsonl"
    fresh.write_text("\n".join(json.dumps(made(1000 + i)) for i in range(60)))
    others = tmp_path / "others"
    assert main(["import", str(log), "--out", str(folder), "--json"]) == 0
    assert main(["import", str(fresh), "--out", str(others), "--model-name", "made up", "--json"]) == 0
    for looks, among in (("statements", "all"), ("sentences", "right")):
        profile = str(tmp_path / f"{looks}.json")
        fit = ["fit", str(folder), "--risk", "0.1", "--looks", looks, "--among", among, "--out", profile, "--json"]
        assert main(fit) == 0
        capsys.readouterr()
        (audited,) = [row for row in rows_of(capsys, str(fresh), "--profile", profile) if row["method"] == "settled"]
        assert main(["replay", str(others), "--methods", "fixed,settled", "--profile", profile, "--json"]) == 0
        replayed = json.loads(capsys.readouterr().out)
        (row,) = [row for row in replayed["rows"] if row["method"] == "settled"]
        assert audited["share"] == pytest.approx(1 - row["savings"])
        assert audited["lost_correct_rate"] == pytest.approx(row["lost_correct_rate"])
        assert audited["promise"] == replayed["promises"][0]["line"]
    options = tmp_path / "options.jsonl"
    question = "Which?\n1. One.\n2. Two.\n3. Three."
    rows = [{"question": question, "response": "<think>\nTwo.\n</think>\n\\boxed{2}", "gold": "2"}] * 20
    options.write_text("\n".join(map(json.dumps, rows)))
    assert main(["audit", str(options), "--profile", profile, "--jobs", "1"]) == 2
    assert "the profile was fitted on answers that are numbers, and those of" in capsys.readouterr().err


def test_texts_that_do_not_think_are_read_beside_those_that_do(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Where all that think say so at their beginning, one that does not has answered at once."""
    direct = [{**made(i), "response": f"That comes to {made(i)['gold']} things."} for i in range(200, 260)]
    path = tmp_path / "hybrid.jsonl"
    path.write_text("\n".join(map(json.dumps, [*(made(i) for i in range(60)), *direct])))
    assert main(["audit", str(path), "--jobs", "1", "--json"]) == 0
    (shape,) = json.loads(capsys.readouterr().out)["files"]
    assert shape["unanswered"] == 0 and shape["full_accuracy"] > 0.9
    assert main(["import", str(path), "--out", str(tmp_path / "t"), "--json"]) == 0
    capsys.readouterr()
    assert main(["replay", str(tmp_path / "t"), "--methods", "fixed", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert row["accuracy"] == pytest.approx(shape["full_accuracy"])


def test_logs_with_log_probabilities_can_be_fitted_on(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """No probes can be had of a log, whatever it tells of its tokens: what a text stands for is read off it."""
    likeliest = [{"token": str(i), "logprob": -0.1 - 4 * i} for i in range(20)]

    def logged(record: dict[str, Any]) -> dict[str, Any]:
        entries = [
            {"token": piece, "logprob": -0.1, "top_logprobs": likeliest} for piece in splitter(None)(record["response"])
        ]
        choice = {"message": {"role": "assistant", "content": record["response"]}, "logprobs": {"content": entries}}
        return {"prompt": record["question"], "choices": [choice], "gold": record["gold"]}

    path = tmp_path / "log.jsonl"
    path.write_text("\n".join(json.dumps(logged(made(i))) for i in range(120)))
    assert main(["import", str(path), "--out", str(tmp_path / "t"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["folders"][0]["signals"].startswith("top-20")
    assert main(["fit", str(tmp_path / "t"), "--risk", "0.1", "--out", str(tmp_path / "p.json"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["evidence"]["16"]["certified"]
