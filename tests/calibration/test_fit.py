"""Fitting a profile on real traces, applying it, and everything that may be wrong with one."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from short_task import SHORT, short_task

from bitcal_tts import BitCal, build_method
from bitcal_tts.calibration.fit import _labelled, fit
from bitcal_tts.calibration.recording import Recording
from bitcal_tts.calibration.risk import binomial_p_value
from bitcal_tts.calibration.store import load_profile, save_profile
from bitcal_tts.cli import main
from bitcal_tts.commands.compare import _promised
from bitcal_tts.commands.compared import show
from bitcal_tts.commands.recordings import open_recording
from bitcal_tts.engines.base import Decoding, Request
from bitcal_tts.evaluation.evidence import frontier_figure
from bitcal_tts.halting.features import NAMES
from bitcal_tts.halting.identity import KEYS, Identity
from bitcal_tts.halting.profile import Profile, ProfileError
from bitcal_tts.halting.settled import ProfileWarning
from bitcal_tts.tasks import load_task
from bitcal_tts.traces.outcome import Outcome
from bitcal_tts.traces.record import record
from bitcal_tts.traces.replay import outcomes
from bitcal_tts.traces.walk import gate_looks


@pytest.fixture(scope="module")
def recording(probed: Any) -> Recording:
    return open_recording(probed.folder).recording


def at_bits(recording: Recording, bits: float, **changes: Any) -> Recording:
    """The same recording, as if of another precision."""
    description = {**recording.description, "bits": bits, **changes}
    return Recording(description, recording.traces, recording.task, Identity.of(description, signals="full"))


def method_at(profile: Profile, threshold: float) -> Any:
    """The method with another threshold than the certified one."""
    with pytest.warns(ProfileWarning, match="certified with its own threshold"):
        return build_method("settled", bits=32, budget=320, profile=profile, threshold=threshold, force=True)


def replayed(recording: Recording, method: Any) -> list[Outcome]:
    return outcomes(recording.traces, method, recording.task, identity=recording.identity)


@pytest.fixture(scope="module")
def profile(recording: Recording) -> Profile:
    return fit([recording], risk=0.3, confidence=0.8, kind="logistic")


def test_a_fitted_profile_does_what_its_evidence_says(recording: Recording, profile: Profile) -> None:
    told = profile.evidence["32"]
    assert told["certified"] and math.isfinite(profile.threshold(32))
    assert told["tokens"] < told["full_tokens"]
    assert told["certified_items"] == 32
    done = replayed(recording, build_method("settled", bits=32, budget=320, profile=profile))
    assert {"settled"} <= {o.reason for o in done}
    assert all(o.tokens <= 320 for o in done)


@pytest.mark.parametrize("kind", ["logistic", "boosted"])
def test_arrays_sweep_and_replay_agree(recording: Recording, kind: str) -> None:
    """One walk, any scorer, any threshold: exactly what the method does."""
    fitted = fit([recording], risk=0.3, confidence=0.8, kind=kind)
    looks = recording.table(320, "sentences")
    judged = looks.judged(fitted.scores)
    scores = judged.scores
    gate = build_method("settled", bits=32, budget=320, profile=fitted)
    rising = gate_looks(recording.traces, gate, recording.task, identity=recording.identity)
    assert len(rising) < len(looks)
    for threshold in (0.0, float(np.median(scores)), float(np.quantile(scores, 0.9)), math.inf):
        done = replayed(recording, method_at(fitted, threshold))
        for cut in (judged.cut(threshold), rising.cut(threshold)):
            assert cut.cost.tolist() == [o.cost for o in done]
            assert cut.correct.tolist() == [o.correct for o in done]
            assert cut.halted.tolist() == [o.finish == "halted" for o in done]
            told = cut.outcomes(recording.traces, method_at(fitted, threshold).parameters)
            assert told == [replace(o, answer=None) for o in done]


def test_boosted_trees_score_as_lightgbm_does(recording: Recording) -> None:
    """What numpy alone computes from the numbers in a profile."""
    import lightgbm

    from bitcal_tts.calibration.boosting import _PARAMETERS, boosted

    rows = recording.table(320, "sentences").candidates
    known = np.asarray(np.isfinite(rows.vectors).all(axis=0))
    columns = rows.vectors[:, known]
    names = tuple(name for name, tells in zip(NAMES, known, strict=True) if tells)
    settings = {**_PARAMETERS, "min_data_in_leaf": 20}
    theirs = lightgbm.train(settings, lightgbm.Dataset(columns, rows.right), 40)
    mine = Profile("boosted", names, boosted(columns, rows.right, rounds=40, min_data_in_leaf=20), {})
    assert mine.scores(rows.vectors) == pytest.approx(theirs.predict(columns), abs=1e-9)


def test_labels_features_and_looks_can_be_chosen(recording: Recording) -> None:
    few = fit([recording], risk=0.3, confidence=0.8, label="final", features=("tokens", "agreeing"))
    assert few.features == ("tokens", "agreeing") and few.fitted["label"] == "final"
    assert fit([recording], risk=0.3, confidence=0.8, looks="both").settings["looks"] == "both"


def test_without_gold_another_answer_than_the_full_runs_is_a_loss(recording: Recording) -> None:
    """So that nothing is certified for free where no answer is known."""
    without = [replace(t, item=replace(t.item, answer="")) for t in recording.traces]
    unknown = Recording(recording.description, without, recording.task, recording.identity)
    blind = fit([unknown], risk=0.3, confidence=0.8, label="final")
    looks = recording.table(320, "sentences")
    cut = looks.judged(blind.scores).cut(blind.threshold(32))
    lost, changed = cut.losses("gold"), cut.losses("final")
    assert not (lost & ~changed).any()  # every lost one is counted
    assert changed.mean() < 0.5
    assert blind.evidence["32"]["loss"] == "another answer than the full run's"


def test_the_looks_that_were_certified_are_the_looks_that_are_served(recording: Recording) -> None:
    both = fit([recording], risk=0.3, confidence=0.8, looks="both")
    method = build_method("settled", bits=32, budget=320, profile=both)
    assert method.parameters.looks == "both"
    opening, close = recording.description["thinking"]
    method = build_method("settled", bits=32, budget=320, profile=both, opening=opening, close=close)
    looks = recording.table(320, "both")
    cut = looks.judged(both.scores).cut(both.threshold(32))
    assert [o.tokens for o in replayed(recording, method)] == cut.cost.tolist()


def test_a_new_precision_needs_only_a_threshold(recording: Recording, profile: Profile) -> None:
    other = at_bits(recording, 4, scheme="bitsandbytes nf4")
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
    ends = [[(o.tokens, o.answer) for o in replayed(recording, m)] for m in (settled, fixed)]
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
    with pytest.warns(ProfileWarning, match="certified with its own threshold .*, opening"):
        method = build_method("settled", bits=32, budget=320, profile=profile, threshold=2.0, opening=None, force=True)
    (outcome,) = outcomes([looping], method, recording.task, identity=recording.identity)
    assert outcome.reason == "loop" and outcome.tokens < n and outcome.answer is not None


def test_a_known_profile_keeps_its_budget_and_temperature(recording: Recording, profile: Profile) -> None:
    with pytest.raises(ProfileError, match="fitted for budget 320, this is 64"):
        fit([recording], risk=0.3, confidence=0.8, known=profile, budget=64)
    cold = at_bits(recording, 4, decoding={**recording.description["decoding"], "temperature": 0.0})
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
    vectors = recording.table(320, "sentences").candidates.vectors
    assert again.scores(vectors).tolist() == profile.scores(vectors).tolist()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"bits": 2}, "no threshold for 2 bits, only for 32"),
        ({"model_sha256": "0"}, "fitted for model_sha256"),
        ({"engine": "vllm", "style": "x"}, "fitted for engine 'transformers', this is 'vllm'; fitted for style"),
        ({"compute_dtype": "float16"}, "compute_dtype"),
        ({"scheme": "bfloat16"}, "fitted for scheme 'float32', this is 'bfloat16'"),
        ({"task": "gsm8k"}, "task"),
        ({"prompt_sha256": "0"}, "prompt_sha256"),
        ({"system": "Be brief."}, "fitted for no system, this is 'Be brief.'"),
        ({"template_sha256": "0"}, "template_sha256"),
        ({"temperature": 1.0}, "fitted for temperature 0.6, this is 1.0"),
        ({"top_p": 0.95}, "fitted for top_p 1.0, this is 0.95"),
        ({"top_k": 20}, "top_k"),
        ({"min_p": 0.1}, "min_p"),
        ({"repetition_penalty": 1.1}, "repetition_penalty"),
        ({"thinking": None}, "thinking"),
        ({"signals": "top-20"}, "fitted for signals 'full', this is 'top-20'"),
        ({"budget": 64}, "fitted for budget 320, this is 64"),
    ],
)
def test_a_profile_for_something_else_is_refused(
    profile: Profile, recording: Recording, change: dict[str, Any], message: str
) -> None:
    served = recording.identity
    profile.check(served)
    with pytest.raises(ProfileError, match=message):
        profile.check(served.with_known(**change))


def test_a_profile_for_handing_over_counts_what_the_other_has_right_and_is_refused_alone(recording: Recording) -> None:
    """Handed to itself with all of its budget, nothing is lost but what it would have had right itself."""
    short = 160
    made = fit([recording], risk=0.4, confidence=0.8, budget=short, handed_to=recording)
    told = made.evidence["32"]
    assert told["handed_to"] == recording.name == "tiny-1m at 32 bits"
    assert told["certified"] and told["losses"] / told["certified_items"] <= 0.4
    whole = build_method(
        "landed", bits=32, budget=320, answers=recording.task.format.name,
        **dict(zip(("opening", "close"), recording.description["thinking"], strict=True)),
    )  # fmt: skip
    right = np.mean([o.correct for o in outcomes(recording.traces, whole, recording.task)])
    assert told["full_accuracy"] == pytest.approx(right, abs=0.15)  # of the half that certifies
    served = recording.identity.with_known(budget=short)
    with pytest.raises(ProfileError, match="fitted for handed_to 'tiny-1m at 32 bits', this has none"):
        made.check(served)
    made.check(served.declare({"handed_to": recording.name}))
    with pytest.raises(ProfileError, match="fitted for handed_to"):
        made.check(served.declare({"handed_to": "another at 16 bits"}))
    with pytest.raises(ValueError, match="fitted on one recording"):
        fit([recording], risk=0.4, confidence=0.8, label="final", handed_to=recording)
    half = replace(recording, traces=recording.traces[:40])
    with pytest.raises(ProfileError, match="24 items are not in the recording that is handed to"):
        fit([recording], risk=0.4, confidence=0.8, handed_to=half)


@pytest.mark.parametrize("key", [key for key in KEYS if key not in ("model", "handed_to")])
def test_a_profile_is_refused_on_what_is_unknown(profile: Profile, recording: Recording, key: str) -> None:
    served = recording.identity
    known = {name: value for name, value in served.known.items() if name != key}
    with pytest.raises(ProfileError, match=rf"{key}.*unknown"):
        profile.check(Identity(known))
    declared = Identity(known).declare({key: served[key]})
    profile.check(declared)
    assert declared.declared == {key}
    if key != "bits":  # the evidence has its own
        with pytest.raises(ProfileError, match=rf"{key}"):
            profile.check(Identity(known).declare({key: "something else"}))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.pop("thresholds"), "lacks thresholds"),
        (lambda d: d.update(version=1), "has version 1, this program reads 2"),
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
        (lambda d: d["fitted"].update(questions=5), "fitted questions must be a list"),
        (lambda d: d["fitted"].update(certifying=[5]), "certifying questions must be a list"),
        (lambda d: d["identity"].update(mood="good"), "not mood"),
        (lambda d: d["identity"].update(declared=5), "declared must be a list"),
        (lambda d: d.update(settings=3), "settings must be an object"),
        (lambda d: d["thresholds"].update({"32": 10**400}), "is damaged: OverflowError"),
        (lambda d: d["identity"].update(thinking=5), "think markers must be two"),
    ],
)
def test_a_damaged_profile_is_named(profile: Profile, tmp_path: Path, change: Any, message: str) -> None:
    data = json.loads(json.dumps(profile.to_dict()))
    change(data)
    path = tmp_path / "profile.json"
    path.write_text(json.dumps(data))
    with pytest.raises(ProfileError, match=message):
        load_profile(path)


def test_a_setting_that_nobody_knows_is_refused(profile: Profile) -> None:
    strange = replace(profile, settings={**profile.settings, "mood": 1})
    with pytest.raises(ProfileError, match="certified with mood, which is not known here"):
        build_method("settled", bits=32, budget=320, profile=strange)


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
        hopeless = Recording(recording.description, wrong, recording.task, recording.identity)
        fit([hopeless], risk=0.1, confidence=0.9)
    looks = recording.table(320, "sentences")
    with pytest.raises(ValueError, match="with one class only there is nothing to fit"):
        always = replace(looks.candidates, right=np.ones_like(looks.candidates.right))
        _labelled([replace(looks, candidates=always)], "gold")
    with pytest.raises(ValueError, match="no answer is ever stated"):
        _labelled([looks.of([])], "gold")
    other = at_bits(recording, 4, model="other")
    with pytest.raises(ProfileError, match="must agree in model"):
        fit([recording, other], risk=0.1, confidence=0.9)
    with pytest.raises(ProfileError, match="at 32 bits 64 traces come twice"):
        fit([recording, recording], risk=0.1, confidence=0.9)


def test_trees_that_lead_nowhere_are_refused(recording: Recording) -> None:
    data = json.loads(json.dumps(fit([recording], risk=0.3, confidence=0.8, kind="boosted").to_dict()))
    tree = next(tree for tree in data["model"]["trees"] if len(tree["left"]) > 1)
    for child in (0, 10**9, -1):  # round in circles, or out of it
        tree["left"][0] = child
        with pytest.raises(ProfileError, match="damaged: .* lead to each of its nodes once"):
            Profile.from_dict(data)


def test_settled_needs_a_profile_and_log_probabilities(profile: Profile) -> None:
    from bitcal_tts import Step

    with pytest.raises(ValueError, match="needs a profile"):
        build_method("settled", bits=32, budget=320)
    method = build_method("settled", bits=32, budget=320, profile=profile)
    with pytest.raises(ValueError, match="settled needs the .* of every token, which this step does not carry"):
        method.observe(Step(text="x", n_tokens=1, entropy=0.1))
    with pytest.raises(ProfileError, match="no threshold for 4 bits"):
        build_method("settled", bits=4, budget=320, profile=profile)
    with pytest.raises(ValueError, match="looks must be"):
        build_method("settled", bits=32, budget=320, profile=profile, looks="nowhere")


def test_a_profile_is_checked_where_it_serves(
    profile: Profile, recording: Recording, engine: Any, thinking_engine: Any
) -> None:
    """By the engine; markers and answer format come with the profile. What the engine cannot know is declared."""
    task = {"task": recording.description["task"]}
    method = build_method("settled", bits=32, budget=320, profile=profile, declare=task)
    assert (method.parameters.opening, method.parameters.close) == ("<think>", "</think>")
    request = [Request("a", "1+1?", method, question="1+1?")]
    assert len(list(thinking_engine.decode(request, Decoding(0.6), batch_size=1))) == 1
    undeclared = build_method("settled", bits=32, budget=320, profile=profile)
    with pytest.raises(ProfileError, match=rf"task '{SHORT}', which is unknown here \(--declare task=VALUE"):
        list(thinking_engine.decode([Request("a", "1+1?", undeclared, question="1+1?")], Decoding(0.6)))
    wrong = build_method("settled", bits=32, budget=320, profile=profile, declare={**task, "bits": 4})
    with pytest.raises(ProfileError, match="bits is 32 here, which was read; it cannot be declared 4"):
        list(thinking_engine.decode([Request("a", "1+1?", wrong, question="1+1?")], Decoding(0.6)))
    with pytest.raises(ProfileError, match="fitted for .*thinking"):  # it does not think
        list(engine.decode(request, Decoding(0.6), batch_size=1))
    with pytest.raises(ProfileError, match="fitted for temperature 0.6, this is 0.0"):
        list(thinking_engine.decode(request, Decoding(), batch_size=1))
    with pytest.raises(ProfileError, match="fitted for top_p 1.0, this is 0.95"):
        list(thinking_engine.decode(request, Decoding(0.6, top_p=0.95), batch_size=1))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("threshold", 0.1), ("chunk_size", 16), ("fallback_after", 0), ("guard", False), ("reserve", 0), ("every", 64),
        ("looks", "both"), ("answers", "boxed"), ("close", "</done>"),
    ],
)  # fmt: skip
def test_what_a_certificate_rests_on_is_not_changed_by_accident(profile: Profile, name: str, value: Any) -> None:
    with pytest.raises(ProfileError, match=f"certified with its own {name} .*, not {value!r}"):
        build_method("settled", bits=32, budget=320, profile=profile, **{name: value})
    with pytest.warns(ProfileWarning, match="It was forced: no promise holds"):
        forced = build_method("settled", bits=32, budget=320, profile=profile, force=True, **{name: value})
    assert getattr(forced.parameters, name) == value
    same = profile.settings.get(name, profile.threshold(32) if name == "threshold" else "</think>")
    build_method("settled", bits=32, budget=320, profile=profile, **{name: same})


def test_a_forced_profile_takes_the_nearest_threshold(profile: Profile, recording: Recording) -> None:
    with pytest.warns(ProfileWarning, match="no threshold for 4 bits, only for 32.* of 32 bits is used"):
        method = build_method("settled", bits=4, budget=320, profile=profile, force=True)
    assert method.parameters.threshold == profile.threshold(32)
    two = replace(profile, thresholds={32.0: 0.9, 8.0: 0.8, 2.0: 0.2})
    with pytest.warns(ProfileWarning):
        assert build_method("settled", bits=4, budget=320, profile=two, force=True).parameters.threshold == 0.2
    with pytest.raises(ProfileError, match="no threshold for 4 bits"):
        build_method("settled", bits=4, budget=320, profile=two)


def test_inside_generate_what_is_served_is_read_from_the_model(
    profile: Profile, recording: Recording, thinking_engine: Any
) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    model, tokenizer = thinking_engine.checkpoint.model, thinking_engine.tokenizer
    task = {"task": recording.description["task"]}

    def made(profile: Profile, **more: Any) -> Any:
        return build_method("settled", bits=32, budget=320, profile=profile, declare=task, **more)

    with pytest.raises(ValueError, match="checked against the model"):
        BitCal(made(profile), tokenizer)
    elsewhere = replace(profile, identity=profile.identity.with_known(model_sha256="0"))
    with pytest.raises(ProfileError, match="fitted for model_sha256 '0'"):
        BitCal(made(elsewhere), tokenizer, model=model)
    with pytest.warns(ProfileWarning, match="no promise holds"):
        BitCal(made(elsewhere, force=True), tokenizer, model=model)
    half = AutoModelForCausalLM.from_pretrained(thinking_engine.checkpoint.model.name_or_path, dtype=torch.bfloat16)
    with pytest.raises(ProfileError, match="set up for 32 bits, this is 16"):
        BitCal(made(profile), tokenizer, model=half)
    with pytest.raises(ValueError, match="deer probes the model, which cannot be done inside generate"):
        BitCal(build_method("deer", bits=32, budget=320), tokenizer, model=model)
    bitcal = BitCal(made(profile), tokenizer, model=model)
    prompt = short_task().prompt(recording.traces[0].item)
    thinking = torch.tensor([thinking_engine.checkpoint.encode(prompt)])
    mask = {"attention_mask": torch.ones_like(thinking)}
    options: dict[str, Any] = {"do_sample": True, "temperature": 0.6}
    model.generate(thinking, **mask, **bitcal.kwargs(questions=["1+1?"], **options))
    for wrong, message in (
        ({}, "temperature 0.6, this is 0.0"),
        ({"temperature": 1.5}, "temperature 0.6, this is 1.5"),
        ({"temperature": 0.6, "top_p": 0.9}, "top_p 1.0, this is 0.9"),
        ({"temperature": 0.6, "repetition_penalty": 1.2}, "repetition_penalty 1.0, this is 1.2"),
    ):
        with pytest.raises(ProfileError, match=message):
            model.generate(thinking, **mask, **bitcal.kwargs(questions=["1+1?"], **wrong))
    with pytest.raises(TypeError, match="temperature"):  # said in two places
        model.generate(thinking, **mask, temperature=1.5, **bitcal.kwargs(questions=["1+1?"], **options))
    with pytest.raises(ValueError, match="kwargs takes do_sample, temperature"):
        bitcal.kwargs(beams=3)
    chat = tokenizer.apply_chat_template([{"role": "user", "content": prompt}], add_generation_prompt=True)
    instruct = torch.tensor([chat["input_ids"]])
    with pytest.raises(ProfileError, match="fitted for style 'thinking', this is 'instruct'"):
        model.generate(
            instruct, attention_mask=torch.ones_like(instruct), **bitcal.kwargs(questions=["1+1?"], **options)
        )
    for extra in ({"no_repeat_ngram_size": 3}, {"suppress_tokens": [5]}, {"num_beams": 3}, {"max_new_tokens": 10}):
        with pytest.raises(TypeError, match=next(iter(extra))):  # what no profile was fitted with, and a shorter budget
            model.generate(thinking, **mask, **extra, **bitcal.kwargs(questions=["1+1?"], **options))
    model.generation_config.no_repeat_ngram_size = 2
    try:
        with pytest.raises(ProfileError, match="generation config sets no_repeat_ngram_size=2"):
            bitcal.kwargs(**options)
    finally:
        model.generation_config.no_repeat_ngram_size = None


def test_a_prefix_voids_a_promise(profile: Profile, recording: Recording, thinking_engine: Any) -> None:
    task = {"task": recording.description["task"]}
    method = build_method("settled", bits=32, budget=320, profile=profile, declare=task)
    for prefix in ("<think>\nSo the answer is 5.\n", [5, 6, 7]):
        with pytest.raises(ProfileError, match="begins with a prefix"):
            list(thinking_engine.decode([Request("a", "1+1?", method, prefix=prefix, question="1+1?")], Decoding(0.6)))


def test_samples_of_one_question_are_one_item(recording: Recording, profile: Profile) -> None:
    """Certified once, on one side of the split, however often it was sampled."""
    twice = []
    for trace in recording.traces:
        longer: dict[str, Any] = {
            name: np.append(getattr(trace, name), getattr(trace, name)[-1])
            for name in ("token_ids", "entropies", "logprobs", "margins", "top_logprobs")
        }
        twice.append(replace(trace, index=trace.index + 64, token_texts=[*trace.token_texts, " "], **longer))
    again = Recording(recording.description, twice, recording.task, recording.identity)
    pooled = fit([recording, again], risk=0.3, confidence=0.8, budget=320)
    assert pooled.evidence["32"]["certified_items"] == profile.evidence["32"]["certified_items"] == 32
    assert pooled.evidence["32"]["other_items"] == 64
    assert pooled.fitted["questions"] == profile.fitted["questions"]


def test_a_known_profile_is_certified_with_its_own_settings(recording: Recording, profile: Profile) -> None:
    finer = at_bits(recording, 4, probes=8)
    assert fit([finer], risk=0.4, confidence=0.6, known=profile).settings["every"] == 16
    coarser = at_bits(recording, 4, probes=24)
    with pytest.raises(ProfileError, match="looks every 16 tokens, these traces were probed every 24"):
        fit([coarser], risk=0.4, confidence=0.6, known=profile)
    boxed = Recording(recording.description, recording.traces, load_task(answers="boxed"), recording.identity)
    with pytest.raises(ProfileError, match="certified with its own .*answers 'gsm8k', not 'boxed'"):
        fit([boxed], risk=0.4, confidence=0.6, known=profile)


def test_one_hook_a_model_however_many_objects(thinking_engine: Any) -> None:
    model, tokenizer = thinking_engine.checkpoint.model, thinking_engine.tokenizer
    hooks = model.get_output_embeddings()._forward_pre_hooks
    before = len(hooks)
    for _ in range(20):
        BitCal(build_method("complete", bits=32, budget=32), tokenizer, model=model)
    assert len(hooks) == before == 1


def test_probes_at_other_places_are_where_it_looks(thinking_engine: Any, tmp_path: Path) -> None:
    store = record(
        thinking_engine, short_task(), tmp_path / "t", n=40, budget=192, batch_size=40, decoding=Decoding(0.6),
        probes=24,
    )  # fmt: skip
    assert main(["fit", str(store.folder), "--risk", "0.5", "--confidence", "0.6", "--out", "p.json", "--json"]) == 0
    assert load_profile("p.json").settings["every"] == 24
    assert main(["replay", str(store.folder), "--profile", "p.json", "--out", "o", "--json"]) == 0
    assert main(["compare", str(store.folder), "--profile", "p.json", "--json"]) == 0


@pytest.mark.parametrize(
    ("risk", "certified", "target"), [(0.05, True, 0.05), (0.3, True, 0.01), (0.02, False, 0.01), (None, True, 0.01)]
)
def test_rules_are_compared_at_what_a_profile_promises(risk: float | None, certified: bool, target: float) -> None:
    evidence = {"4": {"certified": certified, "risk": risk}}
    parameters = SimpleNamespace(bits=4.0, profile=SimpleNamespace(evidence=evidence))
    plain = SimpleNamespace(promises=False, parameters=SimpleNamespace(bits=4.0))
    ours = [] if risk is None else [SimpleNamespace(promises=True, parameters=parameters)]
    assert _promised([plain, *ours]) == target


def test_fit_replay_and_compare_from_the_command_line(probed: Any, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(probed.folder)
    assert main(["fit", folder, "--risk", "0.3", "--confidence", "0.8", "--out", "p.json"]) == 0
    fitted = capsys.readouterr().out
    assert "profile: p.json" in fitted and max(map(len, fitted.splitlines()[:-1])) <= 80
    assert "promised: at most 30 % lost (confidence 0.8, 32 items)" in " ".join(fitted.split())
    assert main(["replay", folder, "--profile", "p.json", "--out", "o", "--json"]) == 0
    replayed = json.loads(capsys.readouterr().out)
    rows = replayed["rows"]
    assert [row["method"] for row in rows] == ["landed", "fixed", "adaptive", "bitcal_tts", "complete", "settled"]
    (promise,) = replayed["promises"]
    assert (promise["method"], promise["risk"]) == ("settled", 0.3) and "verdict" not in promise
    assert promise["line"].endswith("; seen here: nothing (it was fitted or certified on all of these items)")
    assert main(["compare", folder, "--profile", "p.json", "--target", "0.05", "--out", "c", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert {"deer", "dynasor", "eat", "oracle", "settled", "truncate"} <= {row["method"] for row in told["rows"]}
    promised = told["rows"][0]
    assert promised["certified"] and promised["avg_tokens"] == rows[-1]["avg_tokens"]
    for row in told["rows"]:
        assert row["target"] is None or row["lost_correct_rate"] <= row["target"]
    assert Path("c/frontier.png").stat().st_size > 10_000
    assert {t["method"] for t in told["tests"]["accuracy"]} == {"settled"}
    assert {"landed", "complete"} < {t["against"] for t in told["tests"]["accuracy"]}
    show(told, full=False)
    screen = capsys.readouterr().out
    assert max(map(len, screen.splitlines())) <= 80
    mine = next(row for row in told["rows"] if row["method"] == "settled" and row["target"] == 0.05)
    axes = frontier_figure(told).axes[0]
    rings = [one.get_xdata()[0] for one in axes.lines if one.get_markerfacecolor() == "none"]
    assert mine["avg_tokens"] in rings and "chosen for 5 % lost" in axes.get_xlabel()
    saves = f"settled saves {100 * mine['savings']:.1f} % of the tokens"
    told_first = f"With at most 5 % lost (--target), each rule at its best threshold on these items, {saves}"
    assert told_first in " ".join(screen.split())
    for name in told["curves"]:
        assert name in " ".join(screen.split()), name  # whoever cannot lose so little is named too
    show(told, full=True)
    assert "Paired tests at a lost-correct rate of 5 %" in capsys.readouterr().out
    assert main(["compare", folder, "--methods", "fixed,truncate,complete", "--json"]) == 0
    assert capsys.readouterr().err == ""
    assert main(["report", "o"]) == 0  # the traces lie elsewhere
    told_again = " ".join(capsys.readouterr().out.split())
    assert promise["line"] in told_again
    assert promise["line"] in Path("o/report.html").read_text()
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
    assert main([*usual, "--set", "truncate.threshold=64", "--set", "settled.looks=both"]) == 2
    assert "looks 'sentences', not 'both'" in capsys.readouterr().err
    forced = [*usual[:-1], "forced", "--set", "truncate.threshold=64", "--set", "settled.looks=both", "--force"]
    assert main(forced) == 0
    assert "It was forced: no promise holds" in capsys.readouterr().err
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


def fitted_items(recording: Recording, profile: Profile) -> list[bool]:
    """Of every item, whether the scorer was fitted on it."""
    from bitcal_tts.calibration.recording import mark_of

    return [mark_of(trace) in set(profile.fitted["questions"]) for trace in recording.traces]


def test_thresholds_are_looked_for_where_the_scorer_was_fitted(
    recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Never among the items that certify them: that would void the guarantee."""
    from bitcal_tts.calibration.risk import grid

    seen: list[np.ndarray[Any, Any]] = []

    def spy(scores: Any) -> list[float]:
        seen.append(np.sort(np.asarray(scores)))
        return grid(scores)

    monkeypatch.setattr("bitcal_tts.calibration.fit.grid", spy)
    profile = fit([recording], risk=0.3, confidence=0.8)
    looks = recording.table(320, "sentences")
    fitting = looks.of([i for i, used in enumerate(fitted_items(recording, profile)) if used])
    assert seen[0].tolist() == np.sort(fitting.judged(profile.scores).scores).tolist()


def test_the_reference_is_the_first_look_of_every_certifying_item(recording: Recording, profile: Profile) -> None:
    from bitcal_tts.halting.drift import NO_LOOK
    from bitcal_tts.traces.replay import replay

    expected = []
    for trace, used in zip(recording.traces, fitted_items(recording, profile), strict=True):
        if used:
            continue
        seen: list[float] = []
        method = build_method("settled", bits=32, budget=320, profile=profile)
        replay(
            trace, method, identity=recording.identity,
            watch=lambda _, d, s=seen: s.append(d.score) if d.score is not None else None,  # type: ignore[misc]
        )  # fmt: skip
        expected.append(seen[0] if seen else NO_LOOK)
    assert profile.reference[32.0] == pytest.approx(expected)
    assert len(expected) == profile.evidence["32"]["certified_items"]


def test_boundaries_are_looked_at_where_no_statement_has_come(profile: Profile, recording: Recording) -> None:
    from bitcal_tts import Session, Tokens

    plain = Tokens([f"w{i} " for i in range(200)], [0.1] * 200, [-0.1] * 200, [2.0] * 200, [-9.0] * 200)
    looked: list[int] = []
    Session(
        method_at(profile, math.inf), identity=recording.identity, question="How many?",
        watch=lambda d: looked.append(d.tokens) if d.score is not None else None,
    ).feed(plain)  # fmt: skip
    assert looked == [128, 144, 160, 176, 192]


def test_a_promise_among_the_right_is_stricter(recording: Recording) -> None:
    everyone = fit([recording], risk=0.3, confidence=0.8, kind="logistic").evidence["32"]
    right = fit([recording], risk=0.3, confidence=0.8, kind="logistic", among="right").evidence["32"]
    assert (everyone["among"], right["among"]) == ("all", "right")
    assert right["certified_items"] == round(right["full_accuracy"] * everyone["certified_items"])
    assert right["losses"] / right["certified_items"] < 0.3
    assert right["p_value"] == pytest.approx(binomial_p_value(right["losses"], right["certified_items"], 0.3))
    with pytest.raises(ValueError, match="not known with label 'final'"):
        fit([recording], risk=0.3, confidence=0.8, label="final", among="right")
    with pytest.raises(ValueError, match="among must be one of all, right"):
        fit([recording], risk=0.3, confidence=0.8, among="wrong")


def test_joint_confidence_is_divided_among_the_precisions(recording: Recording, profile: Profile) -> None:
    other = at_bits(recording, 4.0)
    apart = fit([recording, other], risk=0.3, confidence=0.8, kind="logistic")
    joint = fit([recording, other], risk=0.3, confidence=0.8, kind="logistic", joint=True)
    for bits in ("32", "4"):
        assert joint.evidence[bits]["joint_over"] == [4.0, 32.0] and "joint_over" not in apart.evidence[bits]
        assert joint.evidence[bits]["p_value"] <= 0.1 and joint.evidence[bits]["confidence"] == 0.8
        assert joint.threshold(float(bits)) >= apart.threshold(float(bits))
    alone = fit([recording, other], risk=0.3, confidence=0.9, kind="logistic")
    assert alone.thresholds == joint.thresholds  # half of the error each
    with pytest.raises(ValueError, match="for 32 bits were certified apart"):
        fit([other], risk=0.3, confidence=0.8, known=profile, joint=True)
