"""A connection to a server: what it says of itself, and streams that end on the server when they are left.

What servers speak is in `dialects`: each of them turns a prompt, and what has been written after it, into what its
server continues, and what comes into pieces with the log-probabilities of the likeliest tokens.
"""

from __future__ import annotations

import json
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import SplitResult, urlsplit

import httpx2

from bitcal_tts.engines.base import Decoding, EngineError
from bitcal_tts.halting.checks import did_you_mean

PATIENCE = 600.0
"""Seconds without a byte after which a server counts as hanging."""
_AT_ONCE = 30.0  # seconds for what a server need not compute
_CONNECTING = 10.0
UNKNOWN_ID = -1
"""In place of a token's id where a server tells texts only."""
_EVENT_BYTES = 1 << 22
_NAMED = 12  # models of a server that has many
_VERSION = re.compile(r"/v1(?:/|$)")


class ServerError(EngineError):
    """A server that cannot be reached, or does not keep to its API."""


@dataclass(frozen=True)
class About:
    """What a server reports of itself; None is what it does not tell.

    Attributes:
        engine: Its kind and version.
        model: What it calls the model.
        path: Where the model's file lies on the server's machine.
        template: The chat template.
        positions: Of a prompt and what is written after it.
        vocabulary: How many tokens there are.
        slots: Requests that it decodes at once.
        quantization: As it names it.
        others: Models besides this one, which are another's business; they may come and go.
    """

    engine: str
    model: str
    path: str | None = None
    template: str | None = None
    positions: int | None = None
    vocabulary: int | None = None
    slots: int | None = None
    quantization: str | None = None
    others: tuple[str, ...] = field(default=(), compare=False)

    def has_other(self, name: str) -> bool:
        """Whether the server has several models, and a name is not this one's."""
        return bool(self.others) and name not in _names_of(self.model)


@dataclass(frozen=True)
class Prompt:
    """A conversation that a model is to go on with.

    Attributes:
        messages: What was said.
        options: Of the chat template.
        ids: As the model reads it; None where the server does not tell.
        tokens: How many, counted or estimated.
    """

    messages: tuple[dict[str, str], ...]
    options: dict[str, Any]
    ids: tuple[int, ...] | None
    tokens: int


class Standing(NamedTuple):
    """What a model goes on with: a prompt, and what has been written after it, as tokens and as text."""

    prompt: Prompt
    ids: Sequence[int]
    text: str


class Piece(NamedTuple):
    """What came in one go: mostly one token, several where they end inside a character.

    Attributes:
        text: Its text.
        ids: Its tokens, each `UNKNOWN_ID` where the server does not tell them.
        logprob: Of its first token, or None.
        likeliest: Log-probabilities of the likeliest tokens in its place.
    """

    text: str
    ids: tuple[int, ...]
    logprob: float | None
    likeliest: tuple[float, ...]


def _read_url(url: str) -> SplitResult:
    """The parts of a server's URL; http where it names no scheme."""
    try:
        whole = url if "//" in url else f"http://{url}"
        parts = urlsplit(whole)
        httpx2.URL(whole)
        named = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except (ValueError, httpx2.InvalidURL):  # no name of a host, a port that is no number or too large a one
        named = False
    if not named or any(char.isspace() for char in url):
        raise ServerError(f"a server is named by a URL such as http://127.0.0.1:8080, got {url!r}")
    return parts


class Wire(ABC):
    """A connection to a server.

    Args:
        url: Where it is; what comes from /v1 on is left out.
        model: Which of its models, where it has several.
        api_key: Sent as a bearer token.
        patience: Seconds without a byte after which it counts as hanging.
    """

    most_logprobs: int = 20
    """How many of the likeliest tokens the server tells at most, unless it was started otherwise."""

    def __init__(
        self, url: str, *, model: str | None = None, api_key: str | None = None, patience: float = PATIENCE
    ) -> None:
        parts = _read_url(url)
        self._asked = model
        self.url = f"{parts.scheme}://{parts.netloc}{_VERSION.split(parts.path)[0].rstrip('/')}"
        self.is_local = parts.hostname in ("127.0.0.1", "localhost", "::1")
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=32)
        self.patience = patience
        self.heard = time.monotonic()
        """When the server has last sent something."""
        timeout = httpx2.Timeout(patience, connect=_CONNECTING)
        # No proxies and no other settings of the environment: the server is the one that was named.
        self._client = httpx2.Client(
            base_url=self.url, headers=headers, timeout=timeout, limits=limits, trust_env=False
        )

    def close(self) -> None:
        """Give the connections back."""
        self._client.close()

    @abstractmethod
    def about(self) -> About:
        """What the server reports of itself."""

    @abstractmethod
    def prompt(self, messages: Sequence[dict[str, str]], options: dict[str, Any]) -> Prompt:
        """A conversation that the model is to go on with; `options` are the chat template's."""

    @abstractmethod
    def encode(self, text: str) -> list[int]:
        """Token ids of a part of a response; where they are not told, as many unknown ones as it is taken to have."""

    @abstractmethod
    def rendered(self, messages: Sequence[dict[str, str]], options: dict[str, Any]) -> str | None:
        """The prompt as text, or None where the server does not tell."""

    @abstractmethod
    def text_prompt(self, text: str) -> Prompt:
        """A text that the model is to go on with as it is."""

    @abstractmethod
    def request(
        self, standing: Standing, limit: int, top: int, decoding: Decoding, seed: int
    ) -> tuple[str, dict[str, Any]]:
        """Where to post what."""

    @abstractmethod
    def read(self, event: dict[str, Any]) -> Iterator[Piece]:
        """What an event brings."""

    def ended(self, event: dict[str, Any]) -> bool:
        """Whether the event says that the last token, without a text, ended the sequence: it is not counted."""
        return False

    @contextmanager
    def stream(
        self, standing: Standing, *, limit: int, top: int, decoding: Decoding, seed: int
    ) -> Iterator[Iterator[Piece]]:
        """Let the model go on; leaving ends it on the server too.

        Args:
            standing: What stands already.
            limit: Most new tokens.
            top: How many of the likeliest tokens to ask for.
            decoding: How tokens are chosen.
            seed: Of this request.
        """
        path, body = self.request(standing, limit, top, decoding, seed)
        try:
            with ExitStack() as opened:
                answer = _twice(lambda: opened.enter_context(self._client.stream("POST", path, json=body)))
                if answer.status_code != 200:
                    answer.read()
                    raise ServerError(f"{self.url}{path} answers {answer.status_code}: {_reason(answer)}")
                yield self._pieces(answer)
        except httpx2.TimeoutException:
            raise ServerError(
                f"{self.url} does not answer any more: nothing came for {self.patience:g} seconds"
            ) from None
        except httpx2.HTTPError as error:
            raise ServerError(f"{self.url} is gone: {type(error).__name__}: {error}") from None

    def _chosen(self, models: Sequence[str]) -> str:
        """Of the models that the server has the one that was asked for, or its only one."""
        asked, several = self._asked, len(models) > 1
        listed = ", ".join(models[:_NAMED]) + (f" and {len(models) - _NAMED} more" if len(models) > _NAMED else "")
        if asked is None:
            if several:
                raise ServerError(f"{self.url} has several models, {listed}: say which with --model")
            return next(iter(models), "")
        found = next((name for name in models if asked in _names_of(name)), None)
        if found is None and several:
            raise ServerError(f"{self.url} has no model {asked!r}{did_you_mean(asked, models)}, only {listed}")
        if found is None:
            raise ServerError(f"the server has {listed!r}, not {asked!r}: name that with --model, or leave it out")
        return found

    def _pieces(self, answer: Any) -> Iterator[Piece]:
        pieces = Pieces(self)
        for line in answer.iter_lines():
            self.heard = time.monotonic()
            yield from pieces.take(line)
        yield from pieces.rest()

    def _get(self, path: str) -> Any:
        return self._answer("GET", path, None, patience=min(self.patience, _AT_ONCE))

    def _post(self, path: str, body: dict[str, Any]) -> Any:
        return self._answer("POST", path, body, patience=self.patience)

    def _answer(self, method: str, path: str, body: dict[str, Any] | None, *, patience: float) -> Any:
        timeout = httpx2.Timeout(patience, connect=_CONNECTING)
        try:
            answer = _twice(lambda: self._client.request(method, path, json=body, timeout=timeout))
        except httpx2.TimeoutException:
            raise ServerError(f"{self.url} does not answer: nothing came for {patience:g} seconds") from None
        except httpx2.HTTPError as error:
            raise ServerError(f"no server at {self.url}: {error}") from None
        self.heard = time.monotonic()
        if answer.status_code != 200:
            raise ServerError(f"{self.url}{path} answers {answer.status_code}: {_reason(answer)}")
        try:
            told = answer.json()
        except (ValueError, RecursionError):
            raise ServerError(f"{self.url}{path} answers what is no JSON: {answer.text[:80]!r}") from None
        if not isinstance(told, dict):
            raise ServerError(f"{self.url}{path} answers what is no object: {answer.text[:80]!r}")
        return told


class Pieces:
    """The lines of a stream as pieces.

    A token without text waits for the next: it may be the one that ends the sequence, which is not counted.
    """

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._held: Piece | None = None
        self.over = False
        """Whether the stream has said that it ends."""

    def take(self, line: str) -> Iterator[Piece]:
        """What a line brings."""
        event = self._event(line)
        if event is None:
            return
        try:
            pieces, ended = list(self._wire.read(event)), self._wire.ended(event)
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            raise ServerError(f"{self._wire.url} sent an event that lacks {error}: {str(event)[:120]}") from None
        for piece in pieces:
            yield from self.rest()
            if piece.text:
                yield piece
            else:
                self._held = piece
        if ended:
            self.over, self._held = True, None

    def rest(self) -> Iterator[Piece]:
        """What was held back, once it is known not to be the end."""
        held, self._held = self._held, None
        if held is not None:
            yield held

    def _event(self, line: str) -> dict[str, Any] | None:
        url = self._wire.url
        if not line.startswith("data:"):
            if line.startswith("error:"):
                raise ServerError(f"{url} reports {line[6:].strip()[:200]}")
            return None
        data = line[5:].strip()
        if data == "[DONE]":
            return None
        if len(data) > _EVENT_BYTES:
            raise ServerError(f"{url} sent an event of {len(data):,} bytes")
        try:
            event = json.loads(data)
        except ValueError:
            raise ServerError(f"{url} sent what is no JSON: {data[:80]!r}") from None
        if not isinstance(event, dict) or "error" in event:
            told = event.get("error", event) if isinstance(event, dict) else event
            raise ServerError(f"{url} reports {str(told)[:200]}")
        return event


def _names_of(model: str) -> frozenset[str]:
    """By what a model is asked for: a file without its folder and ending, an Ollama model without its usual tag."""
    name = Path(model).name
    return frozenset({model, name, name.removesuffix(".gguf"), model.removesuffix(":latest")})


def _twice(send: Callable[[], Any]) -> Any:
    """Send again where the server has just closed a connection that was kept: nothing of it was answered."""
    try:
        return send()
    except httpx2.RemoteProtocolError:
        return send()


def _reason(answer: Any) -> str:
    """What a server gives as its reason, in one line."""
    try:
        told = answer.json()
        told = told.get("error", told) if isinstance(told, dict) else told
        told = told.get("message", told) if isinstance(told, dict) else told
    except ValueError:
        told = answer.text
    return " ".join(str(told).split())[:300] or "nothing"


def finite(value: Any) -> float:
    """A log-probability; servers write minus infinity as a large negative number, or as null."""
    return max(-1e4, float(value)) if value is not None else -1e4
