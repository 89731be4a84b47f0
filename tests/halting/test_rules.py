"""Each rule's arithmetic on hand-made signals, and what all gates share."""

from __future__ import annotations

import math
from typing import Any

import pytest

from bitcal_tts import Action, Step, build_method
from bitcal_tts.halting.controller import Decision, Probe
from bitcal_tts.halting.landing import Landing, landing
from bitcal_tts.halting.rules import RULES
from bitcal_tts.halting.rules.deer import confidence


def probe(text: str = " 5", logprobs: tuple[float, ...] = (0.0, -0.1), entropy: float = 0.0) -> Probe:
    return Probe(text, 6, logprobs, entropy, 3)


def walk(method: Any, probes: list[Probe], entropies: list[float] | None = None) -> list[Decision]:
    """One decision a boundary of 16 tokens of plain prose."""
    told = []
    for i, given in enumerate(probes):
        signals = [0.2 if entropies is None else entropies[i]] * 16
        step = Step(
            text=f"words {i} " * 4, n_tokens=16, entropy=signals[-1], token_texts=[f"w{i} "] * 16, entropies=signals,
            logprobs=[-0.1] * 16, margins=[1.0] * 16, top_logprobs=[-5.0 - i] * 16, probe=lambda _, p=given: p,  # type: ignore[misc]
        )  # fmt: skip
        told.append(method.observe(step))
        if told[-1].halts:
            break
    return told


def rule(name: str, **options: Any) -> Any:
    return build_method(name, bits=4, budget=4096, chunk_size=16, **options)


def test_deer_is_the_mean_probability_without_the_first_token() -> None:
    assert confidence((-5.0, math.log(0.9), math.log(0.5)), "arithmetic") == pytest.approx(0.7)
    assert confidence((-5.0, math.log(0.9), math.log(0.4)), "geometric") == pytest.approx(0.6)
    assert confidence((), "arithmetic") == 0.0
    sure, unsure = probe(logprobs=(0.0, math.log(0.96))), probe(logprobs=(0.0, math.log(0.95)))
    told = walk(rule("deer"), [unsure, unsure, sure])
    assert [d.halts for d in told] == [False, False, True]  # above lambda, not at it
    assert told[-1].probe_tokens == 18
    assert len(walk(rule("deer", max_probes=2, threshold=2.0), [sure] * 5)) == 5
    assert walk(rule("deer", max_probes=2, threshold=2.0), [sure] * 5)[-1].probe_tokens == 12


def test_dynasor_counts_equal_certain_answers() -> None:
    told = walk(rule("dynasor"), [probe(" 4"), probe(" 5"), probe(" 5 wait"), probe(" 5"), probe(" 5.0"), probe(" 5")])
    assert [d.confidence for d in told] == [1, 1, 0, 1, 2, 3]
    assert told[-1].halts
    told = walk(rule("convergence", threshold=3.0), [probe(" 5"), probe(" 5 wait"), probe(" 5")])
    assert [d.confidence for d in told] == [1, 2, 3]
    assert walk(rule("dynasor"), [probe("nothing")] * 4)[-1].confidence == 0


def test_eat_is_a_moving_variance_in_bits_after_a_warm_up() -> None:
    eat = rule("eat", alpha=0.5)
    values = [1.0, 3.0, 3.0]
    assert [eat.update(v) for v in values] == [None, None, None]
    # M: 1, 2, 2.5; V: 0, 0.5, 0.5 * 0.25 + 0.25 = 0.375
    assert (eat._mean, eat._variance) == (2.5, 0.375)
    steady = walk(rule("eat", alpha=0.5), [probe(entropy=math.log(2))] * 20)
    assert steady[-1].halts and len(steady) == 9  # 4 / alpha boundaries pass first
    assert steady[-1].probe_tokens == 9 * 3
    assert not walk(rule("eat", alpha=0.1), [probe()] * 39)[-1].halts


def test_cusum_sums_what_lies_below_the_usual_level() -> None:
    told = walk(rule("cusum", mu0=0.5, kappa=0.1, threshold=6.0), [probe()] * 4, entropies=[0.3, 0.9, 0.2, 0.2])
    assert [round(d.confidence, 6) for d in told] == [1.6, 0.0, 3.2, 6.4]
    assert told[-1].halts


def test_deepconf_gives_up_on_a_low_window_and_writes_no_answer() -> None:
    told = walk(rule("deepconf", window=32, threshold=0.0), [probe()] * 3)
    # Confidences are 5, 6 and 7: a window is full after the second step, and lowest where a step begins to add to it.
    assert [d.looked for d in told] == [False, True, True]
    assert [d.confidence for d in told[1:]] == pytest.approx([-5.5, -(15 * 5 + 16 * 6 + 7) / 32])
    low = walk(rule("deepconf", window=16, threshold=-5.5), [probe()] * 2)
    assert low[0].action is Action.ESCALATE and low[0].landing is None


def test_truncate_random_and_s1() -> None:
    assert [d.tokens for d in walk(rule("truncate", threshold=48.0), [probe()] * 9)] == [16, 32, 48]
    assert len(walk(rule("s1", threshold=32.0), [probe()] * 9)) == 2
    ends = [len(walk(rule("random", threshold=m), [probe()] * 50)) for m in (16.0, 64.0, 256.0)]
    assert ends == sorted(ends)
    assert walk(rule("random", threshold=64.0), [probe()] * 50) == walk(rule("random", threshold=64.0), [probe()] * 50)


def test_an_oracle_must_be_told() -> None:
    with pytest.raises(ValueError, match="exists in replay only"):
        walk(rule("oracle"), [probe()])
    oracle = rule("oracle", threshold=1.0)
    oracle.told(lambda tokens: tokens == 32)
    assert [d.halts for d in walk(oracle, [probe()] * 5)] == [False, True]


@pytest.mark.parametrize("name", ["deer", "dynasor", "eat", "convergence"])
def test_without_probes_a_probing_rule_says_so(name: str) -> None:
    with pytest.raises(ValueError, match="record with --probes"):
        rule(name).observe(Step(text="x" * 16, n_tokens=16, entropy=0.1, token_texts=["x"] * 16))


@pytest.mark.parametrize("name", sorted(RULES))
def test_every_rule_is_built_by_name_and_starts_afresh(name: str) -> None:
    method = rule(name)
    again = method.fresh()
    assert type(again) is type(method) and again.parameters == method.parameters and again is not method


def test_landing_closes_the_thinking_on_its_own_line_and_cues() -> None:
    assert landing("so 5", "</think>", "####") == Landing("\n</think>\n\n", "####")
    assert landing("so 5\n", "</think>", "####") == Landing("</think>\n\n", "####")
    assert landing("so 5", None, "####") == Landing("\n", "####")
    decision = walk(rule("truncate", threshold=16.0, opening=None, close="</think>"), [probe()])[-1]
    assert decision.landing == Landing("\n</think>\n\n", "####")


def test_the_reserve_is_part_of_the_budget() -> None:
    method = build_method("truncate", bits=4, budget=128, chunk_size=16)  # reserve 32: no boundary later than 96
    told = walk(method, [probe()] * 9)
    assert (told[-1].tokens, str(told[-1].reason)) == (96, "reserve")
    never = build_method("truncate", bits=4, budget=128, chunk_size=16, reserve=0)
    assert not walk(never, [probe()] * 7)[-1].halts


def test_a_gate_does_not_cut_an_answer_that_is_being_written() -> None:
    method = rule("truncate", threshold=16.0, opening=None, close="</think>")
    texts = ["</think>", *["a"] * 15]
    step = Step(text="".join(texts), n_tokens=16, entropy=0.1, token_texts=texts)
    assert not method.observe(step).halts


def test_deer_waits_once_a_line() -> None:
    deer = rule("deer", at="wait", threshold=2.0, every=4)
    for i, text in enumerate(["Wait", ", let", " me"] + [" see"] * 30 + ["\n", "Alternatively"] + [" so"] * 7):
        step = Step(text=text, n_tokens=1, entropy=0.0, token_texts=[text], probe=lambda _: probe())
        decision = deer.observe(step)
        assert i >= 0
    assert decision.probe_tokens == 2 * 6


def test_random_draws_from_all_the_first_words() -> None:
    draws = set()
    for first in ("a", "b"):
        method = rule("random", threshold=1e9)
        texts = [first] * 15 + ["same"]
        method.observe(Step(text="".join(texts), n_tokens=16, entropy=0.0, token_texts=texts))
        draws.add(method._draw)
    assert len(draws) == 2


def test_the_reserve_looks_as_far_ahead_as_the_next_decision() -> None:
    method = build_method("truncate", bits=4, budget=512, chunk_size=64)
    texts = [f"w{i}" for i in range(64)]
    ends = [method.observe(Step(text="x", n_tokens=64, entropy=0.0, token_texts=texts)) for _ in range(7)]
    assert (ends[-1].tokens, str(ends[-1].reason)) == (448, "reserve")


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("deer", {"mean": "harmonic"}, "mean must be arithmetic or geometric"),
        ("deer", {"at": "never"}, "at must be boundary or wait"),
        ("eat", {"alpha": 0.0}, "alpha must be above 0"),
        ("truncate", {"every": 0}, "every must be a whole number"),
        ("truncate", {"threshold": math.nan}, "threshold must be a number"),
        ("truncate", {"threshold": "high"}, "threshold must be a number, got 'high'"),
        ("eat", {"alpha": "x"}, "alpha must be a number"),
        ("deepconf", {"window": 0}, "window must be a whole number of at least 1"),
        ("deer", {"max_probes": "x"}, "max_probes must be a whole number"),
        ("nobody", {}, "unknown method 'nobody'"),
    ],
)
def test_bad_values_are_named(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        rule(name, **options)
