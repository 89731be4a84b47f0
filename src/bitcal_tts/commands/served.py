"""How `bitcal serve` controls requests, by its options: which method, with which profile, and what is said of it."""

from __future__ import annotations

import argparse
from typing import Any

from bitcal_tts.calibration.store import load_profile
from bitcal_tts.commands.options import declared
from bitcal_tts.commands.progress import note
from bitcal_tts.engines.base import Decoding
from bitcal_tts.engines.http import HttpEngine
from bitcal_tts.engines.named_profiles import named_profile
from bitcal_tts.evaluation.promises import promised
from bitcal_tts.halting.controller import Controller
from bitcal_tts.halting.identity import DECODING, Identity, IdentityError
from bitcal_tts.halting.methods import parameters_of
from bitcal_tts.halting.profile import Profile, ProfileError
from bitcal_tts.halting.shared import SharedMethods
from bitcal_tts.serving import demo
from bitcal_tts.serving.door import LOCAL, Door
from bitcal_tts.serving.pages import EXAMPLES, About
from bitcal_tts.serving.policy import Limits, Policy

BUDGET = 4096
"""Tokens of a request where nobody says how many, and the server does not tell what its model has room for."""
MOST = 32_768
"""Where it does: what reasoning models are usually given."""


def policy_of(args: argparse.Namespace, engine: HttpEngine) -> Policy:
    """How requests are controlled, by the options."""
    fill_in(args)
    _choose_budget(args, engine)
    if args.escalate_after is not None and not 0 < args.escalate_after < args.budget:
        raise ValueError(f"--escalate-after must be 1 to the budget, {args.budget}; got {args.escalate_after}")
    own = load_profile(args.profile) if args.profile else _demo_profile(args, engine) if args.demo else None
    if own is not None and own.identity.is_log:
        raise ProfileError(
            f"{args.profile} was fitted on logs, of which nobody knows what wrote them: it can be replayed on others, "
            "and is never served. Fit one on what was recorded from this server (bitcal record --url), or let --risk "
            "earn one"
        )
    usual = args.method or ("complete" if own is None else "settled")
    told = declared(args)
    answers = args.answers or "number"
    opening, close = engine.thinking or (None, None)
    methods = SharedMethods()

    def build(method: str | None, profile: str | None, budget: int) -> Controller:
        name = method or ("settled" if profile is not None else usual)
        known = parameters_of(name)
        given: dict[str, Any] = {"answers": answers, "opening": opening, "close": close}
        if "profile" in known:
            served = own if profile is None else named_profile(args.profiles, profile)
            if served is None:
                raise ValueError(f"{name} needs a profile: start the sidecar with --profile, or name one")
            # What it reads answers by and how thinking is marked are the profile's.
            given = {"profile": served, "declare": told}
        used = {key: value for key, value in given.items() if key in known}
        return methods.build(name, bits=engine.bits, budget=budget, **used)

    usual_method = build(None, None, args.escalate_after or args.budget)  # what is wrong is said now
    for_all = True
    if own is not None and not args.risk and usual == "settled":
        own.check_known(_of_the_server(engine).declare(told))
        if args.escalate_after is None:
            for_all = _holds_for_plain_requests(own, engine, args)
    about = About(
        method="the autopilot" if args.risk else usual_method.parameters.name,
        promise="" if own is None or args.risk else _promise(own, engine.bits, for_all=for_all),
        temperature=args.temperature,
        budget=args.budget,
        prompt=demo.PROMPT if args.demo else "{question}",
        examples=demo.EXAMPLES if args.demo else EXAMPLES,
    )
    return Policy(
        build=build,
        budget=args.budget,
        temperature=args.temperature,
        door=Door(frozenset({*LOCAL, args.host, *args.allow_host}), args.api_key),
        limits=Limits(open=args.max_open),
        about=about,
        first=args.escalate_after,
    )


def fitted_on(args: argparse.Namespace) -> Identity:
    """What requests are like that the profile was fitted for, where one decides on them."""
    decides = args.profile is not None and args.risk is None and args.method in (None, "settled")
    return load_profile(args.profile).identity if decides else Identity()


def fill_in(args: argparse.Namespace) -> None:
    """What the options leave open is as the profile has it, or the demo: whoever starts with one need not say it."""
    fitted = fitted_on(args)
    if args.budget is None and isinstance(fitted["budget"], int):
        args.budget = fitted["budget"]
    if args.temperature is None:
        usual = demo.TEMPERATURE if args.demo else 1.0
        args.temperature = fitted["temperature"] if isinstance(fitted["temperature"], int | float) else usual


def _choose_budget(args: argparse.Namespace, engine: HttpEngine) -> None:
    """Where nobody has said how many tokens a request may take: as many as leave prompts a quarter of the model."""
    positions = engine.max_positions
    if args.budget is None:
        args.budget = BUDGET if positions is None else min(MOST, max(1, 3 * positions // 4))
        if positions is None:
            note(
                f"note: the server does not tell what its model has room for: a controlled request ends at {BUDGET:,} "
                "tokens, unless --budget says otherwise"
            )
    elif positions is not None and args.budget >= positions:
        note(
            f"warning: a budget of {args.budget:,} tokens leaves no room for a prompt in {positions:,} positions: what "
            "is promised or learned for it holds for no request; give the server more, or --budget less"
        )


def _demo_profile(args: argparse.Namespace, engine: HttpEngine) -> Profile | None:
    """The one that came with the package, where it is for exactly this file."""
    found = None if args.method or args.risk else demo.profile()
    if found is None:
        return None
    try:
        found.check(_of_a_plain_request(engine, args))
    except ProfileError as error:
        note(f"the demo's profile is not used: {error}")
        return None
    return found


def _holds_for_plain_requests(profile: Profile, engine: HttpEngine, args: argparse.Namespace) -> bool:
    """Whether one that says no more than a question is halted; if not, that is said now, not in headers alone."""
    try:
        profile.check(_of_a_plain_request(engine, args))
    except (ProfileError, IdentityError) as error:
        note(f"warning: a request that says no more is passed on, not halted: {error}")
        return False
    return True


def _promise(profile: Profile, bits: float, *, for_all: bool) -> str:
    """What a profile promises, in a sentence."""
    words = promised(profile.evidence[f"{bits:g}"])
    return f"{words[0].upper()}{words[1:]}." if for_all else f"Of requests that it was fitted for is {words}."


def _of_a_plain_request(engine: HttpEngine, args: argparse.Namespace) -> Identity:
    """What is served to a client who says nothing but a question."""
    known = engine.identity(Decoding(args.temperature)).declare(declared(args))
    return known.with_known(signals=str(engine.signals(1)), budget=args.budget)


def _of_the_server(engine: HttpEngine) -> Identity:
    """What every request to a server has in common."""
    of_a_request = ("budget", "system", "task", "prompt_sha256", "template_options", "style", "thinking", "handed_to")
    known = engine.identity(Decoding()).without(*DECODING, *of_a_request)
    return known.with_known(bits=engine.bits, signals=str(engine.signals(1)))
