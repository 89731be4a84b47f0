"""Each rule's arithmetic on hand-made signals, and what all gates share."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import pytest

from bitcal_tts import Action, Step, build_method
from bitcal_tts.halting.controller import Decision, Probe
from bitcal_tts.halting.exchange import Ask, Directive, End, Force, Go, Tokens
from bitcal_tts.halting.landing import Landing, landing
from bitcal_tts.halting.rules import RULES
from bitcal_tts.halting.rules.deer import confidence
from bitcal_tts.halting.session import Session
from bitcal_tts.halting.signals import TEXT_ONLY, Signals


def probe(text: str = " 5", logprobs: tuple[float, ...] = (0.0, -0.1), entropy: float = 0.0) -> Probe:
    return Probe(text, 6, logprobs, entropy, 3)


class Walked(NamedTuple):
    decisions: list[Decision]
    session: Session
    directive: Directive


def walk(method: Any, probes: list[Probe], entropies: list[float] | None = None) -> Walked:
    """A session on plain prose, 16 tokens a probe; whatever it asks is told."""
    decisions: list[Decision] = []
    session = Session(method, signals=Signals(probes=True), watch=decisions.append)
    directive: Directive = Go()
    for i, given in enumerate(probes):
        signals = [0.2 if entropies is None else entropies[i]] * 16
        tokens = Tokens([f"w{i} "] * 16, signals, [-0.1] * 16, [1.0] * 16, [-5.0 - i] * 16)
        directive = session.feed(tokens)
        while isinstance(directive, Ask):
            directive = session.tell(given)
        if not isinstance(directive, Go):
            break
    return Walked(decisions, session, directive)


def scores(walked: Walked) -> list[float | None]:
    return [decision.score for decision in walked.decisions]


def rule(name: str, **options: Any) -> Any:
    return build_method(name, bits=4, budget=4096, chunk_size=16, **options)


def test_deer_is_the_mean_probability_without_the_first_token() -> None:
    assert confidence((-5.0, math.log(0.9), math.log(0.5)), "arithmetic") == pytest.approx(0.7)
    assert confidence((-5.0, math.log(0.9), math.log(0.4)), "geometric") == pytest.approx(0.6)
    assert confidence((), "arithmetic") == 0.0
    sure, unsure = probe(logprobs=(0.0, math.log(0.96))), probe(logprobs=(0.0, math.log(0.95)))
    walked = walk(rule("deer"), [unsure, unsure, sure])
    assert [d.halts for d in walked.decisions] == [False, False, True]  # above lambda, not at it
    assert walked.session.probe_tokens == 18
    patient = walk(rule("deer", max_probes=2, threshold=2.0), [sure] * 5)
    assert len(patient.decisions) == 5
    assert patient.session.probe_tokens == 12


def test_dynasor_counts_equal_certain_answers() -> None:
    answers = [probe(" 4"), probe(" 5"), probe(" 5 wait"), probe(" 5"), probe(" 5.0"), probe(" 5")]
    walked = walk(rule("dynasor"), answers)
    assert scores(walked) == [1, 1, 0, 1, 2, 3]
    assert walked.decisions[-1].halts
    assert scores(walk(rule("convergence", threshold=3.0), [probe(" 5"), probe(" 5 wait"), probe(" 5")])) == [1, 2, 3]
    assert scores(walk(rule("dynasor"), [probe("nothing")] * 4))[-1] == 0


def test_eat_is_a_moving_variance_in_bits_after_a_warm_up() -> None:
    eat = rule("eat", alpha=0.5)
    values = [1.0, 3.0, 3.0]
    assert [eat.update(v) for v in values] == [None, None, None]
    # M: 1, 2, 2.5; V: 0, 0.5, 0.5 * 0.25 + 0.25 = 0.375
    assert (eat._mean, eat._variance) == (2.5, 0.375)
    steady = walk(rule("eat", alpha=0.5), [probe(entropy=math.log(2))] * 20)
    assert steady.decisions[-1].halts and len(steady.decisions) == 9  # 4 / alpha boundaries pass first
    assert steady.session.probe_tokens == 9 * 3  # only the closing is charged
    assert not walk(rule("eat", alpha=0.1), [probe()] * 39).decisions[-1].halts


def test_cusum_sums_what_lies_below_the_usual_level() -> None:
    walked = walk(rule("cusum", mu0=0.5, kappa=0.1, threshold=6.0), [probe()] * 4, entropies=[0.3, 0.9, 0.2, 0.2])
    assert scores(walked) == pytest.approx([1.6, 0.0, 3.2, 6.4])
    assert walked.decisions[-1].halts


def test_deepconf_gives_up_on_a_low_window_and_writes_no_answer() -> None:
    walked = walk(rule("deepconf", window=32, threshold=0.0), [probe()] * 3)
    # Confidences are 5, 6 and 7: a window is full after the second step, and lowest where a step begins to add to it.
    assert [d.looked for d in walked.decisions] == [False, True, True]
    assert scores(walked)[1:] == pytest.approx([-5.5, -(15 * 5 + 16 * 6 + 7) / 32])
    low = walk(rule("deepconf", window=16, threshold=-5.5), [probe()] * 2)
    assert low.decisions[0].action is Action.ESCALATE and isinstance(low.directive, End)


def test_truncate_random_and_s1() -> None:
    assert [d.tokens for d in walk(rule("truncate", threshold=48.0), [probe()] * 9).decisions] == [16, 32, 48]
    assert len(walk(rule("s1", threshold=32.0), [probe()] * 9).decisions) == 2
    ends = [len(walk(rule("random", threshold=m), [probe()] * 50).decisions) for m in (16.0, 64.0, 256.0)]
    assert ends == sorted(ends) and ends[0] < ends[-1]
    one, other = (walk(rule("random", threshold=64.0), [probe()] * 50).decisions for _ in range(2))
    assert one == other


def test_s1_counts_inside_the_thinking_only() -> None:
    """A model that opens its thinking late is not cut before it does, nor after it has closed it."""
    method = rule("s1", threshold=32.0, opening="<think>", close="</think>")
    preamble = walk(method, [probe()] * 9)
    assert not any(decision.looked or decision.halts for decision in preamble.decisions)
    session = Session(method, signals=Signals(probes=True))
    session.feed(Tokens([f"p{i} " for i in range(40)]))
    assert isinstance(session.feed(Tokens(["<think>", *["a "] * 23])), Force)  # 64 tokens: the first boundary inside


def test_an_oracle_must_be_told() -> None:
    with pytest.raises(ValueError, match="exists in replay only"):
        walk(rule("oracle"), [probe()])
    oracle = rule("oracle", threshold=1.0)
    oracle.inform(lambda tokens: tokens == 32)
    assert [d.halts for d in walk(oracle, [probe()] * 5).decisions] == [False, True]


@pytest.mark.parametrize("name", ["deer", "dynasor", "eat", "convergence"])
def test_a_probing_rule_asks_and_is_refused_where_nobody_answers(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} needs a probe, which is not to be had here"):
        Session(rule(name), signals=Signals())
    method = rule(name)
    decision = method.observe(Step(text="x" * 16, n_tokens=16, entropy=0.1, token_texts=["x"] * 16))
    assert (decision.asks, str(decision.reason), decision.halts) == (method.question, "probing", False)
    assert method.tell(probe()).asks is None
    with pytest.raises(ValueError, match="asked for no probe"):
        method.tell(probe())


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("cusum", {}, "the entropy"),
        ("deepconf", {}, "the mean log-probability of the 20 likeliest tokens"),
        ("adaptive", {}, "the entropy, the hidden state"),
        ("bitcal_tts", {"hidden": False}, "the entropy"),
    ],
)
def test_a_method_that_needs_what_an_engine_lacks_is_refused_by_name(
    name: str, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValueError, match=rf"{name} needs {words}, which is not to be had here \(text only signals\)"):
        Session(build_method(name, bits=4, budget=64, **options), signals=TEXT_ONLY)


def test_a_step_without_a_needed_signal_is_refused_by_name() -> None:
    step = Step(text="a", n_tokens=1, token_texts=["a"])
    with pytest.raises(ValueError, match="cusum needs the entropy of every token"):
        rule("cusum").observe(step)
    with pytest.raises(ValueError, match="deepconf needs the mean log-probability"):
        rule("deepconf").observe(step)
    with pytest.raises(ValueError, match="bitcal_tts needs the entropy"):
        build_method("bitcal_tts", bits=4, budget=64).observe(step)


@pytest.mark.parametrize("name", sorted(RULES))
def test_every_rule_is_built_by_name_and_starts_afresh(name: str) -> None:
    method = rule(name)
    again = method.fresh()
    assert type(again) is type(method) and again.parameters == method.parameters and again is not method


def test_landing_closes_the_thinking_on_its_own_line_and_cues() -> None:
    assert landing("so 5", "</think>", "####") == Landing("\n</think>\n\n", "####")
    assert landing("so 5\n", "</think>", "####") == Landing("</think>\n\n", "####")
    assert landing("so 5", None, "####") == Landing("\n", "####")
    directive = walk(rule("truncate", threshold=16.0, opening=None, close="</think>"), [probe()]).directive
    assert isinstance(directive, Force)
    assert (directive.at, directive.landing) == (16, Landing("\n</think>\n\n", "####"))


def test_the_reserve_is_part_of_the_budget() -> None:
    method = build_method("truncate", bits=4, budget=128, chunk_size=16)  # reserve 32: no boundary later than 96
    last = walk(method, [probe()] * 9).decisions[-1]
    assert (last.tokens, str(last.reason)) == (96, "reserve")
    never = build_method("truncate", bits=4, budget=128, chunk_size=16, reserve=0)
    assert not walk(never, [probe()] * 7).decisions[-1].halts


def test_a_gate_does_not_cut_an_answer_that_is_being_written() -> None:
    method = rule("truncate", threshold=16.0, opening=None, close="</think>")
    session = Session(method, signals=Signals(probes=True))
    assert isinstance(session.feed(Tokens(["</think>", *["a"] * 31])), Go)
    assert isinstance(Session(method, signals=Signals(probes=True)).feed(Tokens(["a"] * 16)), Force)


def test_deer_waits_once_a_line() -> None:
    deer = build_method("deer", bits=4, budget=4096, at="wait", threshold=2.0, every=4)
    session = Session(deer, signals=Signals(probes=True))
    asked = []
    directive = session.feed(Tokens(["Wait", ", let", " me"] + [" see"] * 30 + ["\n", "Alternatively"] + [" so"] * 7))
    while isinstance(directive, Ask):
        asked.append(directive.at)
        directive = session.tell(probe())
    assert asked == [4, 36]
    assert session.probe_tokens == 2 * 6


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
    directive = Session(method, signals=Signals(probes=True)).feed(Tokens([f"w{i}" for i in range(500)]))
    assert isinstance(directive, Force)
    assert (directive.at, str(directive.decision.reason)) == (448, "reserve")


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


def test_eat_warms_up_for_as_long_as_it_is_told() -> None:
    steady = [probe(entropy=math.log(2))] * 20
    for told, looked_at in ((3, 4 * 16), (0, 9 * 16)):
        walked = walk(rule("eat", alpha=0.5, warm_up=told), steady)
        assert next(d.tokens for d in walked.decisions if d.score is not None) == looked_at


def test_halt_cot_is_the_entropy_of_this_answer_or_another() -> None:
    halt = rule("halt_cot")
    half, sure, unsure = (math.log(p) for p in (0.5, 0.9, 0.1))
    entropy = -0.9 * sure - 0.1 * unsure
    assert halt.probed(probe(logprobs=(sure,))) == pytest.approx(-entropy)
    assert halt.probed(probe(logprobs=(sure / 2, sure / 2))) == pytest.approx(-entropy)  # of the whole answer
    assert halt.probed(probe(logprobs=(half,))) == pytest.approx(-math.log(2))
    assert halt.probed(probe(logprobs=(unsure,))) == pytest.approx(-math.log(2))  # others may be many
    assert halt.probed(probe(logprobs=(0.0,))) == 0.0
    assert halt.probed(probe(logprobs=())) is None


@pytest.mark.parametrize("name", ["deer", "halt_cot", "eat"])
def test_what_is_not_known_of_a_probe_is_no_certainty(name: str) -> None:
    sure = probe(logprobs=(0.0, 0.0), entropy=0.0)
    unknown = probe(logprobs=(0.0, math.nan), entropy=math.nan)
    walked = walk(rule(name, **({"warm_up": 1} if name == "eat" else {})), [unknown, unknown, sure, sure])
    assert scores(walked)[:2] == [None, None] and scores(walked)[-1] is not None
    assert walked.decisions[-1].halts and not any(one.halts for one in walked.decisions[:2])


def test_landed_is_fixed_with_its_answer_written_where_the_budget_runs_out() -> None:
    texts = [f"w{i} " for i in range(100)]
    session = Session(build_method("landed", bits=4, budget=64), signals=TEXT_ONLY)
    directive = session.feed(Tokens(texts))
    assert isinstance(directive, Force) and directive.decision.reason == "reserve"
    end = session.landed(Probe(" 7\n", 4, (0.0, 0.0), 0.0, 2))
    assert end.at <= 64 and session.outcome.answer == "7"
    whole = Session(build_method("landed", bits=4, budget=640), signals=TEXT_ONLY)
    assert isinstance(whole.feed(Tokens(texts)), Go)
    whole.end()
    assert whole.outcome.tokens == 100 and whole.outcome.decision is None


def test_a_rule_at_our_looks_needs_tokens_one_by_one_and_the_question() -> None:
    with pytest.raises(ValueError, match="sentences end anywhere: chunk_size must be 1"):
        rule("cusum", looks="sentences")
    with pytest.raises(ValueError, match="looks must be one of boundaries, statements, sentences, got 'words'"):
        rule("cusum", looks="words")
    with pytest.raises(ValueError, match="reads the question"):
        Session(build_method("cusum", bits=4, budget=64, looks="sentences"))


def test_deepconf_gives_up_at_the_same_token_however_tokens_come() -> None:
    """Token by token every group is judged; together only those that are less confident than all before them."""
    tops = np.random.default_rng(0).normal(-6.0, 2.0, 300).tolist()
    ends = []
    for threshold in (-5.9, -5.5, -5.2, -4.9, 0.0):
        method = build_method("deepconf", bits=16, budget=400, threshold=threshold, window=16)
        for size in (1, 7, 300):
            session = Session(method, signals=Signals("full"))
            for i in range(0, 300, size):
                part = tops[i : i + size]
                fed = Tokens(["a "] * len(part), [0.1] * len(part), [0.0] * len(part), [1.0] * len(part), part)
                if isinstance(session.feed(fed), End):
                    break
            ends.append(session.tokens if session.over else None)
    assert ends[0::3] == ends[1::3] == ends[2::3]
    found = [end for end in ends[0::3] if end is not None]
    assert found == sorted(found) and len(set(found)) >= 3 and ends[-1] is None
