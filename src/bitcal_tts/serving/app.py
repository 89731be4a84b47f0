"""The sidecar as a web application: what is controlled, what is passed on, and what is refused at the door."""

from __future__ import annotations

import json
import logging
import time
from asyncio import CancelledError
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, suppress
from functools import partial
from typing import Any, TypeVar

from anyio import CancelScope, CapacityLimiter, WouldBlock, create_task_group, to_thread
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from bitcal_tts.engines.wire import ServerError
from bitcal_tts.halting.settled import OR_FORCE
from bitcal_tts.serving.asked import Asked, BadRequestError, capped, read_asked
from bitcal_tts.serving.autopilot import Autopilot
from bitcal_tts.serving.door import failure
from bitcal_tts.serving.generation import Generation
from bitcal_tts.serving.memory import StateError
from bitcal_tts.serving.metrics import Metrics
from bitcal_tts.serving.openapi import schema
from bitcal_tts.serving.pages import PATHS, page
from bitcal_tts.serving.policy import Planner, Policy
from bitcal_tts.serving.shapes import Answer
from bitcal_tts.serving.upstream import Upstream, UpstreamError

HEADER = "x-bitcal"
"""Says of every response whether it was controlled, and if not, why."""
_GONE = 499  # nobody reads it: the client has hung up
_LOG = logging.getLogger("bitcal.serve")


class Sidecar:
    """Between clients and a server.

    Args:
        upstream: The server; fixed for as long as it runs.
        policy: How requests are controlled.
        autopilot: Earns a promise for requests that name no method.
        second: Where requests go on that a method escalates.
    """

    def __init__(
        self,
        upstream: Upstream,
        policy: Policy,
        autopilot: Autopilot | None = None,
        second: Upstream | None = None,
    ) -> None:
        self._upstream, self._policy, self.autopilot, self._second = upstream, policy, autopilot, second
        self._door = policy.door
        self.metrics = Metrics()
        self._places = CapacityLimiter(policy.limits.open)

    @property
    def _planner(self) -> Planner:
        return Planner(self._upstream, self._policy, self.autopilot, self._second)

    def application(self) -> Starlette:
        """As ASGI has it."""
        everything = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"]
        routes = [
            Route("/healthz", self._health, methods=["GET"]),
            Route("/metrics", self._metrics, methods=["GET"]),
            Route("/bitcal/autopilot", self._autopilot, methods=["GET"]),
            Route("/bitcal/about", self._about, methods=["GET"]),
            Route("/openapi.json", self._schema, methods=["GET"]),
            *(Route(path, self._page, methods=["GET"]) for path in PATHS),
            Route("/v1/chat/completions", self._guarded(self._chat), methods=["POST"]),
            Route("/v1/completions", self._guarded(self._completion), methods=["POST"]),
            *(
                Route(f"/v1/{path}", self._wrong_method, methods=["GET", "PUT", "PATCH", "DELETE"])
                for path in ("chat/completions", "completions")
            ),
            Route("/{path:path}", self._guarded(self._other), methods=everything),
        ]

        @asynccontextmanager
        async def lifespan(_: Starlette) -> AsyncIterator[None]:
            async with AsyncExitStack() as at_the_end:
                for upstream in (self._upstream, self._second):
                    if upstream is not None:
                        at_the_end.push_async_callback(upstream.close)
                if self.autopilot is not None:
                    at_the_end.callback(self.autopilot.close)
                tasks = await at_the_end.enter_async_context(create_task_group())
                at_the_end.callback(tasks.cancel_scope.cancel)
                if self.autopilot is not None:
                    self.autopilot.begin(tasks)
                with suppress(CancelledError):  # being told to end at once is an end like any other
                    yield

        return Starlette(routes=routes, lifespan=lifespan)

    async def _health(self, request: Request) -> Response:
        return self._door.refused(request) or JSONResponse({"status": "ok"})

    async def _page(self, request: Request) -> Response:
        return self._door.elsewhere(request) or page(request.url.path)

    async def _wrong_method(self, request: Request) -> Response:
        told = f"{request.method} is not for {request.url.path}: POST a request to it, as OpenAI's API has it"
        refusal = failure(405, told, "invalid_request_error")
        refusal.headers["allow"] = "POST"
        return self._door.refused(request) or refusal

    async def _schema(self, request: Request) -> Response:
        return self._door.elsewhere(request) or JSONResponse(schema())

    async def _about(self, request: Request) -> Response:
        engine, needs_key = self._upstream.engine, self._door.api_key is not None
        about = self._policy.about.told(engine.describe()["model"], engine.bits, needs_key=needs_key)
        return self._door.elsewhere(request) or JSONResponse(about)

    async def _autopilot(self, request: Request) -> Response:
        on = self.autopilot is not None
        return self._door.refused(request) or JSONResponse({"on": on, "pilots": self._pilots()})

    async def _metrics(self, request: Request) -> Response:
        return self._door.refused(request) or Response(self._counted(), media_type=CONTENT_TYPE_LATEST)

    def _pilots(self) -> list[dict[str, Any]]:
        return [] if self.autopilot is None else self.autopilot.status()

    def _counted(self) -> bytes:
        self.metrics.pilots(self._pilots())
        counted: bytes = generate_latest(self.metrics.registry)
        return counted

    def _guarded(
        self, handle: Callable[[Request, bytes], Awaitable[Response]]
    ) -> Callable[[Request], Awaitable[Response]]:
        """Nobody comes in by another name, without the key, or with too much."""

        async def guarded(request: Request) -> Response:
            refused = self._door.refused(request)
            if refused is not None:
                return refused
            try:
                body = await self._door.body(request)
                return body if isinstance(body, Response) else await handle(request, body)
            except ClientDisconnect:
                return Response(status_code=_GONE)
            except BadRequestError as error:
                self.metrics.requests.labels("refused").inc()
                return failure(400, str(error), "invalid_request_error")
            except ServerError as error:
                self._failed(error)
                self.metrics.requests.labels("failed").inc()
                status = error.status if isinstance(error, UpstreamError) else 502
                return failure(status, self._without_url(error), "upstream_error")

        return guarded

    def _failed(self, error: ServerError) -> None:
        self._upstream.failed(error)
        self.metrics.errors.inc()
        # What an upstream says of a request may be the client's words.
        told = f"status {error.status}" if isinstance(error, UpstreamError) else str(error)
        _LOG.warning("the upstream failed", extra={"error": told})

    def _without_url(self, error: ServerError) -> str:
        """Where the upstreams are, is nobody's business."""
        told = str(error).replace(self._upstream.engine.url, "the upstream")
        return told if self._second is None else told.replace(self._second.engine.url, "the second upstream")

    async def _chat(self, request: Request, body: bytes) -> Response:
        return await self._generate(request, body, chat=True)

    async def _completion(self, request: Request, body: bytes) -> Response:
        return await self._generate(request, body, chat=False)

    async def _other(self, request: Request, body: bytes) -> Response:
        return await self._pass_on(request, body, "not a generation")

    async def _pass_on(self, request: Request, body: bytes, why: str) -> Response:
        """As it came, with a word on why."""
        self.metrics.requests.labels("passed").inc()
        path = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        headers = dict(request.headers)
        if self._door.api_key is not None:
            headers.pop("authorization", None)
        asking = partial(self._upstream.passed_on, request.method, path, headers, body)
        status, told, content = await _unless_gone(request, asking)
        why = why.removesuffix(OR_FORCE)  # which is not for clients to do
        told[HEADER] = "".join(c if " " <= c <= "~" else "?" for c in f"passed on: {' '.join(why.split())[:300]}")
        return StreamingResponse(content, status_code=status, headers=told)

    async def _generate(self, request: Request, body: bytes, *, chat: bool) -> Response:
        told = self._told(body)
        asked = read_asked(told, chat=chat, temperature=self._policy.temperature)
        if isinstance(asked, str):
            return await self._pass_on(request, self._theirs(told, body, chat=chat), asked)
        if self._is_for_another(told):
            why = f"it asks for {told['model']}, and {self._upstream.engine.served_as} is what is halted here"
            return await self._pass_on(request, self._theirs(told, body, chat=chat), why)
        changed = await self._upstream.changed()
        if changed is not None:
            return await self._pass_on(request, self._theirs(told, body, chat=chat), changed)
        prompt, thinking = await to_thread.run_sync(self._planner.read, asked)
        try:
            course = self._planner.course(asked, prompt, thinking)
        except StateError as error:
            _LOG.warning("passed on", extra={"error": str(error)})
            why = "the autopilot's state cannot be used; the log says why"
            return await self._pass_on(request, self._theirs(told, body, chat=chat), why)
        except ValueError as error:
            if isinstance(error, BadRequestError):
                raise
            # Names alone: what differs may be a client's words, which stay out of a log.
            _LOG.info("passed on", extra={"differs": list(getattr(error, "differs", ()))})
            # A promise that does not hold here, or no signals.
            return await self._pass_on(request, self._theirs(told, body, chat=chat), str(error))
        second = None if self._second is None else partial(self._planner.on_second, asked)
        generation = Generation(self._upstream, course, prompt, asked.decoding, asked.seed, second)
        try:
            self._places.acquire_on_behalf_of_nowait(generation)
        except WouldBlock:
            generation.leave()
            return failure(429, f"{self._policy.limits.open} requests are open already", "rate_limit_error")
        engine = self._upstream.engine
        answer = Answer(asked, engine.served_as, thinking)
        self.metrics.requests.labels("controlled").inc()
        self.metrics.open.inc()
        headers = {HEADER: f"controlled: {course.method}"}
        texts = self._in_time(generation)

        async def leave() -> None:
            await texts.aclose()
            self._leave(generation)

        try:
            first = await anext(texts, "")  # an upstream that is not there is an error, not the beginning of a stream
            if asked.stream:
                events = self._events(asked, generation, answer, first, texts)
                return _Owned(leave, events, media_type="text/event-stream", headers=headers)
            self._feed(answer, generation, first)
            async for text in texts:
                self._feed(answer, generation, text)
                if await request.is_disconnected():
                    raise ClientDisconnect
            self._count(generation)
            whole = JSONResponse(answer.whole(generation), headers=headers)
        except BaseException:
            await leave()
            raise
        await leave()
        return whole

    async def _in_time(self, generation: Generation) -> AsyncGenerator[str, None]:
        """Its texts, as long as it takes no longer than it may."""
        until = time.monotonic() + self._policy.limits.seconds
        async with aclosing(generation.texts()) as texts:
            async for text in texts:
                if time.monotonic() > until:
                    raise ServerError(f"the generation took longer than {self._policy.limits.seconds:g} seconds")
                yield text

    async def _events(
        self, asked: Asked, generation: Generation, answer: Answer, first: str, texts: AsyncIterator[str]
    ) -> AsyncIterator[str]:
        """A stream of server-sent events."""
        try:
            for event in (*answer.begin(), *self._feed(answer, generation, first)):
                yield _sent(event)
            async for text in texts:
                for event in self._feed(answer, generation, text):
                    yield _sent(event)
                if asked.trace:
                    yield _sent(answer.told(generation.seen()))
            self._count(generation)
            for event in answer.end(generation):
                yield _sent(event)
        except ServerError as error:
            self._failed(error)
            yield _sent({"error": {"message": self._without_url(error), "type": "upstream_error"}})
        yield "data: [DONE]\n\n"

    def _feed(self, answer: Answer, generation: Generation, text: str) -> list[dict[str, Any]]:
        """What a client is sent of a text, and what reading, judging and wording it took counted."""
        began = time.perf_counter()
        events = answer.feed(text)
        self.metrics.own.observe(generation.took() + time.perf_counter() - began)
        return events

    def _leave(self, generation: Generation) -> None:
        try:
            generation.leave()
        finally:
            self._places.release_on_behalf_of(generation)
            self.metrics.open.dec()

    def _count(self, generation: Generation) -> None:
        outcome = generation.outcome
        self.metrics.reasons.labels(outcome.reason).inc()
        self.metrics.tokens.labels("answered").inc(generation.used)
        self.metrics.tokens.labels("probes").inc(outcome.probe_tokens)
        _LOG.info(
            "ended",
            extra={"method": generation.course.method, "reason": outcome.reason, "tokens": generation.used,
                   "probe_tokens": outcome.probe_tokens, "cap": generation.cap},
        )  # fmt: skip

    def _told(self, body: bytes) -> dict[str, Any]:
        """The body, read."""
        try:
            told = json.loads(body, parse_constant=_no_number)
        except (ValueError, RecursionError):
            raise BadRequestError("the body is not JSON") from None
        if not isinstance(told, dict):
            raise BadRequestError("the body must be a JSON object")
        try:
            json.dumps(told, ensure_ascii=False).encode()
        except UnicodeEncodeError:  # JSON may hold halves of characters, which no text has
            raise BadRequestError("a text holds half a character: it is not Unicode") from None
        return told

    def _is_for_another(self, told: dict[str, Any]) -> bool:
        """Whether a body asks for another model of the upstream than the one that is halted."""
        model = told.get("model")
        return isinstance(model, str) and self._upstream.engine.has_other(model)

    def _theirs(self, told: dict[str, Any], body: bytes, *, chat: bool) -> bytes:
        """What is passed on of a body: all but what is ours, with the cap that it names, in the style of all others."""
        usual = self._upstream.engine.template_options if chat and not self._is_for_another(told) else {}
        if "bitcal" not in told and not usual:
            return body
        theirs = {key: value for key, value in told.items() if key != "bitcal"} | capped(told)
        options = theirs.get("chat_template_kwargs") or {}
        if usual and isinstance(options, dict):
            theirs["chat_template_kwargs"] = {**usual, **options}
        return json.dumps(theirs).encode()


_T = TypeVar("_T")


async def _unless_gone(request: Request, work: Callable[[], Awaitable[_T]]) -> _T:
    """What comes of some work, which is given up where the client hangs up meanwhile."""
    done: list[_T] = []
    failed: list[ServerError] = []
    async with create_task_group() as tasks:

        async def listen() -> None:
            while (await request.receive())["type"] != "http.disconnect":
                pass
            tasks.cancel_scope.cancel()

        tasks.start_soon(listen)
        try:
            done.append(await work())
        except ServerError as error:  # not as one of a group
            failed.append(error)
        tasks.cancel_scope.cancel()
    if failed:
        raise failed[0]
    if not done:
        raise ClientDisconnect
    return done[0]


class _Owned(StreamingResponse):
    """A stream whose client may hang up at any time: what it holds is given back all the same."""

    def __init__(self, leave: Callable[[], Awaitable[None]], *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._leave = leave

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            with CancelScope(shield=True):
                await self._leave()


def _no_number(name: str) -> None:
    """Python reads NaN and Infinity, which are not JSON."""
    raise ValueError(name)


def _sent(event: dict[str, Any]) -> str:
    return f"data: {json.dumps(event, ensure_ascii=False)}\n\n"
