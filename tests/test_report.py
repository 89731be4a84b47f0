"""The page and the figures of a run, in a real browser; and one item in the terminal."""

from __future__ import annotations

import itertools
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from bitcal_tts.calibration.store import load_profile
from bitcal_tts.cli import main
from bitcal_tts.evaluation.figures import draw_all
from bitcal_tts.evaluation.page import render_page


@pytest.fixture(scope="module")
def run_folder(store: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A replayed run with its page."""
    folder = tmp_path_factory.mktemp("run")
    traces = shutil.copytree(store.folder, folder / "traces")
    options = ["--min-tokens", "48", "--budgets", "64,128,192", "--out", str(folder)]
    assert main(["replay", str(traces), *options, "--json"]) == 0
    assert main(["report", str(folder), "--items", "30"]) == 0
    return folder


def test_runs_of_one_name_are_told_apart(run_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    others: list[Path] = []
    for task in ("gsm_symbolic", "stories", "stories"):
        told = json.loads((run_folder / "summary.json").read_text())
        del told["manifest"]
        told["rows"] = [{**row, "task": task} for row in told["rows"]]
        others.append(tmp_path / f"{task}-{len(others)}")
        others[-1].mkdir()
        (others[-1] / "summary.json").write_text(json.dumps(told))
    assert main(["report", *map(str, others), "--out", str(tmp_path / "all"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    model = "tiny-1m"
    names = [f"{model} (gsm_symbolic)", *(f"{model} (stories) ({other})" for other in others[1:])]
    assert list(dict.fromkeys(row["model"] for row in told["rows"])) == names
    assert len({test["run"] for test in told["comparisons"]}) == 3
    page = (tmp_path / "all/report.html").read_text()
    assert all(name in page for name in names)


def test_runs_that_share_no_budget_and_no_method_are_one_page(run_folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    traces = str(run_folder / "traces")
    assert main(["replay", traces, "--budgets", "96", "--methods", "complete", "--out", str(other), "--json"]) == 0
    told = json.loads((other / "summary.json").read_text())
    for row in told["rows"]:
        row["bits"] = 2.0  # another model, as far as the page knows
    (other / "summary.json").write_text(json.dumps(told))
    assert main(["report", str(run_folder), str(other), "--out", str(tmp_path / "both")]) == 0
    tables = (tmp_path / "both" / "tables.md").read_text()
    assert "at 2 bits, instruct: B = 96" in tables and "bits, instruct: B = 192" in tables
    assert (tmp_path / "both" / "figures" / "accuracy_and_tokens.png").exists()
    swept = json.loads((run_folder / "summary.json").read_text())["rows"]
    alone = [{**swept[0], "bits": 8.0}]
    figures = draw_all([*told["rows"], *alone], tmp_path / "points")
    assert "budget_sweep" not in [path.stem for path in figures]  # none of them has several budgets
    figures = draw_all([*told["rows"], *swept], tmp_path / "curves")
    assert "budget_sweep" in [path.stem for path in figures]  # the second has


def test_a_method_looks_the_same_in_every_figure() -> None:
    from bitcal_tts.evaluation.drawing import styles_of

    few, many = ["fixed", "settled"], ["settled", "cusum", "landed", "fixed", "complete", "patience", "adaptive"]
    one, other = styles_of(few), styles_of(many)
    assert list(one) == few and list(other) == many
    assert {name: other[name] for name in few} == one
    assert len(set(other.values())) == len(many)  # and no two alike


def test_methods_that_come_to_the_same_are_one_line(run_folder: Path) -> None:
    from bitcal_tts.evaluation.figures import budget_sweep, pareto

    rows = json.loads((run_folder / "summary.json").read_text())["rows"]
    landed = [{**row, "method": "landed"} for row in rows if row["method"] == "fixed"]
    for draw in (pareto, budget_sweep):
        (told,) = draw([*rows, *landed]).legends
        names = [text.get_text() for text in told.get_texts()]
        assert "fixed, landed" in names and "landed" not in names
        (told,) = draw([*rows, {**landed[0], "avg_tokens": 1.0}, *landed[1:]]).legends
        assert "landed" in [text.get_text() for text in told.get_texts()]  # at one budget it is another


@pytest.mark.parametrize("narrow", [False, True])
def test_legends_are_whole(narrow: bool, run_folder: Path) -> None:
    """However many methods there are, and however long the names of those that come to the same."""
    from bitcal_tts.evaluation.figures import accuracy_and_tokens, budget_sweep, pareto, premature_stops

    rows = json.loads((run_folder / "summary.json").read_text())["rows"]
    fixed = [row for row in rows if row["method"] == "fixed"]
    others = ("settled", "stated", "convergence", "deepconf", "random")
    rows += [{**row, "method": name, "avg_tokens": row["avg_tokens"] / 2} for name in others for row in fixed]
    for draw in (accuracy_and_tokens, premature_stops, pareto, budget_sweep):
        figure = draw(rows, narrow=narrow)
        figure.canvas.draw()
        told = figure.legends[0].get_window_extent()
        assert figure.bbox.x0 <= told.x0 and told.x1 <= figure.bbox.x1, draw.__name__
        assert figure.bbox.y0 <= told.y0 and told.y1 <= figure.bbox.y1, draw.__name__


def test_figures_are_written_and_the_same_each_time(run_folder: Path) -> None:
    names = ("accuracy_and_tokens", "premature_stops", "pareto", "budget_sweep")
    before = {}
    for name in names:
        assert (run_folder / "figures" / f"{name}.pdf").read_bytes().startswith(b"%PDF")
        before[name] = (run_folder / "figures" / f"{name}.png").read_bytes()
    assert main(["report", str(run_folder), "--items", "30"]) == 0
    assert {name: (run_folder / "figures" / f"{name}.png").read_bytes() for name in names} == before


def test_one_budget_is_no_sweep(run_folder: Path, tmp_path: Path) -> None:
    rows = json.loads((run_folder / "summary.json").read_text())["rows"]
    assert (tmp_path / "budget_sweep.png") not in draw_all([row for row in rows if row["budget"] == 128], tmp_path)
    assert (tmp_path / "budget_sweep.png") in draw_all(rows, tmp_path)


def test_a_folder_of_traces_is_told_where_its_replays_are(
    store: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    traces = shutil.copytree(store.folder, tmp_path / "traces", ignore=shutil.ignore_patterns("replays"))
    assert main(["replay", str(traces), "--json"]) == 0
    assert main(["report", str(traces)]) == 2
    assert f"{traces}/replays/1 has one" in capsys.readouterr().err


@pytest.mark.parametrize("width", [1200, 390])
def test_the_page_works_from_disk(run_folder: Path, browser: Any, width: int) -> None:
    page = browser.new_page(viewport={"width": width, "height": 900})
    problems: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto((run_folder / "report.html").as_uri())
    assert page.locator("#item option").count() == 30
    assert page.locator("#shown").inner_text().startswith("30 of 40 problems, those first on which methods differ")
    first = page.locator("#question").inner_text()
    page.click("#next")
    assert page.locator("#question").inner_text() != first
    page.click("#previous")
    assert page.locator("#question").inner_text() == first
    summary = json.loads((run_folder / "summary.json").read_text())
    page.select_option("#method", "adaptive")
    page.select_option("#budget", "192")
    page.select_option("#filter", "lost")
    lost = next(r for r in summary["rows"] if (r["method"], r["budget"]) == ("adaptive", 192))["lost_correct_rate"] * 40
    assert page.locator("#item option").count() == min(round(lost), 30)
    assert page.locator("#text .stop").count() >= 1
    assert page.locator("#ends tr").count() == 5
    assert page.locator("#saw").inner_text() == "What adaptive saw and decided"
    # What was lost is in view without scrolling; the rest is a click away.
    results = page.locator("table").first
    assert "lost %" in results.inner_text()
    assert results.evaluate("table => table.scrollWidth <= table.parentElement.clientWidth")
    assert not page.get_by_text("premature %").is_visible()
    page.get_by_text("All measures, with intervals").click()
    assert page.get_by_text("premature %").is_visible()
    assert page.locator("#decisions tr").count() > 1
    # A figure is whole where it stands, and as high as wide or higher on a telephone.
    sizes = page.locator("figure img").evaluate_all(
        "all => all.map(one => [one.getBoundingClientRect().right, one.naturalWidth, one.naturalHeight])"
    )
    assert len(sizes) == 4
    assert all(right <= width and (high > 0.8 * wide) is (width == 390) for right, wide, high in sizes)
    # Nothing but the page itself was asked for, nothing went wrong, and it does not scroll sideways.
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
    assert problems == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.close()


def test_where_no_entropies_are_known_none_are_shown(run_folder: Path, browser: Any, tmp_path: Path) -> None:
    log, traces = tmp_path / "log.jsonl", str(tmp_path / "traces")
    texts = ("3 + 4 = 7.\n#### 7\nYes.", "It is seven, I think.")
    log.write_text(
        "\n".join(json.dumps({"question": "What is 3 + 4?", "response": text, "gold": "7"}) for text in texts)
    )
    assert main(["import", str(log), "--bits", "4", "--out", traces, "--json"]) == 0
    assert main(["replay", traces, "--methods", "fixed,complete", "--out", str(tmp_path / "run"), "--json"]) == 0
    assert main(["report", str(tmp_path / "run")]) == 0
    for folder, known in ((tmp_path / "run", False), (run_folder, True)):
        page = browser.new_page()
        page.goto((folder / "report.html").as_uri())
        assert page.get_by_text("Shading is the entropy").is_visible() is known
        assert page.get_by_text("after the chosen method's end is pale").is_visible()
        tokens = page.locator("#text span[title^=token]")
        assert tokens.count() > 1 and ("entropy" in tokens.first.get_attribute("title")) is known
        if not known:  # what decided nothing has nothing to show
            decisions = {}
            for item in page.locator("#item option").all_inner_texts():
                page.select_option("#item", item)
                decisions[page.locator("#text").inner_text()[:5]] = page.locator("#decisions tr").count()
                assert (page.locator("#saw").inner_text() == "") is (page.locator("#decisions tr").count() == 0)
            assert decisions["It is"] == 0 < decisions["3 + 4"]
        page.close()


def test_the_page_is_dark_where_that_is_asked_for(run_folder: Path, browser: Any) -> None:
    colours = []
    for scheme in ("light", "dark"):
        page = browser.new_page(color_scheme=scheme)
        page.goto((run_folder / "report.html").as_uri())
        of_body = "getComputedStyle(document.body)"
        colours.append((page.evaluate(f"{of_body}.backgroundColor"), page.evaluate(f"{of_body}.color")))
        page.close()
    assert colours[0] == ("rgb(253, 253, 251)", "rgb(28, 28, 28)")
    assert colours[1] == ("rgb(23, 23, 21)", "rgb(230, 230, 227)")


def test_tables_of_one_run_and_of_two_have_a_heading_for_every_column(run_folder: Path, tmp_path: Path) -> None:
    other = shutil.copytree(run_folder, tmp_path / "other")
    summary = json.loads((other / "summary.json").read_text())
    for row in summary["rows"]:
        row["bits"] = 16.0
    (other / "summary.json").write_text(json.dumps(summary))
    assert main(["report", str(run_folder), str(other), "--out", str(tmp_path / "both")]) == 0
    for folder, runs in ((run_folder, 1), (tmp_path / "both", 2)):
        tables = re.findall(r"<table.*?</table>", (folder / "report.html").read_text(), re.DOTALL)
        columns = [{len(re.findall("<t[dh]", row)) for row in re.findall(r"<tr.*?</tr>", t, re.DOTALL)} for t in tables]
        assert all(len(widths) <= 1 for widths in columns)  # those of the problems are filled when one is chosen
        assert sum(bool(widths) for widths in columns) == 3
        assert sum("<th>decoded" in t or ">decoded</th>" in t for t in tables) == (3 if runs == 2 else 0)


def test_hostile_text_stays_text(run_folder: Path, browser: Any, tmp_path: Path) -> None:
    attack = "</script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\"> @DATA@"
    summary = json.loads((run_folder / "summary.json").read_text())
    cell = {
        "tokens": 1, "left_at": 1, "landing": attack, "reason": attack, "answer": attack, "correct": False,
        "full": True, "lost": True, "rescued": False, "decisions": [],
    }  # fmt: skip
    cells = {f"{row['budget']} {row['method']}": cell for row in summary["rows"]}
    item = {"id": attack, "question": attack, "gold": attack, "tokens": [[attack, 0.1]], "cells": cells}
    methods = sorted({row["method"] for row in summary["rows"]})
    budgets = sorted({row["budget"] for row in summary["rows"]})
    run = {"name": attack, "budgets": budgets, "methods": methods, "items": [item]}
    text = render_page(
        title=attack, subtitle=attack, rows=summary["rows"], comparisons=summary["comparisons"], figures=[],
        promises=[{"method": attack, "budget": 1, "line": attack}], runs=[run], manifest={"x": attack},
    )  # fmt: skip
    (tmp_path / "hostile.html").write_text(text)
    page = browser.new_page()
    page.goto((tmp_path / "hostile.html").as_uri())
    assert page.locator("#question").inner_text() == attack
    assert page.title() == attack
    page.close()


def test_the_page_says_where_a_profile_has_met_the_items(run_folder: Path) -> None:
    summary = json.loads((run_folder / "summary.json").read_text())
    promise = {"method": "complete", "budget": 192, "line": "promised: something", "run": ""}
    for met, said in ((7, True), (0, False)):
        text = render_page(
            title="t", subtitle="s", rows=summary["rows"], comparisons=summary["comparisons"], figures=[],
            promises=[{**promise, "met": met}], runs=[], manifest={},
        )  # fmt: skip
        assert ("Its profile has met 7 of these items" in text) == said


def test_what_was_lost_is_in_view_on_a_telephone_beside_what_was_promised(
    run_folder: Path, browser: Any, tmp_path: Path
) -> None:
    summary = json.loads((run_folder / "summary.json").read_text())
    rows = [{**row, "method": "settled"} if row["method"] == "complete" else row for row in summary["rows"]]
    promises = [
        {"method": "settled", "budget": row["budget"], "risk": 0.005, "certified": True, "line": "promised: little"}
        for row in rows
    ]
    (tmp_path / "page.html").write_text(
        render_page(
            title="t", subtitle="s", rows=rows, comparisons=[], promises=promises, figures=[], runs=[], manifest={},
        )
    )  # fmt: skip
    page = browser.new_page(viewport={"width": 390, "height": 900})
    page.goto((tmp_path / "page.html").as_uri())
    results = page.locator("table").first
    assert "(at most 0.5)" in results.inner_text()
    assert results.evaluate("table => table.scrollWidth <= table.parentElement.clientWidth")
    page.close()


def test_headline_claims_only_what_the_test_says(run_folder: Path) -> None:
    text = (run_folder / "report.html").read_text()
    summary = json.loads((run_folder / "summary.json").read_text())
    for row in summary["comparisons"]:
        if (row["budget"], row["against"]) == (192, "fixed"):
            assert f"({row['verdict']}, p = {row['p_corrected']:.2g}, N = 40)" in text
    assert "improves" not in text


def test_explain(store: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = str(store.folder)
    assert main(["explain", folder, "3", "--min-tokens", "48", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    trace = store.read()[3]
    assert (found["item"], found["text"]) == (trace.item.id, trace.text)
    assert [m["method"] for m in found["methods"]] == ["fixed", "adaptive", "bitcal_tts", "complete"]
    assert main(["explain", folder, trace.item.id, "--min-tokens", "48"]) == 0
    assert "Where each method ends" in capsys.readouterr().out
    assert main(["replay", folder, "--methods", "fixed", "--out", "results", "--json"]) == 0
    capsys.readouterr()
    assert main(["explain", "results", "3", "--json"]) == 0  # what the results were replayed from
    found = json.loads(capsys.readouterr().out)
    assert found["item"] == trace.item.id
    assert [m["method"] for m in found["methods"]] == ["fixed"]  # and by the methods of the results
    assert main(["explain", folder, "nobody"]) == 2
    assert "has no item 'nobody'" in capsys.readouterr().err
    begun = shutil.copytree(store.folder, tmp_path / "begun")
    sorted(begun.glob("part-*.parquet"))[-1].unlink()
    assert main(["explain", str(begun), "nobody"]) == 2
    assert re.search(r"no item 'nobody' yet: \d+ of 40 are recorded", capsys.readouterr().err)


def test_explain_breaks_no_word_in_a_narrow_terminal(store: Any, capsys: pytest.CaptureFixture[str]) -> None:
    methods = "fixed,adaptive,bitcal_tts,complete,guard,marker"
    assert main(["explain", str(store.folder), "3", "--methods", methods, "--min-tokens", "48"]) == 0
    shown = capsys.readouterr().out
    tables = [line for line in shown[shown.index("Where each method ends") :].splitlines() if line.strip()]
    assert max(map(len, tables)) <= 110
    words = set(re.findall(r"[a-z_]+", "\n".join(tables)))
    assert {"bitcal_tts", "complete", "undecided", "satisfied"} <= words
    assert not words & {"undecide", "undecid", "satisfie", "bitcal_t", "complet"}


def test_explain_shows_the_score_the_threshold_and_the_value_at_each_look(
    probed: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, profile = str(probed.folder), str(tmp_path / "p.json")
    assert main(["fit", folder, "--risk", "0.3", "--confidence", "0.8", "--out", profile, "--json"]) == 0
    capsys.readouterr()
    threshold = load_profile(Path(profile)).threshold(32)
    assert main(["explain", folder, "3", "--methods", "fixed,settled", "--profile", profile, "--json"]) == 0
    settled = json.loads(capsys.readouterr().out)["methods"][1]
    assert settled["threshold"] == threshold
    looked = [d for d in settled["decisions"] if d["score"] is not None]
    assert looked and any(d["stands_for"] for d in looked)
    assert all(d["score"] < threshold for d in looked[:-1])
    stopped = settled["reason"] == "settled"
    assert (looked[-1]["score"] >= threshold) == stopped
    assert main(["explain", folder, "3", "--methods", "fixed,settled", "--profile", profile]) == 0
    shown = capsys.readouterr().out
    assert f"it stops where the score reaches {threshold:.4g}" in " ".join(shown.split())
    assert f"{looked[0]['score']:.4f}" in shown and "stands for" in shown
    assert main(["replay", folder, "--methods", "fixed,settled", "--profile", profile, "--out", "r", "--json"]) == 0
    capsys.readouterr()
    for more, methods in (([], ["fixed"]), (["--profile", profile], ["fixed", "settled"])):
        assert main(["explain", "r", "3", "--json", *more]) == 0
        told = capsys.readouterr()
        assert [m["method"] for m in json.loads(told.out)["methods"]] == methods
        assert ("settled is among these results: --profile FILE" in told.err) == (not more)
    assert main(["explain", folder, "3", "--methods", "fixed,eat"]) == 0
    shown = capsys.readouterr().out  # it asks the model, and reads no value of the text
    assert "Looks of eat" in shown and "stands for" not in shown


def test_a_folder_without_a_run_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert "has no summary.json" in said and "bitcal replay" not in said  # there is nothing to replay
    summary = {"rows": [{}], "comparisons": [], "parameters": [], "schema": 2}
    (tmp_path / "summary.json").write_text(json.dumps(summary))
    assert main(["report", str(tmp_path)]) == 2
    assert "was written by another version" in capsys.readouterr().err
    (tmp_path / "summary.json").write_text("{}")
    assert main(["report", str(tmp_path)]) == 2
    assert "is not the summary of a run" in capsys.readouterr().err


def test_energy_is_told_for_every_method_where_a_counter_was_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A counter stands in for a machine's: most of them may not be read here."""
    readings = itertools.count(start=1000.0, step=50.0)
    monkeypatch.setattr("bitcal_tts.traces.energy._counters", lambda: {"a device": next(readings)})
    recorded = ["--model", "tiny-1m", "--n", "4", "--batch", "4", "--budget", "96", "--out", str(tmp_path / "traces")]
    assert main(["record", *recorded, "--json"]) == 0
    took = json.loads(capsys.readouterr().out)
    assert took["joules"] == 50.0  # between two readings
    told = ["--methods", "fixed", "--budgets", "48,96", "--out", str(tmp_path)]
    assert main(["replay", str(tmp_path / "traces"), *told, "--full"]) == 0
    shown = capsys.readouterr().out
    assert "joules" in shown and "~ in proportion to the tokens" in " ".join(shown.split())
    cut, whole = json.loads((tmp_path / "summary.json").read_text())["rows"]
    assert whole["joules_measured"] and whole["joules_per_item"] == pytest.approx(12.5)
    assert not cut["joules_measured"] and cut["avg_tokens"] < whole["avg_tokens"]
    assert cut["joules_per_item"] == pytest.approx(12.5 * cut["avg_tokens"] / whole["avg_tokens"])
    assert main(["report", str(tmp_path)]) == 0
    assert f"<td>~{cut['joules_per_item']:.3g}</td>" in (tmp_path / "report.html").read_text()


def test_energy_that_was_not_read_everywhere_is_not_told(store: Any) -> None:
    from bitcal_tts.commands.record import describe

    class Half:
        def measurements(self) -> list[dict[str, Any]]:
            part = {"items": 1, "tokens": 10, "seconds": 1.0}
            return [{**part, "joules": 5.0}, {**part, "joules": None}]

    assert describe(Half())["joules"] is None
    assert describe(store)["tokens"] > 0


def test_no_text_of_a_model_is_markup(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "log.jsonl"
    record = {
        "id": "[b]x",
        "question": "Where is it [/b]?",
        "response": "It is in \\boxed{[a,b]}. Yes.",
        "gold": "[a,b]",
    }
    log.write_text(json.dumps(record))
    assert main(["import", str(log), "--answers", "boxed", "--bits", "4", "--out", str(tmp_path / "t"), "--json"]) == 0
    capsys.readouterr()
    assert main(["explain", str(tmp_path / "t"), "0", "--methods", "fixed,complete"]) == 0
    shown = capsys.readouterr().out
    assert "[b]x, gold answer [a,b]" in shown and shown.count("[a,b]") >= 3
