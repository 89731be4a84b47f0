"""How requests are controlled: what is set for all of them, and what each of them takes under it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from bitcal_tts.engines.base import Decoding
from bitcal_tts.engines.thinking import ThinkMarkers, style_of
from bitcal_tts.engines.wire import Prompt
from bitcal_tts.halting.controller import Controller, Decision
from bitcal_tts.halting.handing import name_of
from bitcal_tts.halting.identity import KEYS, UNKNOWN, Identity, IdentityError
from bitcal_tts.halting.methods import to_the_end
from bitcal_tts.halting.profile import ProfileError
from bitcal_tts.halting.session import Session
from bitcal_tts.halting.signals import TEXT_ONLY
from bitcal_tts.serving.asked import Asked, BadRequestError
from bitcal_tts.serving.autopilot import Autopilot
from bitcal_tts.serving.course import Course
from bitcal_tts.serving.door import Door
from bitcal_tts.serving.pages import About
from bitcal_tts.serving.state import Setting
from bitcal_tts.serving.upstream import Upstream

_LOG = logging.getLogger("bitcal.serve")


@dataclass(frozen=True)
class Limits:
    """What a client may ask of the sidecar.

    Attributes:
        open: Requests at once.
        seconds: That a generation may take.
    """

    open: int = 256
    seconds: float = 3600.0


@dataclass(frozen=True)
class Policy:
    """How requests are controlled.

    Attributes:
        build: Makes a method: by name, profile and budget, where a request names them.
        budget: Most tokens of any request.
        temperature: Where a client does not say.
        door: Who may come in.
        about: What the page says of it.
        limits: What they may ask for.
        first: Most tokens of the first server, where a second one goes on with what is not settled by then.
    """

    build: Callable[[str | None, str | None, int], Controller]
    budget: int = 4096
    temperature: float = 1.0
    door: Door = field(default_factory=Door)
    limits: Limits = Limits()
    about: About = field(default_factory=About)
    first: int | None = None


class Planner:
    """Finds for each request what decides on it.

    Args:
        upstream: The server.
        policy: What is set.
        autopilot: Earns a promise for requests that name no method.
        second: Where requests go on that are not settled by then.
    """

    def __init__(
        self, upstream: Upstream, policy: Policy, autopilot: Autopilot | None, second: Upstream | None
    ) -> None:
        self._upstream, self._policy, self._autopilot, self._second = upstream, policy, autopilot, second

    def on_second(self, asked: Asked) -> tuple[Upstream, Prompt]:
        """The second server, and what is asked as that one reads it."""
        assert self._second is not None
        return self._second, self.prompt(asked, self._second)

    def read(self, asked: Asked) -> tuple[Prompt, ThinkMarkers | None]:
        """What is asked as the server reads it, and how its model marks its thinking then; both may ask the server."""
        return self.prompt(asked), self.thinking(asked)

    def prompt(self, asked: Asked, upstream: Upstream | None = None) -> Prompt:
        """What is asked as a server reads it, the first by default."""
        engine = (upstream or self._upstream).engine
        if not asked.chat:
            return engine.wire.text_prompt(asked.prompt)
        return engine.wire.prompt(asked.messages, {**engine.template_options, **asked.options})

    def thinking(self, asked: Asked) -> ThinkMarkers | None:
        """How the model marks its thinking where it is asked like this."""
        return self._upstream.engine.thinking_with(asked.options if asked.chat else {})

    def course(self, asked: Asked, prompt: Prompt, thinking: ThinkMarkers | None) -> Course:
        """What a request will take, with a cap that the model has room for."""
        engine, policy = self._upstream.engine, self._policy
        cap = min(policy.budget, asked.cap or policy.budget)
        room = cap if engine.max_positions is None else min(cap, engine.max_positions - prompt.tokens)
        if room < 1:
            raise BadRequestError(
                f"the prompt has {prompt.tokens:,} tokens, and the model takes {engine.max_positions:,}"
            )
        identity = engine.identity(Decoding(**{**vars(asked.decoding), "seed": 0}))
        identity = identity.with_known(system=asked.before)
        if asked.chat:
            identity = identity.with_known(template_options={**engine.template_options, **asked.options})
        else:
            identity = identity.with_known(template_sha256="a raw prompt", template_options={})
        unexpected = thinking is not None and engine.thinking is None
        if thinking is not None and unexpected:
            identity = identity.with_known(style=style_of(thinking), thinking=list(thinking))
        options: dict[str, Any] = {
            "identity": identity, "question": asked.question, "count_tokens": lambda text: len(engine.encode(text))
        }  # fmt: skip
        piloted = self._autopilot is not None and asked.method is None and asked.profile is None
        looks: list[tuple[int, float]] = []
        if asked.trace:

            def note(decision: Decision) -> None:
                if decision.score is not None:
                    looks.append((decision.tokens, decision.score))

            options["watch"] = note
        if piloted and cap == room:
            course = self._piloted(identity, cap, thinking or engine.thinking, options)
            course.looks = looks
            return course
        if piloted:
            _LOG.info("not learned from: its prompt leaves less than the budget", extra={"room": room, "budget": cap})
        if unexpected:
            raise ValueError("it asks the model to think, and methods here do not expect that: serve --style thinking")
        budget = room
        if self._second is not None and policy.first is not None and not piloted and policy.first < room:
            budget = policy.first
            options["identity"] = identity.with_known(handed_to=name_of(self._second.engine.describe()))
        try:
            method = to_the_end(room) if piloted else policy.build(asked.method, asked.profile, budget)
        except (ProfileError, IdentityError):
            raise
        except ValueError as error:
            raise BadRequestError(str(error)) from None
        reads = method.needs or method.promises or asked.trace
        signals = engine.signals(method.parameters.chunk_size) if reads else TEXT_ONLY
        course = Course(Session(method, signals=signals, **options))
        course.looks = looks
        course.cap = room if budget < room else None
        return course

    def _piloted(self, identity: Identity, cap: int, thinking: ThinkMarkers | None, options: dict[str, Any]) -> Course:
        """A request of which the autopilot decides what becomes."""
        engine = self._upstream.engine
        assert self._autopilot is not None
        signals = engine.signals(1)
        # The traffic is what it is: what is asked, and what nobody tells of the server, is part of it.
        tied = identity.without("system").with_known(signals=str(signals), budget=cap)
        tied = tied.declare({key: "as served" for key in KEYS if tied[key] is UNKNOWN})
        options["identity"] = tied
        setting = Setting(
            identity=tied,
            bits=engine.bits,
            budget=cap,
            answers=self._autopilot.answers,
            markers=thinking or (None, None),
        )
        pilot = self._autopilot.pilot(setting)
        if pilot is None:
            raise ValueError("requests come with too many settings for the autopilot to learn about each")
        return pilot.course(signals=signals, **options)
