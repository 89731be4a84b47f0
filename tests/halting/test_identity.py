"""What a promise is tied to, and what nobody knows."""

from __future__ import annotations

import pytest

from bitcal_tts.halting.identity import KEYS, LOG, UNKNOWN, Identity, IdentityError
from bitcal_tts.halting.profile import Profile, ProfileError
from bitcal_tts.halting.settled import SettledParameters

ALL = {key: f"the {key}" for key in KEYS}


def test_unknown_is_a_value_of_its_own() -> None:
    identity = Identity({"thinking": None})
    assert identity["thinking"] is None
    assert identity["bits"] is UNKNOWN and repr(identity["bits"]) == "unknown"
    with pytest.raises(IdentityError, match="not mood"):
        Identity({"mood": "good"})


@pytest.mark.parametrize("key", [key for key in KEYS if key not in ("model", "handed_to")])
def test_every_key_counts(key: str) -> None:
    fitted = Identity(ALL)
    assert fitted.differences(Identity(ALL)) == {}
    changed = fitted.differences(Identity({**ALL, key: "another"}))
    assert changed == {key: f"fitted for {key} 'the {key}', this is 'another'"}
    without = {name: value for name, value in ALL.items() if name != key}
    (said,) = fitted.differences(Identity(without)).values()
    assert key in said and "unknown here" in said and f"--declare {key}=VALUE" in said
    (said,) = Identity(without).differences(fitted).values()
    assert said.startswith(f"the {key} it was fitted for is unknown")
    assert len(Identity(without).differences(Identity(without))) == 1  # two unknowns are not the same thing


def test_the_same_files_under_another_name_are_the_same_model() -> None:
    copy = Identity({**ALL, "model": "/somewhere/else"})
    assert Identity(ALL).differences(copy) == {}
    hashless = {key: value for key, value in ALL.items() if key != "model_sha256"}
    assert "model" in Identity(hashless).differences(Identity({**hashless, "model": "other"}))


def test_two_logs_have_no_files_and_are_not_the_same_model_for_that() -> None:
    one, other = (Identity({"model": name, "model_sha256": None}) for name in ("DeepSeek-R1", "QwQ-32B"))
    assert one.contradictions(other) == {"model": "fitted for model 'DeepSeek-R1', this is 'QwQ-32B'"}
    assert "--model-name" not in one.differences(other)["model"]
    imported = (identity.with_known(engine=LOG) for identity in (one, other))
    assert "--model-name NAME" in next(imported).differences(next(imported))["model"]


def test_only_what_is_unknown_can_be_declared() -> None:
    identity = Identity({"bits": 4})
    declared = identity.declare({"task": "gsm8k", "bits": 4})
    assert declared["task"] == "gsm8k" and declared.declared == {"task"}
    assert declared.declare({"task": "gsm8k"}) == declared
    with pytest.raises(IdentityError, match="bits is 4 here, which was read; it cannot be declared 8"):
        identity.declare({"bits": 8})
    with pytest.raises(IdentityError, match=r"bits is 4 here, as the log was imported \(bitcal import --bits says"):
        identity.with_known(engine=LOG).declare({"bits": 8})
    with pytest.raises(IdentityError, match="'mood' cannot be declared"):
        identity.declare({"mood": 1})


def test_who_declares_the_task_declares_how_it_is_asked() -> None:
    asked = ("task", "prompt_sha256", "system", "template_options")
    live = Identity({key: value for key, value in ALL.items() if key not in asked})
    assert len(Identity(ALL).differences(live)) == 4
    assert Identity(ALL).differences(live.declare({"task": "the task"})) == {}
    known = Identity({**live.known, "system": "another"}).declare({"task": "the task"})
    assert len(Identity(ALL).differences(known)) == 1  # what is known still counts


def test_a_description_is_spread_and_read_back() -> None:
    identity = Identity.of(
        {"bits": 4, "decoding": {"temperature": 0.6, "seed": 3}, "thinking": ("<a>", "</a>"), "n": 9}
    )
    assert identity.known == {"bits": 4, "temperature": 0.6, "thinking": ["<a>", "</a>"]}
    declared = identity.declare({"task": "t"})
    assert Identity.of(declared.to_dict()) == declared


def test_where_nearly_everything_differs_the_first_few_differences_are_told() -> None:
    known = {"engine": "log", "model": "QwQ-32B", "task": "logs", "temperature": 0.6, "top_p": 0.9, "budget": 4096}
    other = {
        "engine": "transformers",
        "model": "mine",
        "task": "gsm8k",
        "temperature": 0.0,
        "top_p": 1.0,
        "budget": 512,
    }
    evidence = {"4": {"certified": True}}
    model = {"mean": [0.0], "scale": [1.0], "weights": [1.0], "intercept": 0.0}
    profile = Profile("logistic", ("tokens",), model, {4.0: 0.5}, Identity(known), {}, evidence)
    with pytest.raises(ProfileError) as refused:
        profile.check_known(Identity({**other, "bits": 4.0}))
    told = str(refused.value)
    assert "fitted for engine 'log', this is 'transformers'; fitted for model 'QwQ-32B', this is 'mine'" in told
    assert told.count("this is") == 5 and told.endswith(
        "; and 1 more, different or unknown; it takes a profile that was fitted for this"
    )
    assert sorted(refused.value.differs) == sorted(known)  # all of them, for whoever does not read a message
    parameters = SettledParameters(name="settled", bits=4.0, budget=512, profile=profile)
    with pytest.raises(ProfileError) as forwarded:
        parameters.check(Identity({**other, "bits": 4.0}))
    assert set(known) < set(forwarded.value.differs)
    with pytest.raises(ProfileError, match="this is 512; it takes a profile that was fitted for this"):
        profile.check_known(Identity({**known, "bits": 4.0, "budget": 512}))
