"""What every engine must do, on the same model in the box: its test module subclasses `Conformance`.

A module has a fixture `served`, the engine, of module scope or wider; `local` is the same model in Transformers.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from short_task import SHORT, short_task

from bitcal_tts.engines.base import Completion, Decoding, Fork, Place, Request
from bitcal_tts.halting.answers import FORMATS
from bitcal_tts.halting.identity import Identity
from bitcal_tts.halting.landing import Landing
from bitcal_tts.halting.methods import build_method, to_the_end
from bitcal_tts.halting.profile import Profile, ProfileError
from bitcal_tts.traces.record import record
from bitcal_tts.traces.replay import outcomes

N, BUDGET, SEED = 20, 320, 3
THINKING: dict[str, Any] = {"opening": "<think>", "close": "</think>"}


def requests(method: Any, n: int = N) -> list[Request]:
    """Problems of the box's task, each to be halted by a method."""
    task = short_task()
    items = enumerate(task.items(n, seed=SEED))
    return [Request(str(i), task.prompt(item), method, seed=i, question=item.question) for i, item in items]


def decoded(engine: Any, method: Any, n: int = N, decoding: Decoding | None = None) -> dict[str, Completion]:
    """What an engine makes of them."""
    return {done.id: done for done in engine.decode(requests(method, n), decoding, batch_size=4)}


def same_tokens(*completions: Completion) -> int:
    """How many tokens they have in common from the beginning."""
    columns = list(zip(*(done.token_ids for done in completions), strict=False))
    return next((i for i, tokens in enumerate(columns) if len(set(tokens)) > 1), len(columns))


class Conformance:
    """The suite. Where two tokens are as likely, another batch may choose the other one: a few items may part."""

    entropy_gap: ClassVar[float] = 0.03
    """The most that entropies differ from those of Transformers in float32."""
    widest_gap: ClassVar[float | None] = None
    """The most where the likeliest tokens leave much out: what is missing is taken to be spread evenly."""
    usual_gap: ClassVar[float] = 1e-3
    """The most that half of them do."""
    closing_gap: ClassVar[float] = 0.1
    """The most that the entropy after a closing lies above it: what the likeliest leave out is spread evenly."""
    exact: ClassVar[bool] = False
    """Whether it is the same arithmetic."""
    parting: ClassVar[int] = 1
    """How many of a run may part."""

    def in_use(self, served: Any) -> int:
        """Slots or tokens that the engine holds while nothing is decoded."""
        return 0

    @pytest.fixture(scope="class")
    @classmethod
    def full(cls, served: Any) -> dict[str, Completion]:
        return decoded(served, to_the_end(BUDGET))

    @pytest.fixture(scope="class")
    @classmethod
    def reference(cls, local: Any) -> dict[str, Completion]:
        return decoded(local, to_the_end(BUDGET))

    def test_greedy_tokens_and_entropies_are_those_of_transformers(
        self, full: dict[str, Completion], reference: dict[str, Completion]
    ) -> None:
        same, gaps = 0, []
        for name, here in reference.items():
            there = full[name]
            assert there.prompt_tokens == here.prompt_tokens
            first = same_tokens(here, there)
            same += here.token_ids == there.token_ids
            pairs = zip(here.entropies[:first], there.entropies[:first], strict=True)
            gaps += [abs(a - b) for a, b in pairs if b == b]  # of tokens that come together the first is told of
            if first < min(len(here.token_ids), len(there.token_ids)):
                assert here.margins[first] < 0.05, "they part where one token was clearly likelier"
            else:
                assert (here.text, here.finish, here.answer) == (there.text, there.finish, there.answer)
        assert same >= len(reference) - self.parting
        assert len(gaps) > (0.98 if self.parting == 1 else 0.75) * sum(
            len(done.entropies) for done in reference.values()
        )
        assert np.median(gaps) < self.usual_gap, np.median(gaps)
        assert np.quantile(gaps, 0.95) < self.entropy_gap, np.quantile(gaps, 0.95)
        assert max(gaps) < (self.entropy_gap if self.widest_gap is None else self.widest_gap), max(gaps)
        if not self.exact:
            assert max(gaps) > 1e-6  # so near, and yet another engine: a profile is not carried over

    def test_sampling_depends_on_the_seed_alone(self, served: Any) -> None:
        decoding = Decoding(temperature=0.8, seed=1, top_p=0.95)
        one, again = (decoded(served, to_the_end(60), 6, decoding) for _ in range(2))
        other = decoded(served, to_the_end(60), 6, Decoding(temperature=0.8, seed=2, top_p=0.95))
        assert sum(one[k].token_ids == again[k].token_ids for k in one) >= 5
        assert sum(one[k].token_ids == other[k].token_ids for k in one) < 6

    def test_a_stop_comes_at_its_token_and_the_others_are_untouched(
        self, served: Any, full: dict[str, Completion]
    ) -> None:
        """Every second request is stopped; what it held is free again."""
        stopping = build_method("stated", bits=16, budget=BUDGET, threshold=1.0, every=16, reserve=0, **THINKING)
        mixed = [
            Request(r.id, r.prompt, stopping if int(r.id) % 2 else r.method, seed=r.seed, question=r.question)
            for r in requests(to_the_end(BUDGET))
        ]
        stopped = parted = 0
        for done in served.decode(mixed, batch_size=4):
            whole = full[done.id]
            kept = len(done.token_ids) - done.landing_tokens
            parted += same_tokens(done, whole) < kept
            if int(done.id) % 2 and done.finish == "halted":
                stopped += 1
                assert done.decision is not None
                assert done.decision.tokens == kept < len(whole.token_ids)
                assert 0 < done.landing_tokens <= FORMATS["gsm8k"].reserve
                assert "####" in done.text
            elif int(done.id) % 2 == 0:
                assert done.finish == whole.finish
        assert parted <= self.parting
        assert stopped >= 5
        assert self.in_use(served) == 0

    def test_landings_and_probes_are_those_of_transformers(
        self, served: Any, local: Any, reference: dict[str, Completion]
    ) -> None:
        task, forks = short_task(), []
        for i, item in enumerate(task.items(6, seed=SEED)):
            places = [Place(at, Landing("\n</think>\n", "#### "), task.format, 0.5) for at in (40, 90)]
            done = reference[str(i)]
            forks.append(Fork(task.prompt(item), done.token_ids, places, done.token_texts))
        there = [written for many in served.probe(forks, batch_size=4) for written in many]
        here = [written for many in local.probe(forks, batch_size=4) for written in many]
        agree = [(a.ids, a.forced, a.closed) == (b.ids, b.forced, b.closed) for a, b in zip(there, here, strict=True)]
        assert sum(agree) >= 12 - self.parting
        for a, b in zip(there, here, strict=True):
            assert b.entropy - self.entropy_gap < a.entropy < b.entropy + self.closing_gap
            if a.ids == b.ids:
                assert a.texts == b.texts
                assert a.logprobs == pytest.approx(b.logprobs, abs=0.02)

    def test_live_is_what_a_replay_of_the_recording_says(self, served: Any, tmp_path: Path) -> None:
        task = short_task()
        store = record(served, task, tmp_path / "t", n=8, budget=BUDGET, batch_size=4, seed=SEED, probes=16)
        traces = store.read()
        for name, options in (
            ("complete", {}),
            ("stated", {"threshold": 2.0, "every": 16}),
            ("deer", {"threshold": 0.9, "every": 16}),
            ("eat", {"threshold": 0.2, "every": 16}),
        ):
            method = build_method(name, bits=16, budget=BUDGET, **THINKING, **options)
            live = {done.id: done for done in served.decode(requests(method, 8), batch_size=4)}
            parted = []
            for trace, outcome in zip(traces, outcomes(traces, method, task), strict=True):
                done = live[str(trace.index)]
                kept = len(done.token_ids) - done.landing_tokens
                finish = outcome.reason if outcome.reason in ("eos", "budget") else "halted"
                here = (trace.token_ids[:kept].tolist(), outcome.tokens, outcome.probe_tokens, outcome.answer, finish)
                there = (done.token_ids[:kept], len(done.token_ids), done.probe_tokens, done.answer, done.finish)
                if here != there:
                    parted.append((here[1:], there[1:]))
            assert len(parted) <= 1, (name, parted)

    def test_a_profile_of_another_engine_is_refused(self, served: Any) -> None:
        known = {**served.identity(Decoding()).known, "engine": "an abacus", "task": SHORT}
        known |= {"prompt_sha256": "x", "budget": BUDGET, "signals": str(served.signals(16))}
        model = {"mean": [0.0], "scale": [1.0], "weights": [1.0], "intercept": 0.0}
        bits = served.bits
        evidence = {f"{bits:g}": {"risk": 0.01}}
        profile = Profile("logistic", ("tokens",), model, {bits: 0.5}, Identity(known), {}, evidence)
        method = build_method("settled", bits=bits, budget=BUDGET, profile=profile)
        with pytest.raises(ProfileError, match="fitted for engine 'an abacus', this is '"):
            list(served.decode(requests(method, 1)))
