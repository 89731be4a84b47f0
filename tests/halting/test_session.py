"""The life of one request: whatever way tokens arrive, the count is right and the end is the same."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitcal_tts import Ask, End, Force, Go, Probe, Session, Signals, Token, Tokens, build_method
from bitcal_tts.calibration.recording import BLANK, Walker
from bitcal_tts.halting.controller import Decision
from bitcal_tts.halting.exchange import Directive, Weigh
from bitcal_tts.halting.landing import Landing
from bitcal_tts.halting.methods import to_the_end
from bitcal_tts.halting.profile import Profile
from bitcal_tts.halting.settled import Settled, SettledParameters

TEXT = ["Let", " me", " see", ".", " 3", " +", " 4", " =", " 7", ".\n", "So", " ####", " 7", "\n", "more", " words"]


class Unpromising(Settled):
    promises = False


def truncate(at: float, **options: Any) -> Any:
    return build_method("truncate", **{"bits": 4, "budget": 256, "threshold": at, "every": 4, **options})


def thinking(**options: Any) -> Any:
    return truncate(8.0, close="</think>", **options)


def words(n: int) -> Tokens:
    return Tokens([f"w{i} " for i in range(n)])


def feed_one_by_one(session: Session, texts: list[str]) -> Directive:
    directive: Directive = Go()
    for text in texts:
        directive = session.feed(Token(text))
        if not isinstance(directive, Go):
            return directive
    return directive


def test_a_sentence_from_the_documentation() -> None:
    session = Session(build_method("complete", bits=4, budget=64))
    end = feed_one_by_one(session, TEXT)
    assert isinstance(end, End) and (end.at, end.finish) == (14, "halted")
    outcome = session.outcome
    assert (outcome.text, outcome.tokens, outcome.answer, outcome.reason) == (
        "".join(TEXT[:14]), 14, "7", "answer_complete",
    )  # fmt: skip
    with pytest.raises(ValueError, match="the request has ended"):
        session.feed(Token("x"))


@given(cuts=st.sets(st.integers(1, len(TEXT) - 1)))
def test_the_end_does_not_depend_on_how_tokens_arrive(cuts: set[int]) -> None:
    """An engine that works ahead is told at which token to cut back, and what it decoded past it is counted apart."""
    edges = [0, *sorted(cuts), len(TEXT)]
    session = Session(build_method("complete", bits=4, budget=64))
    fed = 0
    for start, stop in itertools.pairwise(edges):
        fed = stop
        if isinstance(directive := session.feed(Tokens(TEXT[start:stop])), End):
            assert directive.at == 14
            break
    assert (session.outcome.tokens, session.outcome.decoded) == (14, fed)


@pytest.mark.parametrize("chunk_size", [1, 3, 16])
def test_the_budget_is_a_cap_whatever_the_chunk(chunk_size: int) -> None:
    for method in (build_method("complete", bits=4, budget=10, chunk_size=chunk_size), to_the_end(10)):
        session = Session(method)
        directive = session.feed(words(25))
        assert directive == End(10, "budget")
        assert (session.outcome.tokens, session.outcome.decoded) == (10, 25)


def test_a_model_that_ends_by_itself() -> None:
    session = Session(build_method("complete", bits=4, budget=64, chunk_size=8))
    assert isinstance(session.feed(words(11)), Go)
    assert session.end() == End(11, "eos")
    assert session.end() == End(11, "eos")  # saying it twice does no harm
    assert session.outcome.text == "".join(words(11).texts)


def test_several_tokens_at_once_and_parts_of_one_are_counted_right() -> None:
    session = Session(to_the_end(64))
    session.feed(Token("three tokens here", count=3))
    session.feed(Token("a par", count=0))
    session.feed(Token("t of one", count=1))
    session.feed(Token(" one", count=1))
    session.feed(Token(" tail", count=0))
    session.end()
    assert (session.outcome.tokens, session.outcome.text) == (5, "three tokens herea part of one one tail")
    with pytest.raises(ValueError, match="count must be at least 0"):
        Session(to_the_end(8)).feed(Token("x", count=-1))


def test_bytes_that_cut_a_character_are_joined() -> None:
    session = Session(to_the_end(64))
    for part in ("né".encode()[:2], "né".encode()[2:], " 数".encode()[:3], " 数".encode()[3:]):
        session.feed(Token(part))
    session.end()
    assert (session.outcome.text, session.outcome.tokens) == ("né 数", 4)
    broken = Session(to_the_end(64))
    broken.feed(Token("数".encode()[:2]))
    broken.end()
    assert (broken.outcome.text, broken.outcome.tokens) == ("�", 1)
    capped = Session(to_the_end(1))
    assert capped.feed(Token("数".encode()[:2])) == End(1, "budget")
    assert capped.outcome.text == "�"


def test_a_marker_that_arrives_in_pieces_is_seen() -> None:
    session = Session(build_method("complete", bits=4, budget=64))
    end = feed_one_by_one(session, ["#", "#", "##", " 1", "2", " "])
    assert isinstance(end, End) and session.outcome.answer == "12"


def test_a_landing_is_forced_and_then_written() -> None:
    session = Session(thinking(), count_tokens=lambda text: 2)
    directive = session.feed(words(20))
    assert isinstance(directive, Force)
    assert (directive.at, directive.landing, directive.room) == (8, Landing("\n</think>\n\n", "####"), 32)
    assert isinstance(session.feed(Tokens(["\n", "</think>", "\n\n", "####"]), forced=True), Go)
    assert isinstance(session.feed(Tokens([" 4"])), Go)
    end = session.feed(Tokens(["2", "\n", "and more"]))
    assert end == End(15, "halted", directive.decision)
    outcome = session.outcome
    assert outcome.text == "".join(words(8).texts) + "\n</think>\n\n#### 42\n"
    assert (outcome.tokens, outcome.landing_tokens, outcome.answer, outcome.decoded) == (15, 7, "42", 28)


def test_a_landing_ends_with_its_room_or_with_the_model() -> None:
    for ends_by_itself in (False, True):
        session = Session(thinking(budget=20, reserve=12), count_tokens=lambda text: 1)
        directive = session.feed(words(10))
        assert isinstance(directive, Force) and directive.room == 12
        session.feed(Tokens(["</think>", "####"]), forced=True)
        if ends_by_itself:
            session.feed(Tokens([" 4"]))
            assert session.end().finish == "halted"
            assert session.outcome.tokens == 11
        else:
            end = session.feed(Tokens([" so"] * 30))
            assert isinstance(end, End) and end.at == 20  # never past the budget
        assert session.outcome.finish == "halted"


def test_without_room_for_a_landing_the_text_is_left_as_it_is() -> None:
    session = Session(thinking(budget=12, reserve=0), count_tokens=lambda text: 3)
    assert isinstance(session.feed(words(11)), End)
    assert session.outcome.landing_tokens == 0 and session.outcome.tokens == 8
    unknown = Session(thinking(budget=20, reserve=0))  # 15 bytes may be 15 tokens: 12 are left
    assert isinstance(unknown.feed(words(11)), End)


def test_a_landing_that_was_carried_out_aside() -> None:
    session = Session(thinking(), count_tokens=lambda text: 2)
    assert isinstance(session.feed(words(20)), Force)
    end = session.landed(Probe(" 42\n", 7, (-0.1, -0.2, -0.3), 0.5, 2))
    assert end.at == 15
    assert (session.outcome.answer, session.outcome.landing_tokens) == ("42", 7)
    tight = Session(thinking(budget=14, reserve=0), count_tokens=lambda text: 0)
    assert isinstance(tight.feed(words(13)), Force)
    tight.landed(Probe(" 42\n", 7, (-0.1, -0.2, -0.3), 0.5, 2))  # 6 are left: its end does not fit
    assert (tight.outcome.tokens, tight.outcome.answer) == (14, None)
    none = Session(thinking(budget=12, reserve=0), count_tokens=lambda text: 0)
    assert isinstance(none.feed(words(11)), Force)
    none.landed(Probe(" 42\n", 7, (-0.1, -0.2, -0.3), 0.5, 2))  # 4 are left: not even the landing fits
    assert (none.outcome.tokens, none.outcome.landing_tokens) == (8, 0)
    with pytest.raises(ValueError, match="nothing is being landed"):
        Session(to_the_end(8)).landed(Probe("", 1, (), 0.0, 0))


def test_a_question_may_be_answered_later() -> None:
    """Tokens that come in the meantime wait; the answer may end the request before them."""
    method = build_method("dynasor", bits=4, budget=256, every=4, threshold=2.0)
    session = Session(method, signals=Signals("absent", probes=True), count_tokens=lambda text: 1)
    asked = session.feed(words(6))
    assert isinstance(asked, Ask) and (asked.at, str(asked.question)) == (4, "answer")
    assert isinstance(session.feed(words(10)), Go)  # decoded ahead, at the engine's own risk
    again = session.tell(Probe(" 5", 6, (-0.1, -0.1), 0.0, 2))
    assert isinstance(again, Ask) and again.at == 8
    end = session.tell(Probe(" 5", 6, (-0.1, -0.1), 0.0, 2))
    assert isinstance(end, Force) and end.at == 8
    assert (session.probe_tokens, session.decoded) == (12, 16)
    with pytest.raises(ValueError, match="no probe was asked for"):
        session.tell(Probe("", 1, (), 0.0, 0))


def test_looks_may_be_weighed_later_and_come_to_the_same() -> None:
    """By whoever has many of them; tokens that come in the meantime wait."""
    texts = [LONG[i : i + 3] for i in range(0, len(LONG), 3)]
    weights = {"mean": [0.0, 0.0], "scale": [1.0, 1.0], "weights": [1.0, 3.0], "intercept": -3.5}
    scores = Profile("logistic", ("statements", "results"), weights, {})
    parameters = SettledParameters(
        name="settled", bits=4, budget=10_000, close="</think>", profile=scores, threshold=0.5, reserve=0
    )
    at_once = Session(Unpromising(parameters), question="How many apples has Tom?")
    later = Session(Unpromising(parameters), question="How many apples has Tom?", weigh_later=True)
    expected = at_once.feed(Tokens(texts))
    assert isinstance(expected, Force) and expected.decision.reason == "settled"
    with pytest.raises(ValueError, match="no look was to be weighed"):
        later.weighed([(0.5, None)])
    found, asked = later.feed(Tokens(texts[:60])), list[int]()
    while isinstance(found, Weigh):
        assert isinstance(later.feed(Tokens(texts[60 + len(asked) : 61 + len(asked)])), Go)
        with pytest.raises(ValueError, match="no probe was asked for"):
            later.tell(Probe("", 1, (), 0.0, 0))
        asked.append(len(found.looks))
        found = later.weighed(found.profile.judge_all(found.looks))
    assert max(asked) > 1 and found == expected  # several looks of a step at once, the last of them in vain
    assert later.tokens == at_once.tokens and later.stop_here() == at_once.stop_here()


def test_a_session_for_another_request_begins_anew() -> None:
    method = build_method("complete", bits=4, budget=64)
    first = Session(method, signals=Signals("absent"))
    assert isinstance(first.feed(Tokens(TEXT)), End)
    second = first.another()
    assert (second.tokens, second.over) == (0, False) and isinstance(second.feed(Tokens(TEXT)), End)
    assert second.outcome == first.outcome


def test_every_method_of_a_session_gets_a_fresh_copy() -> None:
    method = build_method("complete", bits=4, budget=64)
    for _ in range(2):
        assert isinstance(Session(method).feed(Tokens(TEXT)), End)


def test_a_prefix_is_read_and_not_counted() -> None:
    """What a response already begins with may have closed the thinking."""
    method = build_method("complete", bits=4, budget=64, close="</think>")
    inside = Session(method)
    assert isinstance(inside.feed(Tokens(TEXT)), Go)
    past = Session(method, prefix="all thought out</think>")
    end = past.feed(Tokens(TEXT))
    assert isinstance(end, End) and (end.at, past.outcome.text) == (14, "".join(TEXT[:14]))
    landing = Session(thinking(), prefix="a line\n", count_tokens=lambda text: 1).feed(words(8))
    assert isinstance(landing, Force)
    over = Session(thinking(), prefix="</think>", count_tokens=lambda text: 1)
    assert isinstance(over.feed(words(40)), Go)  # nothing is left to cut short


def test_what_is_not_known_of_one_token_is_not_known_of_its_step() -> None:
    method = build_method("cusum", bits=4, budget=64, threshold=1e9)
    session = Session(method)
    session.feed(Token("a", entropy=0.5))
    with pytest.raises(ValueError, match="cusum needs the entropy of every token"):
        session.feed(Token("b"))
    late = Session(build_method("cusum", bits=4, budget=64, threshold=1e9, chunk_size=2))
    late.feed(Token("a"))
    with pytest.raises(ValueError, match="cusum needs the entropy"):
        late.feed(Token("b", entropy=0.5))
    with pytest.raises(ValueError, match="there are 2 tokens, but 1 entropies"):
        Session(method).feed(Tokens(["a", "b"], [0.5]))


def test_hidden_states_compared_at_other_places_are_refused() -> None:
    method = build_method("adaptive", bits=4, budget=64, chunk_size=8)
    with pytest.raises(ValueError, match="compares hidden states every 8 tokens, here they are compared every 16"):
        Session(method, signals=Signals(hidden_every=16))
    Session(build_method("adaptive", bits=4, budget=64, chunk_size=8, hidden=False), signals=Signals(hidden_every=16))


def test_decisions_may_be_watched_without_being_heeded() -> None:
    told: list[Any] = []
    session = Session(build_method("complete", bits=4, budget=64), watch=told.append, heed=False)
    assert isinstance(session.feed(Tokens(TEXT)), Go)
    assert [d.tokens for d in told if d.halts] == [14, 15, 16]


def test_forced_tokens_need_a_landing() -> None:
    with pytest.raises(ValueError, match="nothing is being forced"):
        Session(to_the_end(8)).feed(Tokens(["x"]), forced=True)
    with pytest.raises(ValueError, match="has not ended"):
        _ = Session(to_the_end(8)).outcome


def test_a_truncated_distribution_says_what_is_missing() -> None:
    method = build_method("cusum", bits=4, budget=64, threshold=1e9)
    session = Session(method, signals=Signals("top", k=2))
    for likeliest in ([-0.1, -3.0], [-0.7, -1.2]):
        session.feed(Token.from_top("x ", likeliest[0], likeliest, vocabulary=1000))
    session.end()
    assert session.outcome.missing == pytest.approx(1 - math.exp(-0.7) - math.exp(-1.2))
    with pytest.raises(ValueError, match="top-2 signals must say how much mass is missing"):
        Session(method, signals=Signals("top", k=2)).feed(Token("x", entropy=0.1, logprob=-0.1, margin=1.0))
    whole = Session(method)
    whole.feed(Token("x", entropy=0.1))
    whole.end()
    assert whole.outcome.missing == 0.0
    blind = Session(to_the_end(8), signals=Signals("absent"))
    blind.end()
    assert blind.outcome.missing is None


LONG = (
    "Tom has 3 apples and buys 4 more. So 3 + 4 = 7. Wait, let me check: 7 - 4 = 3. Yes.\n\nThe answer is 7.\n"
    "Then he eats 2, so 7 - 2 = 5. Hmm, the total is 5. \\boxed{5} and that is right.\n</think>\n"
    "He has 3 + 4 = 7 apples first. Then the answer is 5.\n#### 5\nmore words. The answer is 9.\n"
)


@given(size=st.integers(1, 7), cuts=st.sets(st.integers(1, 100)), every=st.sampled_from([4, 16]))
def test_looks_do_not_depend_on_how_tokens_arrive(size: int, cuts: set[int], every: int) -> None:
    """A gate that is handed many tokens at once looks where it would have looked token by token, at the same stage."""
    texts = [LONG[i : i + size] for i in range(0, len(LONG), size)]
    edges = sorted({0, len(texts), *(cut for cut in cuts if cut < len(texts))})
    parameters = SettledParameters(
        name="settled", bits=4, budget=10_000, close="</think>", every=every, looks="sentences", profile=BLANK
    )

    def looks(pieces: list[list[str]], method: Any) -> list[Any]:
        found: list[Any] = []

        def note(decision: Decision) -> None:
            if decision.score is not None:
                seen = session.method.seen.rows.tolist() if isinstance(session.method, Walker) else None
                found.append((decision.tokens, decision.answer, repr(seen), session.tokens, session.stop_here()))

        session = Session(method, question="How many apples has Tom?", watch=note, heed=False)
        for piece in pieces:
            session.feed(Tokens(piece))
        session.end()
        return [*found, session.tokens, session.outcome.text]

    stated = build_method("stated", bits=4, budget=10_000, close="</think>", every=every, reserve=0)
    for method in (Walker(parameters), stated):
        one_by_one = looks([[text] for text in texts], method)
        assert len(one_by_one) > 3
        assert looks([texts[i:j] for i, j in itertools.pairwise(edges)], method) == one_by_one
