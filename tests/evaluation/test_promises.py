"""The sentence that stands wherever a profile served."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from bitcal_tts.evaluation.promises import kept, promised
from bitcal_tts.evaluation.verdict import verdict
from bitcal_tts.traces.outcome import Outcome

EVIDENCE = {"certified": True, "risk": 0.01, "confidence": 0.9, "certified_items": 2048, "more_items_needed": 0}


def method(evidence: dict[str, Any], *, force: bool = False, promises: bool = True) -> Any:
    profile = SimpleNamespace(evidence={"4": evidence})
    parameters = SimpleNamespace(name="settled", bits=4.0, budget=512, profile=profile, force=force)
    return SimpleNamespace(parameters=parameters, promises=promises)


def outcomes(lost: int, fine: int, wrong: int = 0) -> list[Outcome]:
    def one(i: int, *, correct: bool, full: bool) -> Outcome:
        return Outcome(str(i), "settled", 4.0, 512, 100, 0, "halted", "settled", "1", correct, full, 200)

    return [
        *(one(i, correct=False, full=True) for i in range(lost)),
        *(one(i, correct=True, full=True) for i in range(fine)),
        *(one(i, correct=False, full=False) for i in range(wrong)),
    ]


def test_a_promise_that_is_kept() -> None:
    told = kept(method(EVIDENCE), outcomes(4, 1315))
    assert told is not None
    assert told["line"] == (
        "promised: at most 1 % lost (confidence 0.9, 2,048 items); seen here: 4 of 1,319 = 0.3 % [0.12, 0.78]: kept"
    )
    assert (told["verdict"], told["lost"], told["n"]) == ("kept", 4, 1319)


@pytest.mark.parametrize(("lost", "word"), [(10, "kept"), (12, "unclear"), (40, "broken")])
def test_more_than_promised_is_broken_only_where_chance_does_not_explain_it(lost: int, word: str) -> None:
    told = kept(method(EVIDENCE), outcomes(lost, 1000 - lost))
    assert told is not None and told["verdict"] == word
    ends = {"unclear": "which chance may explain", "kept": "kept, as far as these can tell"}  # 1.8 % are possible
    assert told["line"].endswith(ends.get(word, word))


def test_a_promise_among_the_right_counts_those_only() -> None:
    told = kept(method({**EVIDENCE, "among": "right"}), outcomes(2, 98, wrong=100))
    assert told is not None and told["n"] == 100
    assert "at most 1 % of the right answers lost" in told["line"]


def test_items_that_the_profile_knows_show_nothing() -> None:
    some = kept(method(EVIDENCE), outcomes(4, 96), {"0", "1", "2", "3"})
    assert some is not None and (some["lost"], some["n"], some["met"]) == (0, 92, 8)
    assert some["line"].endswith(
        "0 of 92 = 0 % [0, 4.01]: kept, as far as these can tell (it was fitted or certified on the other 8)"
    )
    known = kept(method(EVIDENCE), outcomes(0, 50), {str(i) for i in range(50)})
    assert known is not None and "verdict" not in known
    assert known["line"].endswith("; seen here: nothing (it was fitted or certified on all of these items)")


def test_a_profile_that_never_stops_says_so_and_what_it_would_take() -> None:
    told = kept(method({**EVIDENCE, "certified": False, "more_items_needed": 1200}), outcomes(0, 10))
    assert told is not None and not told["certified"]
    assert told["line"] == (
        "promised: nothing, so that it never stops early: about 1,200 more items are needed for at most 1 %"
    )
    lost = promised({**EVIDENCE, "certified": False, "more_items_needed": None})
    assert "too much is lost at the strictest threshold" in lost


def test_what_was_forced_is_said_and_other_methods_promise_nothing() -> None:
    forced = kept(method(EVIDENCE, force=True), outcomes(0, 1000))
    assert forced is not None and forced["line"].endswith("kept, though it was forced")
    known = kept(method(EVIDENCE, force=True), outcomes(0, 50), {str(i) for i in range(50)})
    assert known is not None and known["line"].endswith("; it was forced, and promises nothing here")
    assert kept(method(EVIDENCE, promises=False), outcomes(0, 100)) is None


def row(name: str, saved: float, accuracy: float, lost: float = 0.0) -> dict[str, Any]:
    return {
        "method": name, "budget": 512, "savings": saved, "accuracy": accuracy, "avg_tokens": 400 * (1 - saved),
        "n": 200, "lost_correct_rate": lost,
    }  # fmt: skip


def test_the_verdict_names_what_saves_most_and_is_not_worse() -> None:
    name = "fixed"
    rows = [row(name, 0.0, 0.8), row("quick", 0.5, 0.6, 0.2), row("settled", 0.3, 0.81, 0.01), row("slow", 0.1, 0.8)]
    tests = [
        {"method": m, "against": name, "budget": 512, "verdict": v, "difference": d, "p_corrected": 0.5}
        for m, v, d in (("quick", "worse", -0.2), ("settled", "not worse", 0.01), ("slow", "not resolved", 0.0))
    ]
    assert verdict(rows, tests) == (
        "Decoded to the end, 80.0 % are right with 400 tokens an answer (budget 512, N = 200). settled saves 30.0 % of "
        "them and loses 1.0 % of the answers; accuracy +1.0 points (not worse, corrected p = 0.5)."
    )
    met = [{"method": "settled", "met": 150}, {"method": "slow", "met": 0}]
    assert verdict(rows, tests, met).endswith("Its profile has met 150 of these items: on others it may do worse.")
    assert verdict(rows, tests, met[1:]) == verdict(rows, tests)
    assert verdict(rows[:2], tests[:1]).endswith("Every method that saves tokens against that costs accuracy.")
    assert verdict([rows[0], row("slow", 0.0, 0.8)], tests).endswith("No method here saves anything to speak of.")
    nothing = verdict([one | {"accuracy": 0.0} for one in rows], tests)
    assert nothing.startswith("Decoded to the end, 0.0 % are right") and "saves" not in nothing
    assert "nothing can be lost" in nothing and nothing.endswith("(--answers)?")
    landed = [one | {"method": "landed"} if one["method"] == name else one for one in rows]
    assert verdict(landed, []).startswith("Decoded to the end, and landed where the budget runs out, 80.0 % are right")
    assert verdict(rows[:1], []) == "fixed is right in 80.0 % with 400 tokens an answer."


@pytest.mark.parametrize(("rate", "told"), [(0.6, True), (0.1, True), (0.09, False)])
@pytest.mark.parametrize(
    ("base", "begin", "why"),
    [
        ("landed", "Decoded to the end, and landed where", ", where landing answers for them; lost counts only"),
        ("fixed", "Decoded to the end or the budget, 80", ": what they had no time to answer is not counted as lost."),
    ],
)
def test_the_verdict_tells_that_many_texts_are_cut_off(
    base: str, begin: str, why: str, rate: float, told: bool
) -> None:
    rows = [row(base, 0.0, 0.8) | {"cut_off_rate": rate}, row("settled", 0.3, 0.8)]
    tests = [
        {"method": "settled", "against": base, "budget": 512, "verdict": "not worse", "difference": 0.0,
         "p_corrected": 0.5}
    ]  # fmt: skip
    said = verdict(rows, tests)
    assert (f" {100 * rate:.1f} % of the texts are cut off at the budget{why}" in said) is told
    assert said.startswith(begin) is (told or base == "landed")
