"""The autopilot earns a promise from real traffic, keeps what it knows, and takes the promise back where it fails."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import numpy as np
import pytest
from short_task import short_task
from sidecar import ask

from bitcal_tts.calibration.recording import BLANK, Walker
from bitcal_tts.calibration.store import load_profile
from bitcal_tts.cli import main
from bitcal_tts.halting.exchange import Tokens
from bitcal_tts.halting.identity import Identity
from bitcal_tts.halting.profile import Profile
from bitcal_tts.halting.words import percent
from bitcal_tts.logs import LoggedText, read_texts
from bitcal_tts.serving.autopilot import MOST_PILOTS, Autopilot
from bitcal_tts.serving.memory import FILE, TEXTS, Memory, StateError
from bitcal_tts.serving.observing import Observed, spread
from bitcal_tts.serving.pilot import MOST_LEARNED, REFINED, Pilot
from bitcal_tts.serving.rounds import Kept, Round, Trial, Tried, _thresholds
from bitcal_tts.serving.state import Setting, Terms
from bitcal_tts.serving.status import in_words
from bitcal_tts.serving.trying import Trying
from bitcal_tts.traces.looks import CandidateRows, LookTable, Stops


def stops(running: Any) -> bool:
    return bool(running.sidecar.autopilot.status()[0]["phase"] == "stopping")


def ask_until_it_stops(running: Any, seeds: Iterator[int]) -> None:
    for seed in itertools.islice(seeds, 7):
        ask(running, 30, seed=seed)
        if stops(running):
            return
    pytest.fail(str(running.sidecar.autopilot.status()[0]["events"]))


def test_it_learns_promises_stops_and_remembers(start: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = (
        "--risk", "0.3", "--confidence", "0.6", "--learn", "0.75", "--first", "40", "--budget", "320", "--state",
        str(tmp_path),
    )  # fmt: skip
    running = start(*options)
    try:
        first = ask(running, 2, seed=1)
        assert {one.bitcal["autopilot"]["phase"] for one in first} == {"learning"}
        assert all(one.bitcal["method"] == "autopilot" and one.bitcal["reason"] in ("eos", "budget") for one in first)
        seeds = itertools.count(2)
        for _ in range(3):  # what is promised with so little confidence may be broken, and is then taken back
            ask_until_it_stops(running, seeds)
            answers = ask(running, 40, seed=next(seeds))
            if stops(running):
                break
        roles = [one.bitcal["autopilot"]["role"] for one in answers]
        assert "stopped" in roles and "watched" in roles
        halted = [one for one in answers if one.bitcal["reason"] == "settled"]
        assert halted and all(one.bitcal["method"] == "settled" and one.bitcal["score"] is not None for one in halted)
        metrics = running.get("/metrics").text
        assert "bitcal_stopping" in metrics and 'what="lost_high"' in metrics
        [told] = running.get("/bitcal/autopilot").json()["pilots"]
        assert told["counts"]["trial_tokens"] > 0
        assert told["shadow"] is not None, (told["events"], told["counts"])
        assert told["shadow"]["n"] >= 1
    finally:
        running.close()
    capsys.readouterr()
    assert main(["serve", "status", "--state", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "stopping since" in said and "promised: at most 30 %" in said
    assert main(["serve", "status", "--state", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["pilots"][0]["phase"] == "stopping"
    kept = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"arithmetic" not in kept.lower() and b"####" not in kept  # features are kept, texts are not
    [profile] = tmp_path.glob("profile-*.json")
    assert math.isfinite(load_profile(profile).threshold(16))
    again = start(*options)
    try:
        assert {one.bitcal["autopilot"]["phase"] for one in ask(again, 4, seed=5)} == {"stopping"}
    finally:
        again.close()


def test_who_asks_for_it_is_told_of_every_token(start: Any, tmp_path: Path) -> None:
    """Also where the autopilot itself would read the text alone; and what a landing appends is told from the rest."""
    import openai

    running = start(
        "--risk", "0.05", "--learn", "0.01", "--shadow", "0.005", "--budget", "320", "--state", str(tmp_path)
    )
    try:
        with openai.OpenAI(base_url=f"{running.url}/v1", api_key="none", max_retries=0) as client:
            for more, lands in (({}, False), ({"method": "stated"}, True)):
                events = client.chat.completions.create(
                    model="m", messages=[{"role": "user", "content": short_task().prompt(short_task().items(1, 3)[0])}],
                    temperature=0, stream=True, extra_body={"bitcal": {"trace": True, **more}},
                )  # fmt: skip
                told = [token for event in events for token in (getattr(event, "bitcal", None) or {}).get("tokens", [])]
                assert len(told) > 20 and any(landing for *_, landing in told) is lands
                assert all((entropy is None) == landing for _, entropy, landing in told)
    finally:
        running.close()


def test_settings_that_hardly_come_do_not_hold_the_places_of_others(tmp_path: Path) -> None:
    terms, memory = Terms(risk=0.1), Memory(tmp_path)
    autopilot = Autopilot(terms, memory, answers="gsm8k", chance=lambda: 1.0)

    def come(budget: int, times: int = 1) -> Pilot | None:
        pilot = autopilot.pilot(replace(SETTING, budget=budget))
        for _ in range(times if pilot else 0):
            assert pilot is not None
            admitted = pilot.course(identity=SETTING.identity).admitted
            assert admitted is not None and admitted.role == "plain"
            pilot.spent(admitted, 10)
        return pilot

    usual = come(1000, times=3)
    come(2000, times=2)
    for cap in range(64, 64 + 3 * MOST_PILOTS):  # each cap once
        assert come(cap) is not None
    assert come(1000) is usual and usual is not None and usual.state.counts.requests == 4
    assert len(autopilot.status()) == MOST_PILOTS
    again = come(64)  # what had given way is known from the disk
    assert again is not None and again.state.counts.requests == 2
    # Nobody gives way while a request is open.
    for pilot in autopilot._pilots.values():
        pilot.course(identity=SETTING.identity)
    assert come(4000) is None
    autopilot.close()


def test_texts_are_kept_where_that_is_asked_for(start: Any, tmp_path: Path) -> None:
    running = start("--risk", "0.3", "--learn", "1", "--budget", "320", "--state", str(tmp_path), "--keep-texts")
    try:
        answers = ask(running, 4, seed=3)
    finally:
        running.close()
    log = tmp_path / TEXTS
    assert log.stat().st_mode & 0o077 == 0
    texts = [text for text in read_texts(log, gold=False) if isinstance(text, LoggedText)]
    contents = [one.choices[0].message.content for one in answers]
    assert len(texts) == 4 and all(any(content in text.response for text in texts) for content in contents)
    assert all("arithmetic problem" in text.question for text in texts)


SETTING = Setting(Identity({"model": "m", "temperature": 0.6}), 4.0, 256, "gsm8k", (None, None))


def promised(tmp_path: Path, **terms: Any) -> Pilot:
    """A pilot that has just promised its second threshold."""
    one = Pilot(SETTING, Terms(0.05, **terms), Memory(tmp_path), chance=lambda: 0.999)
    of = Round(BLANK, [0.9, 0.8, 0.7], 0.05, 0.05, firsts=list(np.linspace(0, 1, 60)))
    one.state.round = of
    for i in range(400):
        one._apply(Tried(no_looks(), Trial([False, False, i % 4 == 0], [80, 50, 40], 100, 0.5), 0), of)
    return one


def no_looks() -> LookTable:
    return LookTable.undisturbed(100, True, True)


def test_the_loosest_that_is_proven_is_promised_and_no_other(tmp_path: Path) -> None:
    one = promised(tmp_path)
    assert one.phase == "stopping"
    assert one.state.served == 1
    assert one._admit().role == "stopped"
    assert one.state.round is not None and one.state.round.passed == 2


def test_a_promise_that_is_measured_to_fail_is_taken_back(tmp_path: Path) -> None:
    one = promised(tmp_path)
    of = one.state.round
    assert of is not None
    for i in range(40):
        one._apply(Tried(no_looks(), Trial([None, i % 3 == 0, None], [None, 50, None], 100, 0.5), 0), of)
    assert one.phase == "learning"
    assert "were lost where 5 % were promised" in one.state.why
    assert one._admit().role == "plain"
    assert one.state.learned == 0  # nothing of what it knew holds
    restarted = Pilot(SETTING, one.terms, Memory(tmp_path))
    assert restarted.phase == "learning" and restarted.state.epoch == 1


def test_a_promise_that_is_kept_stays(tmp_path: Path) -> None:
    one = promised(tmp_path)
    of = one.state.round
    assert of is not None
    for i in range(400):
        one._apply(Tried(no_looks(), Trial([None, i % 40 == 0, None], [None, 50, None], 100, 0.5), 0), of)
    assert one.phase == "stopping"
    told = one.status()["shadow"]
    assert told["lost"] == 10 and told["lost_low"] < 0.025 < told["lost_high"]
    assert told["saved_low"] < 0.5 < told["saved_high"]


def one_threshold(scorer: Profile = BLANK) -> Round:
    return Round(scorer, [0.9], 0.05, 0.05, firsts=list(np.linspace(0, 1, 60)))


def tried_on(pilot: Pilot, of: Round, n: int, cost: int, kept: Kept | None = None) -> None:
    """Requests of 100 tokens, none of which is lost."""
    for _ in range(n):
        pilot._apply(Tried(no_looks(), Trial([False], [cost], 100, 0.5), 0, kept), of)


@pytest.mark.parametrize(("cost", "rounds", "another"), [(90, 1, True), (70, 1, False), (90, 3, False)])
def test_where_little_is_saved_a_scorer_is_fitted_on_more(
    tmp_path: Path, cost: int, rounds: int, another: bool
) -> None:
    """Once what it has learned is three times what the last one was fitted on; what it promised stands meanwhile."""
    one = Pilot(SETTING, Terms(0.05), Memory(tmp_path), chance=lambda: 0.999)
    of = one_threshold()
    one.state.round, one.state.rounds, one.state.learned = of, rounds, 150
    tried_on(one, of, 299, cost)
    assert one.state.round is of and one.state.learned == 449
    tried_on(one, of, 1, cost)
    assert one.phase == "stopping" and one._admit().role == "stopped"
    assert (one.state.round is None) == (one.state.standing is of) == another
    if another:
        assert one.state.due == one.state.learned == 450
        said = one.state.events[-1]["text"]
        assert "300 requests earned one that saves 10 %: another scorer is fitted on 450, and what is promised" in said
        assert "promised: at most 5 % lost" in one.state.why


def standing(tmp_path: Path) -> tuple[Pilot, Round]:
    """A pilot whose first promise, an eighth of the tokens, stands while another scorer is tried."""
    one = Pilot(SETTING, Terms(0.05), Memory(tmp_path), chance=lambda: 0.999)
    first, second = one_threshold(), one_threshold(replace(BLANK, model={**BLANK.model, "intercept": 1.0}))
    one.state.round, one.state.rounds, one.state.learned = first, 1, 150
    one._memory.keep_scorer(one.name, first.scorer)
    tried_on(one, first, 300, 88)
    one._memory.keep_scorer(one.name, second.scorer)
    one.state.round, one.state.rounds = second, 2
    return one, second


@pytest.mark.parametrize(("cost", "better"), [(80, True), (95, False)])
def test_what_stands_gives_way_to_what_saves_more(tmp_path: Path, cost: int, better: bool) -> None:
    one, second = standing(tmp_path)
    method = one._method
    tried_on(one, second, 200, cost, Kept(False, 88, 100))
    assert second.served == 0 and (one.state.serving is second) == (one._method is not method) == better
    assert one._admit().role == "stopped"


def test_what_stands_may_save_enough_for_both(tmp_path: Path) -> None:
    """An eighth of the tokens is not enough for a first scorer, and is for a second: none is fitted on yet more."""
    one, second = standing(tmp_path)
    tried_on(one, second, 900, 99, Kept(False, 88, 100))
    assert one.state.round is second and one._earned
    assert one.state.learned == 450 + REFINED  # from then on it learns no more


def test_all_that_may_save_more_than_what_stands_is_tried(tmp_path: Path) -> None:
    one, _ = standing(tmp_path)
    one.state.round = of = Round(BLANK, [0.9, 0.8, 0.7, 0.6], 0.05, 0.05)
    for _ in range(REFINED + 1):
        one._apply(Tried(no_looks(), Trial([True] * 4, [80] * 4, 100, 0.5), 0, Kept(False, 88, 100)), of)
    assert one.state.round is of and one._wanted(of) == range(4)


def test_what_stands_is_measured_and_taken_back(tmp_path: Path) -> None:
    """By what it would have done itself, whatever the scorer that is tried does."""
    one, second = standing(tmp_path)
    assert one.state.alarm is not None
    before = one.state.alarm.n
    tried_on(one, second, 20, 80, Kept(False, 88, 100))
    assert one.state.alarm.n == before + 20
    for _ in range(20):
        one._apply(Tried(no_looks(), None, 0, Kept(True, 88, 100)), None)  # also where no round is
    assert one.phase == "learning" and one.state.standing is None is one.state.round
    assert "were lost where 5 % were promised" in one.state.why and one._admit().role == "plain"


def test_what_stands_is_remembered_with_its_own_scorer(tmp_path: Path) -> None:
    one, second = standing(tmp_path)
    tried_on(one, second, 3, 80, Kept(False, 88, 100))
    one.remember()
    again = Pilot(SETTING, one.terms, Memory(tmp_path), chance=lambda: 0.999)
    assert again.state.round is not None and again.state.standing is not None
    assert again.state.round.scorer.model["intercept"] == 1.0
    method = again._admit().method
    assert method is not None and method.parameters.profile.model == BLANK.model == again.state.standing.scorer.model
    told = again.status()
    assert told["stands"] and not any(one["served"] for one in told["thresholds"])
    assert "that promise stands while a scorer that may save more is tried, on 3 requests so far" in in_words(told)


def test_what_is_being_tried_is_told_while_learning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = Pilot(SETTING, Terms(0.05), Memory(tmp_path), chance=lambda: 0.999)
    assert "it has just begun" in " ".join(in_words(one.status()))
    one.state.learned = 150
    told = " ".join(in_words(one.status()))
    assert "150 of the 150 requests that the first scorer takes have been learned from" in told
    assert "(the next scorer is due at 150)" in told and "strictest" not in told
    of = one_threshold()
    monkeypatch.setattr("bitcal_tts.serving.pilot.fit_round", lambda *_: of)
    with ThreadPoolExecutor(1) as apart:
        apart.submit(anyio.run, one._fit_when_due).result()
    for lost in (True, False, False):
        one._apply(Tried(no_looks(), Trial([lost], [80], 100, 0.5), 40), of)
    told = " ".join(in_words(one.status()))
    assert "scorer 1 fitted on 150 requests; stops are being tried" in told and "just begun" not in told
    assert "(the next scorer is due at 450); tried on 3, of which the strictest threshold has lost 1" in told
    assert one.status()["net"] < 0 and "proven" not in told
    taken = percent(-one.status()["net"])
    assert f"net of what was saved, finding out has taken {taken} of all tokens so far" in told
    of.costs[0], of.passed = [100, 100], 1  # proven, and saves nothing
    assert of.served is None
    assert "what is proven so far saves nothing to speak of, and is not promised" in " ".join(in_words(one.status()))


def test_a_scorer_is_never_taken_for_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut off between keeping a scorer and keeping what is known of it, it comes back with the promise that stood."""
    one, _ = standing(tmp_path)
    one.remember()
    one.state.round = None
    monkeypatch.setattr("bitcal_tts.serving.pilot.fit_round", lambda *_: one_threshold())
    keep = Memory.keep_scorer

    def cut_off(memory: Memory, *args: Any, **options: Any) -> None:
        keep(memory, *args, **options)
        raise OSError("no power")

    monkeypatch.setattr(Memory, "keep_scorer", cut_off)
    with ThreadPoolExecutor(1) as apart, pytest.raises(OSError, match="no power"):
        apart.submit(anyio.run, one._fit_when_due).result()
    again = Pilot(SETTING, one.terms, Memory(tmp_path), chance=lambda: 0.999)
    assert again.state.round is None and again.state.standing is not None and again.phase == "stopping"


@pytest.mark.parametrize(("answer", "lost"), [("7", False), ("8", True)])
def test_what_stands_is_tried_where_it_would_stop(answer: str, lost: bool) -> None:
    """At its own first look that is good enough, not at those of the scorer that is tried."""

    class Answers:
        async def if_stopped(self, where: Any) -> tuple[int, str | None, int]:
            return where.at + 1, answer, 3

    seen = observed("3 + 4 = 7 apples . So there are 7 apples . Wait , 3 + 4 = 7 . \n#### 7\n")
    trying = Trying(seen, Answers())
    with ThreadPoolExecutor(1) as apart:
        trial = apart.submit(anyio.run, trying.trial, one_threshold(sure()), range(1)).result()
        assert trial.kept(0) == Kept(lost, seen.places[0].at + 1, seen.session.outcome.tokens) and trying.spent == 3
        apart.submit(anyio.run, trying.ask, [0]).result()
    assert trying.spent == 3  # it had been asked there
    assert trying.learned().at.tolist() == [seen.places[0].at]


def sure() -> Profile:
    """Stops wherever it may."""
    return Profile("logistic", ("tokens",), {"mean": [0.0], "scale": [1.0], "weights": [0.0], "intercept": 9.0}, {})


def observed(text: str) -> Observed:
    """A text that has come to its end."""
    seen = Observed(Walker(SETTING.parameters()), question="How many apples are 3 and 4 apples?")
    seen.session.feed(Tokens([f"{word} " for word in text.split(" ")]))
    seen.session.end()
    return seen


def test_what_has_earned_enough_learns_no_more(tmp_path: Path) -> None:
    one = Pilot(SETTING, Terms(0.05), Memory(tmp_path), chance=lambda: 0.2)
    of = Round(BLANK, [0.9], 0.05, 0.05, firsts=list(np.linspace(0, 1, 60)))
    one.state.round, one.state.rounds = of, 1
    for _ in range(REFINED):
        assert one._admit().role == "watched"
        one._apply(Tried(no_looks(), Trial([False], [50], 100, 0.5), 0), of)
    assert one._admit().role == "stopped"  # of the share that only measures it is not
    learned = one.state.learned
    one._apply(Tried(no_looks(), Trial([False], [50], 100, 0.5), 0), of)
    assert one.state.learned == learned == REFINED


def test_thresholds_are_evenly_spaced_in_what_they_save() -> None:
    """Not in what they lose: between one that never stops and one that loses too much there are others."""
    n = 400
    scores = np.arange(n) / n  # a look each, which saves half; those below 0.3 are lost
    table = LookTable(
        trace=np.arange(n), at=np.full(n, 50),
        stops=Stops.of([(50, 0, True, i >= 0.3 * n, True, "") for i in range(n)]),
        ends=Stops.of([(100, 0, True, True, False, "")] * n), full_tokens=np.full(n, 100),
        full_right=np.ones(n, dtype=np.bool_), strict=False, scores=scores, candidates=CandidateRows.of([], []),
    )  # fmt: skip
    for risk, loosest in ((0.3, 0.0), (0.15, 0.15)):
        shares = [table.cut(threshold).share for threshold in _thresholds(table, risk)]
        assert -np.diff([1.0, *shares]) == pytest.approx((1 - loosest) / 2 / 8, rel=0.2)
        assert shares[-1] == pytest.approx(1 - (1 - loosest) / 2, abs=0.01)


def test_drift_of_the_scores_takes_it_back(tmp_path: Path) -> None:
    one = promised(tmp_path)
    admitted = one._admit()
    assert admitted.method is not None and admitted.method.monitor is not None
    one.spent(admitted, 50)
    assert one.phase == "stopping"
    for _ in range(60):
        admitted.method.monitor.update(0.999)
    one.spent(admitted, 50)
    assert one.phase == "learning"
    assert "drifted" in one.state.why


def test_savings_count_everything(tmp_path: Path) -> None:
    one = promised(tmp_path)
    of = one.state.round
    assert of is not None
    for _ in range(100):
        one._apply(Tried(no_looks(), Trial([None, False, None], [None, 50, None], 100, 0.5), 7), of)
    one.state.counts.watched, one.state.counts.stopped = 100, 300
    one.state.counts.tokens, one.state.counts.stopped_tokens = 100 * 100 + 300 * 50, 300 * 50
    # 400 requests of 100 tokens would have taken 40,000; it took 25,000 and 700 for the side requests.
    assert one.status()["net"] == pytest.approx(1 - 25_700 / 40_000)


class Table:
    """A request that ran to its end, and had nothing to stop at."""

    def __init__(self, tokens: int) -> None:
        self.tokens = tokens

    places: tuple[Any, ...] = ()

    def asked(self, answers: dict[int, str | None]) -> LookTable:
        return LookTable.undisturbed(self.tokens, True, True)

    def text(self) -> tuple[None, str]:
        return None, ""


def end(one: Pilot, admitted: Any, tokens: int) -> None:
    seen: Any = Table(tokens)
    one.ended(admitted, (seen, seen))


def test_what_goes_wrong_with_a_request_costs_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A full disk for a while: the sidecar goes on, and so does its measuring."""
    memory = Memory(tmp_path)
    one = Pilot(SETTING, Terms(0.05, learn=1.0), memory, chance=lambda: 0.0)
    admitted = [one._admit() for _ in range(4)]

    def full(*_: Any) -> None:
        raise OSError("the disk is full")

    async def go() -> None:
        async with anyio.create_task_group() as tasks:
            one.begin(tasks)
            for i, breaks in enumerate(("keep", "keep_text", "save", None)):
                with monkeypatch.context() as broken:
                    if breaks is not None:
                        broken.setattr(memory, breaks, full)
                    end(one, admitted[i], i)
                    await anyio.sleep(0.05)

    with ThreadPoolExecutor(1) as apart:
        apart.submit(anyio.run, go).result()
    assert [int(table.full_tokens[0]) for table in memory.kept(one.name, 0)] == [2, 3]
    assert sum("could not be learned from" in record.message for record in caplog.records) == 3


def test_what_was_asked_before_it_began_anew_is_not_learned_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    one = Pilot(SETTING, Terms(0.05, learn=1.0, first=30), Memory(tmp_path), chance=lambda: 0.0)
    first, second = one._admit(), one._admit()
    plain = one._find_out

    async def late(*args: Any) -> None:
        await plain(*args)
        one._relearn("while it was asked about")

    async def go() -> None:
        async with anyio.create_task_group() as tasks:
            one.begin(tasks)
            with monkeypatch.context() as slow:
                slow.setattr(one, "_find_out", late)
                end(one, first, 1)
                await anyio.sleep(0.05)
            assert (one.state.epoch, one.state.learned) == (1, 0)
            one.state.learned = one.state.due = 30
            monkeypatch.setattr(one, "_fitted", lambda epoch, level: one._relearn("while it was fitted"))
            end(one, second, 1)

    with ThreadPoolExecutor(1) as apart:
        apart.submit(anyio.run, go).result()
    assert (one.state.epoch, one.state.round, one.state.rounds) == (2, None, 0)
    assert "could not be learned from" not in caplog.text


def test_past_the_most_that_is_learned_from_only_the_shadow_is_asked_about(tmp_path: Path) -> None:
    one = Pilot(SETTING, Terms(0.05, shadow=0.05, learn=0.5), Memory(tmp_path), chance=lambda: 0.3)
    assert one._admit().role == "watched"
    one.state.learned = MOST_LEARNED
    assert one._admit().role == "plain"


def test_requests_are_learned_from_in_the_order_of_asking(tmp_path: Path) -> None:
    one = Pilot(SETTING, Terms(0.05, learn=1.0), Memory(tmp_path), chance=lambda: 0.0)
    admitted = [one._admit() for _ in range(4)]
    assert [a.role for a in admitted] == ["watched"] * 4

    async def go() -> None:
        async with anyio.create_task_group() as tasks:
            one.begin(tasks)
            for i in (2, 3, 0):
                end(one, admitted[i], i)
            await anyio.sleep(0.05)
            assert one.state.learned == 1  # the second has not ended
            one.unfinished(admitted[1])

    with ThreadPoolExecutor(1) as apart:  # a browser that another test has opened runs a loop in this thread
        apart.submit(anyio.run, go).result()
    assert [int(table.full_tokens[0]) for table in one._memory.kept(one.name, 0)] == [0, 2, 3]
    assert one.state.counts.unfinished == 1


def test_damaged_state_is_a_clear_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / FILE).write_bytes(b"this is not a database, and was never one" * 100)
    with pytest.raises(StateError, match="move autopilot.sqlite away"):
        Memory(tmp_path)
    odd = tmp_path / "odd #1 50%?"
    memory = Memory(odd)
    one = Pilot(SETTING, Terms(0.05), memory)
    one.remember()
    assert main(["serve", "status", "--state", str(odd)]) == 0
    memory.save(one.name, {"state": {**one.remembered()["state"], "of_another_version": 1}})
    with pytest.raises(StateError, match="move autopilot.sqlite away"):
        Pilot(SETTING, Terms(0.05), memory)
    capsys.readouterr()
    assert main(["serve", "status", "--state", str(tmp_path / "none")]) == 2
    assert "there is no autopilot's state" in capsys.readouterr().err


@pytest.mark.parametrize(
    "options", [{"risk": 0.0}, {"risk": 1.0}, {"risk": 0.1, "shadow": 0.0}, {"risk": 0.1, "learn": 1.5}]
)
def test_terms_that_promise_nothing_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must be above 0 and below 1"):
        Terms(**options)


def test_what_is_observed_is_what_would_have_been_done() -> None:
    """Looks of a request that runs to its end are those at which `settled` would have judged."""
    text = "3 + 4 = 7 apples . So there are 7 apples . Wait , 3 + 4 = 7 . \n#### 7\n"
    seen = observed(text)
    table = seen.table()
    assert table.n == 1 and len(table) == len(seen.places) >= 2
    assert seen.is_same("7") and not seen.is_same("8") and not seen.is_same(None)
    assert table.candidates.same.any()
    assert int(table.full_tokens[0]) == len(text.split(" "))
    assert [place.at for place in seen.places] == table.at.tolist()


def test_a_look_at_which_the_model_was_asked_is_worth_what_it_answered() -> None:
    """The text may stand for the right value where the model, cut off there, would say another."""
    seen = observed("3 + 4 = 7 apples . So there are 7 apples . Wait , 3 + 5 = 8 . No , 7 . \n#### 7\n")
    last = len(seen.places) - 1
    table = seen.asked({0: "7", last: "8"})
    assert table.at.tolist() == [seen.places[0].at, seen.places[last].at] and not table.read
    assert table.stops.same.tolist() == [True, False]
    of_last = table.candidates.look == 1
    assert table.candidates.same[~of_last].any() and not table.candidates.same[of_last].any()
    assert (
        seen.table().candidates.same[seen.table().candidates.look == last].any()
    )  # read off the text it would be right
    assert spread(last + 1, 99, 0.5) == list(range(last + 1))
    assert spread(last + 1, 2, 0.0) == [0, (last + 1) // 2] and max(spread(last + 1, 2, 0.999)) == last
