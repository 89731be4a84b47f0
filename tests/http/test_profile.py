"""A profile over HTTP: recorded from a real server, fitted, and served live by the same session that replays it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from short_task import ANSWERS, SHORT, short_task

from bitcal_tts.calibration.store import load_profile
from bitcal_tts.cli import main
from bitcal_tts.engines.base import Request
from bitcal_tts.halting.methods import build_method
from bitcal_tts.halting.profile import ProfileError
from bitcal_tts.traces.replay import outcomes
from bitcal_tts.traces.store import TraceStore

BUDGET, N = 320, 10


def test_a_profile_is_fitted_on_a_server_and_served_there(
    server: str, served: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = ["record", "--url", server, "--style", "thinking", "--probes", "--batch", "4", "--budget", str(BUDGET)]
    record += ["--task", SHORT, "--answers", ANSWERS]
    assert main([*record, "--split", "calibration", "--n", "60", "--out", "c"]) == 0
    capsys.readouterr()
    fit = ["fit", "c", "--risk", "0.25", "--confidence", "0.8", "--kind", "logistic", "--out", "p.json", "--json"]
    assert main(fit) == 0
    (evidence,) = json.loads(capsys.readouterr().out)["evidence"].values()
    assert evidence["certified"]
    assert main([*record, "--n", str(N), "--seed", "3", "--out", "t"]) == 0
    assert main(["replay", "t", "--profile", "p.json", "--methods", "fixed,settled"]) == 0

    profile, store, task = load_profile(tmp_path / "p.json"), TraceStore.open(tmp_path / "t"), short_task()
    declared = {"task": SHORT}
    method = build_method("settled", bits=16, budget=BUDGET, profile=profile, declare=declared)
    requests = [
        Request(str(i), task.prompt(item), method, seed=i, question=item.question)
        for i, item in enumerate(task.items(N, seed=3))
    ]
    live = {done.id: done for done in served.decode(requests, batch_size=4)}
    parted = 0
    replayed = outcomes(store.read(), method, task, identity=store.identity)
    for outcome, trace in zip(replayed, store.read(), strict=True):
        done = live[str(trace.index)]
        kept = len(done.token_ids) - done.landing_tokens
        if done.token_ids[:kept] != trace.token_ids[:kept].tolist():
            parted += 1  # two tokens were as likely, and the batch was another
            continue
        assert (len(done.token_ids), done.answer) == (outcome.tokens, outcome.answer)
    assert parted <= 3
    assert sum(done.finish == "halted" for done in live.values()) >= N // 2

    undeclared = build_method("settled", bits=16, budget=BUDGET, profile=profile)
    with pytest.raises(ProfileError, match="task"):
        list(served.decode([Request("0", requests[0].prompt, undeclared, question="?")]))
