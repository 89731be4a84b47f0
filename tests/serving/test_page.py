"""The playground in a real browser: both columns finish, the charts have points, the autopilot's tab moves."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
from short_task import short_task
from sidecar import Running, ask

from bitcal_tts.serving.policy import Planner

PROBLEM = short_task().prompt(short_task().items(1, seed=3)[0])


def test_what_is_passed_on_is_shown_and_not_judged(
    browser: Any, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    course = Planner.course

    def refused(self: Planner, asked: Any, *rest: Any) -> Any:
        if asked.method is None:
            raise ValueError("a promise that does not hold here")
        return course(self, asked, *rest)

    monkeypatch.setattr(Planner, "course", refused)
    page, wrong = opened(browser, running.url + "/", viewport={"width": 1280, "height": 900})
    noted(page, "#with .decision", "document.querySelector('#with .text').textContent.length")
    page.fill("#temperature", "0")
    page.fill("#problem", PROBLEM)
    page.keyboard.press("Control+Enter")
    says(page, "#verdict", r"^Passed on to the server as it is, and not stopped: \d+ tokens with BitCal, \d+ without")
    assert page.inner_text("#with .decision") == "passed on: a promise that does not hold here"
    assert page.evaluate("window.noted")[0] == 0  # at once, before any text
    assert "not read" in page.inner_text("#with dl")
    assert page.inner_text("#with .text").replace("<think>", "").strip()[:40] in page.inner_text("#without .text")
    assert not wrong


def noted(page: Any, selector: str, what: str) -> None:
    """Have the page note something, in `window.noted`, whenever a part of it changes."""
    watch = "new MutationObserver(() => window.noted.push({})).observe(document.querySelector('{}'), {})"
    options = "{childList: true, characterData: true, subtree: true}"
    page.evaluate(f"() => {{ window.noted = []; {watch.format(what, selector, options)}; }}")


@pytest.fixture(scope="module")
def piloted(start: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    state = str(tmp_path_factory.mktemp("state"))
    one: Running = start("--risk", "0.3", "--learn", "1", "--first", "30", "--budget", "200", "--state", state)
    yield one
    one.close()


def opened(browser: Any, url: str, **options: Any) -> tuple[Any, list[str]]:
    """The page, and whatever goes wrong in it."""
    page = browser.new_page(**options)
    wrong: list[str] = []
    page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on(
        "request", lambda request: wrong.append(request.url) if not request.url.startswith((url, "data:")) else None
    )
    page.goto(url)
    says(page, "#about", "halted by")
    return page, wrong


def says(page: Any, where: str, pattern: str) -> None:
    """Wait until it does; the page forbids to evaluate anything in it."""
    page.locator(where, has_text=re.compile(pattern)).first.wait_for(timeout=60_000)


def picture(page: Any, name: str) -> None:
    folder = os.environ.get("BITCAL_PICTURES")
    if folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
        page.screenshot(path=f"{folder}/{name}.png", full_page=True)


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (1280, "dark"), (390, "light"), (390, "dark")])
def test_a_problem_with_and_without(browser: Any, running: Running, width: int, scheme: str) -> None:
    size = {"width": width, "height": 900}
    page, wrong = opened(browser, running.url + "/", viewport=size, color_scheme=scheme)
    page.fill("#temperature", "0")
    page.fill("#problem", PROBLEM)
    page.keyboard.press("Control+Enter")
    says(page, "#verdict", "fewer|more")
    ours, theirs = page.inner_text("#with .decision"), page.inner_text("#without .decision")
    assert ours.startswith("stated: ") and theirs.startswith("fixed: eos")
    answers = [page.inner_text(f"{column} dl").split("answer")[1].strip() for column in ("#with", "#without")]
    assert all(re.fullmatch(r"-?[\d.,]+", answer) for answer in answers)  # the answer, not the text around it
    verdict = page.inner_text("#verdict")
    assert verdict.startswith("Same answer, " if answers[0] == answers[1] else "Another answer (")
    assert page.locator("#with .text span").count() > 20
    assert page.locator("#without .text span").count() > page.locator("#with .text span:not(.landed)").count()
    assert page.locator("#with .text span.landed").count() > 0
    assert page.locator("#with .chart circle").count() > 0 and page.locator("#with .chart .bar").count() == 1
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert not wrong
    picture(page, f"play-{width}-{scheme}")
    page.close()


def test_markup_in_a_problem_stays_text(browser: Any, running: Running) -> None:
    page, wrong = opened(browser, running.url + "/")
    page.fill("#problem", "<img src=x onerror=\"document.title='broken'\"> 2 + 2?")
    page.fill("#budget", "20")
    page.click("#run")
    says(page, "#verdict", "tokens with BitCal")
    assert page.title() == "BitCal playground"
    assert page.locator(".text img").count() == 0
    assert not wrong
    page.close()


def test_another_run_takes_the_place_of_the_first(browser: Any, running: Running) -> None:
    page, wrong = opened(browser, running.url + "/")
    page.fill("#problem", PROBLEM)
    page.fill("#temperature", "0")  # a sampled text may hold nothing to stop at
    noted(page, "#verdict", "document.querySelector('#verdict').textContent")
    page.evaluate("for (const _ of [1, 2]) document.querySelector('#run').click()")  # nothing ends between the two
    says(page, "#verdict", "fewer|more")
    assert set(page.evaluate("window.noted")[:-1]) == {"running…"}  # not that the first has ended
    assert not wrong
    page.close()


def test_what_goes_wrong_is_said(browser: Any, running: Running) -> None:
    page, _ = opened(browser, running.url + "/")
    page.fill("#budget", "20")
    page.click("#run")
    says(page, "#verdict", "tokens with BitCal")
    assert "tokens" in page.inner_text("#with dl")
    page.fill("#problem", "x " * 3000)
    page.click("#run")
    says(page, "#verdict", "the model takes")
    assert not page.inner_text("#with dl").strip()  # nothing is left of what ran before
    page.close()


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_the_autopilot_moves(browser: Any, piloted: Running, width: int, scheme: str) -> None:
    page, wrong = opened(browser, piloted.url + "/", viewport={"width": width, "height": 900}, color_scheme=scheme)
    page.focus("#tab-play")
    page.keyboard.press("ArrowRight")
    before = requests(page) if width == 390 else 0
    if width == 1280:
        says(page, "#pilot-none", "No request has come")
    n = 50 if width == 1280 else 8
    ask(piloted, n, seed=width)
    says(page, "#pilots dl", f"requests{before + n}")
    promised = "promised" if page.inner_text("#pilots dl").startswith("phase\nstopping") else "to be promised"
    assert f"\n{promised}\n" in page.inner_text("#pilots dl")
    page.wait_for_selector("#pilots .charts circle", timeout=20_000)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert not wrong
    picture(page, f"pilot-{width}-{scheme}")
    page.close()


def requests(page: Any) -> int:
    page.wait_for_selector("#pilots dl")
    return int(page.evaluate("document.querySelector('#pilots dl').textContent.match(/requests(\\d+)/)[1]"))


def test_the_page_is_strict(running: Running) -> None:
    answer = running.get("/")
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert "unsafe" not in answer.headers["content-security-policy"]
    assert answer.headers["x-content-type-options"] == "nosniff"
