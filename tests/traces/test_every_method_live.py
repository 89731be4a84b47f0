"""Live equals replay, item by item, for every method there is: landing, probing, sampled and greedy, thinking and not.

All methods share a batch, each request with its own. In float32, where the composition of a batch does not change the
tokens of this model.
"""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import pytest
import torch
from short_task import short_task

from bitcal_tts import METHODS, BitCal, Force, Go, Session, Tokens, build_method
from bitcal_tts.calibration.fit import fit
from bitcal_tts.commands.recordings import open_recording
from bitcal_tts.engines.base import Decoding, Request
from bitcal_tts.halting.methods import parameters_of
from bitcal_tts.halting.profile import Profile
from bitcal_tts.halting.rules import RULES
from bitcal_tts.halting.signals import Signal, Signals
from bitcal_tts.traces.record import record
from bitcal_tts.traces.replay import outcomes
from bitcal_tts.traces.trace import Trace

BUDGET = 224
NAMES = [name for name in {**METHODS, **RULES} if not name.startswith("oracle")]
OPTIONS: dict[str, dict[str, Any]] = {
    "adaptive": {"min_tokens": 48},
    "bitcal_tts": {"min_tokens": 32, "stop_confidence": 0.45, "stop_entropy": 0.5},
    "truncate": {"threshold": 64.0},
    "s1": {"threshold": 96.0},
    "random": {"threshold": 80.0},
    "deer": {"threshold": 0.9},
    "dynasor": {"threshold": 2.0},
    "convergence": {"threshold": 2.0},
    "eat": {"alpha": 1.0, "threshold": -0.05},
    "deepconf": {"threshold": -14.0, "window": 16},
    "cusum": {"threshold": 3.0, "mu0": 0.3},
}
CELLS = [("thinking", 0.6), ("thinking", 0.0), ("instruct", 0.6), ("instruct", 0.0)]


class Cell(NamedTuple):
    engine: Any
    decoding: Decoding
    traces: list[Trace]
    identity: Any
    style: str


@pytest.fixture(scope="module", params=CELLS, ids=lambda c: f"{c[0]}-{c[1]}")
def cell(
    request: pytest.FixtureRequest, engine: Any, thinking_engine: Any, tmp_path_factory: pytest.TempPathFactory
) -> Cell:
    style, temperature = request.param
    chosen = thinking_engine if style == "thinking" else engine
    decoding = Decoding(temperature, seed=2, top_p=0.95 if temperature else 1.0, top_k=20 if temperature else 0)
    folder = tmp_path_factory.mktemp("cell") / "traces"
    store = record(chosen, short_task(), folder, n=16, budget=BUDGET, batch_size=16, decoding=decoding, probes=16)
    return Cell(chosen, decoding, store.read(), store.identity, style)


@pytest.fixture(scope="module")
def profile(probed: Any) -> Profile:
    return fit([open_recording(probed.folder).recording], risk=0.3, confidence=0.8)


def methods(cell: Cell, profile: Profile) -> dict[str, Any]:
    """Every method, set up for a recording; the profile of another one is forced on it."""
    opening, close = cell.engine.thinking or (None, None)
    markers = {"opening": opening, "close": close}
    found = {}
    for name in NAMES:
        options = {**markers, **OPTIONS.get(name, {})}
        if name == "settled":
            options |= {"profile": profile, "force": True}
        known = {key: value for key, value in options.items() if key in parameters_of(name)}
        found[name] = build_method(name, bits=32, budget=BUDGET, **known)
    return found


@pytest.mark.parametrize(("batch_size", "items"), [(1, 2), (7, 5), (32, 16)])
@pytest.mark.filterwarnings("ignore::bitcal_tts.halting.settled.ProfileWarning")
@pytest.mark.filterwarnings("ignore::bitcal_tts.halting.drift.DriftWarning")
def test_live_equals_replay_for_every_method(cell: Cell, profile: Profile, batch_size: int, items: int) -> None:
    task, traces = short_task(), cell.traces[:items]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = methods(cell, profile)
    requests = [
        Request(f"{name}/{t.index}", task.prompt(t.item), method, seed=t.index, question=t.item.question)
        for name, method in made.items()
        for t in traces
    ]
    live = {c.id: c for c in cell.engine.decode(requests, cell.decoding, batch_size=batch_size)}
    reasons: dict[str, set[str]] = {}
    for name, method in made.items():
        for trace, expected in zip(traces, outcomes(traces, method, task, identity=cell.identity), strict=True):
            done = live[f"{name}/{trace.index}"]
            where = f"{name} on item {trace.index}"
            own = len(done.token_ids) - done.landing_tokens
            assert done.token_ids[:own] == trace.token_ids[:own].tolist(), where
            assert len(done.token_ids) == expected.tokens, where
            assert done.probe_tokens == expected.probe_tokens, where
            assert (str(done.decision.reason) if done.decision else done.finish) == expected.reason, where
            assert done.answer == expected.answer, where
            assert len(done.entropies) == own, where  # a landing's tokens were not chosen
            reasons.setdefault(name, set()).add(expected.reason)
    if items == 16 and cell.style == "thinking":
        for name in ("truncate", "s1", "random", "deer", "dynasor", "convergence", "eat", "cusum", "deepconf"):
            assert "exit" in reasons[name], name
        assert "settled" in reasons["settled"]
        assert "reserve" in {reason for told in reasons.values() for reason in told}


@pytest.mark.parametrize("sampled", [False, True])
def test_inside_generate_the_same_decisions_at_the_same_tokens(
    thinking_engine: Any, profile: Profile, sampled: bool
) -> None:
    """Given the tokens that generate chose: their signals by teacher forcing, fed to a session."""
    task, tokenizer = short_task(), thinking_engine.tokenizer
    items = task.items(3, seed=5)
    prompts, questions = [task.prompt(item) for item in items], [item.question for item in items]
    encoded = [thinking_engine.checkpoint.encode(prompt) for prompt in prompts]
    width = max(map(len, encoded))
    ids = torch.tensor([[0] * (width - len(e)) + e for e in encoded])
    mask = torch.tensor([[0] * (width - len(e)) + [1] * len(e) for e in encoded])
    cell = Cell(thinking_engine, Decoding(), [], None, "thinking")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = {name: method for name, method in methods(cell, profile).items() if Signal.PROBE not in method.needs}
        halted = 0
        for name, method in made.items():
            torch.manual_seed(7)
            bitcal = BitCal(method, tokenizer, model=thinking_engine.checkpoint.model)
            own: dict[str, Any] = {"do_sample": sampled, **({"temperature": 0.8, "top_k": 0} if sampled else {})}
            settings = {"max_new_tokens": BUDGET, **bitcal.kwargs(questions=questions, **own)}
            out = thinking_engine.checkpoint.model.generate(input_ids=ids, attention_mask=mask, **settings)
            rows = zip(prompts, questions, out[:, width:].tolist(), bitcal.results, strict=True)
            for prompt, question, row, result in rows:
                chosen = row[: result.tokens - result.landing_tokens]
                halted += _same_decision(thinking_engine, (prompt, question), chosen, method, result, name)
    assert halted > 5


def _same_decision(engine: Any, asked: tuple[str, str], chosen: list[int], method: Any, result: Any, name: str) -> bool:
    chunk = method.parameters.chunk_size
    (score,) = engine.score([(asked[0], chosen)], chunk_size=chunk)
    texts = [engine.tokenizer.decode(chosen[: i + 1]) for i in range(len(chosen))]
    pieces = [text[len(before) :] for before, text in zip(["", *texts], texts, strict=False)]
    signals = Signals("full", hidden_every=chunk)
    session = Session(
        method,
        signals=signals,
        question=asked[1],
        count_tokens=lambda text: len(engine.tokenizer(text)["input_ids"]),
    )
    similarities = [None, *score.hidden_similarities.tolist()]
    columns = (getattr(score, name).tolist() for name in ("entropies", "logprobs", "margins", "top_logprobs"))
    directive = session.feed(Tokens(pieces, *columns, hidden_similarities=similarities))  # type: ignore[misc]
    if result.decision is None:
        assert isinstance(directive, Go) or session.outcome.finish == "budget", name
        return False
    assert not isinstance(directive, Go), name
    if isinstance(directive, Force):
        assert (directive.at, directive.decision.reason) == (len(chosen), result.decision.reason), name
    else:
        assert (session.outcome.tokens, session.outcome.reason) == (len(chosen), str(result.decision.reason)), name
    return True
