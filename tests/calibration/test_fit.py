"""Fitting a profile on real traces, applying it, and everything that may be wrong with one."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bitcal_tts import build_method
from bitcal_tts.calibration.fit import Recording, _labelled, fit, settled_parameters
from bitcal_tts.calibration.store import load_profile, save_profile
from bitcal_tts.cli import main
from bitcal_tts.commands.replay import task_of_store
from bitcal_tts.halting.features import NAMES
from bitcal_tts.halting.profile import Profile, ProfileError
from bitcal_tts.halting.settled import Settled
from bitcal_tts.traces.gates import GateSweep
from bitcal_tts.traces.replay import outcomes


@pytest.fixture(scope="module")
def recording(probed: Any) -> Recording:
    return Recording(probed.identity, probed.read(), task_of_store(probed.identity))


@pytest.fixture(scope="module")
def profile(recording: Recording) -> Profile:
    return fit([recording], risk=0.3, confidence=0.8)


def test_a_fitted_profile_does_what_its_evidence_says(recording: Recording, profile: Profile) -> None:
    told = profile.evidence["32"]
    assert told["certified"] and math.isfinite(profile.threshold(32))
    assert told["tokens"] < told["full_tokens"]
    assert told["certified_items"] == 32
    settings = settled_parameters(recording.identity, profile, 320, threshold=profile.threshold(32))
    done = outcomes(recording.traces, Settled(settings), recording.task)
    assert {"settled"} <= {o.reason for o in done}
    assert all(o.tokens <= 320 for o in done)


@pytest.mark.parametrize("kind", ["logistic", "boosted"])
def test_arrays_sweep_and_replay_agree(recording: Recording, kind: str) -> None:
    """One walk, any scorer, any threshold: exactly what the method does."""
    fitted = fit([recording], risk=0.3, confidence=0.8, kind=kind)
    looks = recording.looks(320, "statements")
    scores = fitted.scores(looks.vectors)
    sweep = GateSweep(
        recording.traces, Settled(settled_parameters(recording.identity, fitted, 320, threshold=0.5)), recording.task
    )
    for threshold in (0.0, float(np.median(scores)), float(np.quantile(scores, 0.9)), math.inf):
        method = Settled(settled_parameters(recording.identity, fitted, 320, threshold=threshold))
        done = outcomes(recording.traces, method, recording.task)
        for cut in (looks.at(scores, threshold), sweep.at(threshold)):
            assert cut.cost.tolist() == [o.tokens + o.probe_tokens for o in done]
            assert cut.correct.tolist() == [o.correct for o in done]
            assert cut.halted.tolist() == [o.finish == "halted" for o in done]


def test_boosted_trees_score_as_scikit_learn_does(recording: Recording) -> None:
    from sklearn.ensemble import GradientBoostingClassifier

    from bitcal_tts.calibration.fit import _boosted

    looks = recording.looks(320, "statements")
    columns, right = looks.vectors, looks.right
    fitted = GradientBoostingClassifier(
        n_estimators=80, max_depth=3, learning_rate=0.15, subsample=0.5, max_features=8, random_state=0
    ).fit(columns, right)
    mine = Profile("boosted", NAMES, _boosted(columns, right), {}, {}, {}, {})
    assert mine.scores(columns) == pytest.approx(fitted.predict_proba(columns)[:, 1], abs=1e-9)


def test_labels_features_and_looks_can_be_chosen(recording: Recording) -> None:
    few = fit([recording], risk=0.3, confidence=0.8, label="final", features=("tokens", "agreeing"))
    assert few.features == ("tokens", "agreeing") and few.identity["label"] == "final"
    assert fit([recording], risk=0.3, confidence=0.8, looks="both").identity["looks"] == "both"


def test_without_gold_another_answer_than_the_full_runs_is_a_loss(recording: Recording) -> None:
    """So that nothing is certified for free where no answer is known."""
    unknown = Recording(
        recording.identity, [replace(t, item=replace(t.item, answer="")) for t in recording.traces], recording.task
    )
    blind = fit([unknown], risk=0.3, confidence=0.8, label="final")
    looks = recording.looks(320, "statements")
    scores = blind.scores(looks.vectors)
    threshold = blind.threshold(32)
    lost, changed = looks.losses(scores, threshold), looks.losses(scores, threshold, "final")
    assert not (lost & ~changed).any()  # every lost one is counted
    assert changed.mean() < 0.5
    assert blind.evidence["32"]["loss"] == "another answer than the full run's"


def test_the_looks_that_were_certified_are_the_looks_that_are_served(recording: Recording) -> None:
    both = fit([recording], risk=0.3, confidence=0.8, looks="both")
    method = build_method("settled", bits=32, budget=320, profile=both)
    assert method.parameters.looks == "both"
    opening, close = recording.identity["thinking"]
    method = build_method("settled", bits=32, budget=320, profile=both, opening=opening, close=close)
    looks = recording.looks(320, "both")
    cut = looks.at(both.scores(looks.vectors), both.threshold(32))
    done = outcomes(recording.traces, method, recording.task)
    assert [o.tokens for o in done] == cut.cost.tolist()


def test_a_new_precision_needs_only_a_threshold(recording: Recording, profile: Profile) -> None:
    other = Recording({**recording.identity, "bits": 4}, recording.traces, recording.task)
    both = fit([other], risk=0.4, confidence=0.6, known=profile)
    assert set(both.thresholds) == {32.0, 4.0}
    assert both.model == profile.model
    # Of 64 items half were fitted on: only the others may certify.
    assert both.evidence["4"]["certified_items"] <= 32


def test_nothing_certifies_then_nothing_stops(recording: Recording) -> None:
    strict = fit([recording], risk=0.001, confidence=0.99)
    assert math.isinf(strict.threshold(32))
    told = strict.evidence["32"]
    assert told["more_items_needed"] > 2000  # recorded items: half of them certify
    assert (told["tokens"], told["accuracy"]) == (told["full_tokens"], told["full_accuracy"])
    settled = build_method("settled", bits=32, budget=320, profile=strict)
    fixed = build_method("fixed", bits=32, budget=320)
    ends = [[(o.tokens, o.answer) for o in outcomes(recording.traces, m, recording.task)] for m in (settled, fixed)]
    assert ends[0] == ends[1]


def test_a_loop_is_landed(recording: Recording, profile: Profile) -> None:
    """What repeats itself exactly is made to answer, at a place that was probed."""
    trace = recording.traces[0]
    text = ["So", " the", " sum", " of", " 3", " and", " 4", "\n"] * 20
    n = len(text)
    assert trace.probes is not None
    looping = replace(
        trace,
        token_texts=text,
        token_ids=np.ones(n, dtype=np.int32),
        finish="eos",
        entropies=np.full(n, 0.1, dtype=np.float32),
        logprobs=np.full(n, -0.1, dtype=np.float32),
        margins=np.full(n, 3.0, dtype=np.float32),
        top_logprobs=np.full(n, -9.0, dtype=np.float32),
        hidden_similarities=np.zeros(9, dtype=np.float32),
        probes={at: next(iter(trace.probes.values())) for at in range(16, n, 16)},
    )
    method = build_method("settled", bits=32, budget=320, profile=profile, threshold=2.0, opening=None)
    (outcome,) = outcomes([looping], method, recording.task)
    assert outcome.reason == "loop" and outcome.tokens < n and outcome.answer is not None


def test_a_known_profile_keeps_its_budget_and_temperature(recording: Recording, profile: Profile) -> None:
    with pytest.raises(ProfileError, match="fitted for budget 320, this is 64"):
        fit([recording], risk=0.3, confidence=0.8, known=profile, budget=64)
    cold = Recording(
        {**recording.identity, "bits": 4, "decoding": {"temperature": 0.0}}, recording.traces, recording.task
    )
    with pytest.raises(ProfileError, match="must agree in temperature: 0.6 and 0.0"):
        fit([recording, cold], risk=0.3, confidence=0.8)
    with pytest.raises(ProfileError, match="fitted for temperature 0.6, this is 0.0"):
        fit([cold], risk=0.3, confidence=0.8, known=profile)
    with pytest.raises(ValueError, match="features coarseness never change"):
        fit([recording], risk=0.3, confidence=0.8, features=["coarseness"])
    with pytest.raises(ValueError, match="seed must be at least 0"):
        fit([recording], risk=0.3, confidence=0.8, seed=-1)


def test_a_profile_survives_its_file(profile: Profile, recording: Recording, tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    save_profile(path, profile)
    again = load_profile(path)
    assert again == profile
    vectors = recording.looks(320, "statements").vectors
    assert again.scores(vectors).tolist() == profile.scores(vectors).tolist()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"bits": 2}, "no threshold for 2 bits, only for 32"),
        ({"model_sha256": "0"}, "fitted for model_sha256"),
        ({"engine": "vllm", "style": "x"}, "fitted for engine 'transformers', this is 'vllm'; fitted for style"),
        ({"compute_dtype": "float16"}, "compute_dtype"),
        ({"task": "gsm8k"}, "task"),
        ({"decoding": {"temperature": 1.0}}, "fitted for temperature 0.6, this is 1.0"),
        ({"thinking": None}, "thinking"),
    ],
)
def test_a_profile_for_something_else_is_refused(
    profile: Profile, recording: Recording, change: dict[str, Any], message: str
) -> None:
    profile.check(recording.identity, 320)
    with pytest.raises(ProfileError, match="for budget 320, this is 64"):
        profile.check(recording.identity, 64)
    with pytest.raises(ProfileError, match=message):
        profile.check({**recording.identity, **change})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.pop("thresholds"), "lacks thresholds"),
        (lambda d: d.update(version=2), "has version 2, this program reads 1"),
        (lambda d: d.update(features=["mood"]), "features that are not known here: mood"),
        (lambda d: d.update(kind="neural"), "kind must be logistic or boosted"),
        (lambda d: d["model"].pop("weights"), "is damaged: KeyError"),
        (lambda d: d["model"].update(weights=[1.0]), "is damaged"),
        (lambda d: d["model"].update(intercept=float("nan")), "scores are not numbers"),
        (lambda d: d.update(thresholds={"x": 1}), "is damaged"),
        (lambda d: d["thresholds"].update({"32": -3.0}), "threshold at 32 bits is -3.0, not 0 to 1"),
        (lambda d: d["thresholds"].update({"32": float("nan")}), "threshold at 32 bits is nan"),
        (lambda d: d["thresholds"].update({"32.0": 0.5}), "two thresholds for one precision"),
        (lambda d: d.update(features=5), "features must be a list"),
        (lambda d: d["features"].append(d["features"][0]), "each once"),
        (lambda d: d.update(identity=[]), "identity must be an object"),
        (lambda d: d.update(evidence={}), "no evidence for 32 bits"),
        (lambda d: d.update(version=True), "has version True"),
        (lambda d: d["reference"].update({"32": [float("nan")]}), "reference scores are not numbers"),
        (lambda d: d["identity"].update(fitted_questions=5), "fitted_questions must be a list"),
    ],
)
def test_a_damaged_profile_is_named(profile: Profile, tmp_path: Path, change: Any, message: str) -> None:
    data = json.loads(json.dumps(profile.to_dict()))
    change(data)
    path = tmp_path / "profile.json"
    path.write_text(json.dumps(data))
    with pytest.raises(ProfileError, match=message):
        load_profile(path)


def test_files_that_are_no_profiles(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="cannot read the profile"):
        load_profile(tmp_path / "nowhere.json")
    (tmp_path / "x.json").write_text("{")
    with pytest.raises(ProfileError, match="not JSON"):
        load_profile(tmp_path / "x.json")
    (tmp_path / "x.json").write_text("[" * 100_000)
    with pytest.raises(ProfileError, match="not JSON"):
        load_profile(tmp_path / "x.json")
    (tmp_path / "x.json").write_text("[]")
    with pytest.raises(ProfileError, match="a profile is a JSON object"):
        load_profile(tmp_path / "x.json")


def test_too_few_items_and_one_class_are_named(recording: Recording) -> None:
    with pytest.raises(ValueError, match="10 items at 32 bits are too few"):
        fit([replace(recording, traces=recording.traces[:10])], risk=0.1, confidence=0.9)
    with pytest.raises(ValueError, match="risk must be above 0"):
        fit([recording], risk=0, confidence=0.9)
    wrong = [replace(t, item=replace(t.item, answer="-987")) for t in recording.traces]
    with pytest.raises(ValueError, match="no full run is right, so that nothing could be lost"):
        fit([Recording(recording.identity, wrong, recording.task)], risk=0.1, confidence=0.9)
    looks = recording.looks(320, "statements")
    with pytest.raises(ValueError, match="with one class only there is nothing to fit"):
        _labelled([replace(looks, right=np.ones_like(looks.right))], "gold")
    with pytest.raises(ValueError, match="no answer is ever stated"):
        _labelled([looks.of([])], "gold")
    other = Recording({**recording.identity, "bits": 4, "model": "other"}, recording.traces, recording.task)
    with pytest.raises(ProfileError, match="must agree in model"):
        fit([recording, other], risk=0.1, confidence=0.9)
    with pytest.raises(ProfileError, match="each precision may come once"):
        fit([recording, recording], risk=0.1, confidence=0.9)


def test_trees_that_lead_nowhere_are_refused(recording: Recording) -> None:
    data = json.loads(json.dumps(fit([recording], risk=0.3, confidence=0.8, kind="boosted").to_dict()))
    for depth in (10**9, -1):
        data["model"]["depth"] = depth
        with pytest.raises(ProfileError, match="depth must be 1 to"):
            Profile.from_dict(data)


def test_settled_needs_a_profile_and_log_probabilities(profile: Profile) -> None:
    from bitcal_tts import Step

    with pytest.raises(ValueError, match="needs a profile"):
        build_method("settled", bits=32, budget=320)
    method = build_method("settled", bits=32, budget=320, profile=profile)
    with pytest.raises(ValueError, match="log-probability"):
        method.observe(Step(text="x", n_tokens=1, entropy=0.1))
    with pytest.raises(ProfileError, match="no threshold for 4 bits"):
        build_method("settled", bits=4, budget=320, profile=profile)
    with pytest.raises(ValueError, match="looks must be"):
        build_method("settled", bits=32, budget=320, profile=profile, looks="nowhere")


def test_live_lands_as_replay_says(recording: Recording, profile: Profile, thinking_engine: Any) -> None:
    """The engine halts, closes the thinking and writes the answer that the recorded probes told of."""
    from bitcal_tts.engines.base import Decoding, Request
    from bitcal_tts.tasks import load_task

    task = load_task()
    settings = settled_parameters(recording.identity, profile, 320, threshold=profile.threshold(32))
    chosen = recording.traces[:12]
    expected = outcomes(chosen, Settled(settings), recording.task)
    requests = [
        Request(str(t.index), task.prompt(t.item), 320, seed=t.index, controller=Settled(settings)) for t in chosen
    ]
    done = {int(c.id): c for c in thinking_engine.decode(requests, Decoding(0.6), batch_size=12, chunk_size=1)}
    for trace, outcome in zip(chosen, expected, strict=True):
        live = done[trace.index]
        assert len(live.token_ids) == outcome.tokens
        assert task.answers.value(live.text) == outcome.answer
        if outcome.reason == "settled":
            assert live.landing_tokens > 0 and "</think>\n\n####" in live.text


def test_a_profile_is_checked_where_it_serves(profile: Profile, engine: Any, thinking_engine: Any) -> None:
    """By the engine and inside generate; markers and answer format come with the profile."""
    from bitcal_tts.engines.base import Decoding, Request
    from bitcal_tts.engines.generate import BitCal
    from bitcal_tts.halting.settled import ProfileWarning

    model, tokenizer = thinking_engine.checkpoint.model, thinking_engine.tokenizer
    method = build_method("settled", bits=32, budget=320, profile=profile)
    assert (method.parameters.opening, method.parameters.close) == ("<think>", "</think>")
    BitCal(method, tokenizer, model=model)
    with pytest.raises(ValueError, match="checked against the model"):
        BitCal(method, tokenizer)
    elsewhere = replace(profile, identity={**profile.identity, "model_sha256": "0"})
    stranger = build_method("settled", bits=32, budget=320, profile=elsewhere)
    with pytest.raises(ProfileError, match="fitted for model_sha256 '0'"):
        BitCal(stranger, tokenizer, model=model)
    forced = build_method("settled", bits=32, budget=320, profile=elsewhere, force=True)
    with pytest.warns(ProfileWarning, match="no promise holds"):
        BitCal(forced, tokenizer, model=model)
    with pytest.raises(ValueError, match="deer probes the model, which cannot be done inside generate"):
        BitCal(build_method("deer", bits=32, budget=320), tokenizer, model=model)
    request = [Request("a", "1+1?", 320, controller=method)]
    with pytest.raises(ProfileError, match="fitted for thinking"):  # it does not think
        list(engine.decode(request, Decoding(0.6), batch_size=1, chunk_size=1))
    with pytest.raises(ProfileError, match="fitted for temperature 0.6, this is 0.0"):
        list(thinking_engine.decode(request, Decoding(), batch_size=1, chunk_size=1))


def test_probes_at_other_places_are_where_it_looks(thinking_engine: Any, tmp_path: Path) -> None:
    from bitcal_tts.engines.base import Decoding
    from bitcal_tts.tasks import load_task
    from bitcal_tts.traces.record import record

    store = record(
        thinking_engine, load_task(), tmp_path / "t", n=40, budget=192, batch_size=40, style="thinking",
        decoding=Decoding(0.6), probes=24,
    )  # fmt: skip
    assert main(["fit", str(store.folder), "--risk", "0.5", "--confidence", "0.6", "--out", "p.json", "--json"]) == 0
    assert load_profile(Path("p.json")).identity["every"] == 24
    assert main(["replay", str(store.folder), "--profile", "p.json", "--out", "o", "--json"]) == 0
    assert main(["compare", str(store.folder), "--profile", "p.json", "--json"]) == 0


def test_a_probing_rule_lives_as_it_replays(recording: Recording, thinking_engine: Any) -> None:
    from bitcal_tts.engines.base import Decoding, Request
    from bitcal_tts.tasks import load_task

    task = load_task()
    opening, close = recording.identity["thinking"]
    rule = build_method("dynasor", bits=32, budget=320, chunk_size=16, opening=opening, close=close, threshold=2.0)
    chosen = recording.traces[:4]
    expected = outcomes(chosen, rule, recording.task)
    requests = [Request(str(t.index), task.prompt(t.item), 320, seed=t.index, controller=rule) for t in chosen]
    done = {int(c.id): c for c in thinking_engine.decode(requests, Decoding(0.6), batch_size=4, chunk_size=16)}
    for trace, outcome in zip(chosen, expected, strict=True):
        assert (len(done[trace.index].token_ids), done[trace.index].probe_tokens) == (
            outcome.tokens, outcome.probe_tokens,
        )  # fmt: skip


def test_fit_replay_and_compare_from_the_command_line(probed: Any, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(probed.folder)
    assert main(["fit", folder, "--risk", "0.3", "--confidence", "0.8", "--out", "p.json"]) == 0
    assert "profile: p.json" in capsys.readouterr().out
    assert main(["replay", folder, "--profile", "p.json", "--out", "o", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["method"] for row in rows] == ["fixed", "adaptive", "bitcal_tts", "complete", "settled"]
    assert main(["compare", folder, "--profile", "p.json", "--target", "0.05", "--out", "c", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert {"deer", "dynasor", "eat", "oracle", "settled", "truncate"} <= {row["method"] for row in told["rows"]}
    promised = told["rows"][0]
    assert promised["certified"] and promised["avg_tokens"] == rows[-1]["avg_tokens"]
    for row in told["rows"]:
        assert row["target"] is None or row["lost_correct_rate"] <= row["target"]
    assert Path("c/frontier.png").stat().st_size > 10_000
    assert {t["against"] for t in told["tests"]["accuracy"]} == {"settled"}
    assert main(["compare", folder, "--methods", "fixed,truncate,complete", "--json"]) == 0
    assert capsys.readouterr().err == ""
    assert main(["report", "o"]) == 0  # the traces lie elsewhere
    capsys.readouterr()
    assert main(["compare", folder, "--target", "0.3"]) == 2
    assert "target must be one of" in capsys.readouterr().err


def test_forcing_a_profile_warns(probed: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = str(probed.folder)
    assert main(["fit", folder, "--risk", "0.3", "--confidence", "0.8", "--out", "p.json", "--json"]) == 0
    data = json.loads(Path("p.json").read_text())
    data["identity"]["model_sha256"] = "another"
    Path("p.json").write_text(json.dumps(data))
    capsys.readouterr()
    assert main(["replay", folder, "--profile", "p.json", "--out", "o", "--json"]) == 2
    assert "promise does not hold here" in capsys.readouterr().err
    assert main(["replay", folder, "--profile", "p.json", "--force", "--out", "o", "--json"]) == 0
    assert "It was forced: no promise holds" in capsys.readouterr().err


def test_what_was_certified_may_not_be_changed(probed: Any, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(probed.folder)
    assert main(["fit", folder, "--risk", "0.3", "--confidence", "0.8", "--out", "p.json", "--json"]) == 0
    usual = ["replay", folder, "--profile", "p.json", "--methods", "settled,truncate", "--out", "o"]
    for change in (["--set", "reserve=200"], ["--set", "threshold=100"], ["--chunk-size", "64"]):
        assert main([*usual, *change]) == 2
        assert "certified with its own" in capsys.readouterr().err
    assert main([*usual, "--set", "truncate.threshold=64", "--json"]) == 0
    told = capsys.readouterr()
    assert "was fitted on 32 of these 64 items" in told.err
    settled, truncated = json.loads(told.out)["rows"]
    assert settled["reasons"]["settled"] > 0
    assert truncated["reasons"]["exit"] > 0
    assert main([*usual, "--set", "truncate.threshold=64", "--set", "settled.looks=both", "--force"]) == 0
    assert "Another was forced" in capsys.readouterr().err
    for wrong, said in (("deer.threshold=1", "'deer' is none of the methods"), ("settled.mood=1", "unknown parameter")):
        assert main([*usual, "--set", wrong]) == 2
        assert said in capsys.readouterr().err


def test_a_rule_without_a_threshold_says_so(probed: Any, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(probed.folder)
    assert main(["replay", folder, "--methods", "truncate", "--out", "o"]) == 2
    assert (
        "truncate has no threshold of its own: give one, such as --set truncate.threshold=" in capsys.readouterr().err
    )
    assert main(["replay", folder, "--methods", "fixed,oracle", "--out", "o", "--json"]) == 0
    fixed, oracle = json.loads(capsys.readouterr().out)["rows"]
    assert oracle["avg_tokens"] < fixed["avg_tokens"] and oracle["accuracy"] >= fixed["accuracy"]
