"""What servers speak: llama.cpp's own API, vLLM's, and the chat completions that all of them share.

A wire knows one dialect. It tells what the server says of itself, turns a prompt into what the server continues, and
streams what comes: pieces with the log-probabilities of the likeliest tokens. Closing a stream frees the server's slot.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import httpx2

from bitcal_tts.engines.base import Decoding, EngineError

PATIENCE = 600.0
"""Seconds without a byte after which a server counts as hanging."""
_EVENT_BYTES = 1 << 22


class ServerError(EngineError):
    """A server that cannot be reached, or does not keep to its API."""


@dataclass(frozen=True)
class About:
    """What a server reports of itself; None is what it does not tell.

    Attributes:
        engine: Its kind and version.
        model: What it calls its model.
        path: Where the model's file lies on the server's machine.
        template: The chat template.
        positions: Of a prompt and what is written after it.
        vocabulary: How many tokens there are.
        slots: Requests that it decodes at once.
        quantization: As it names it.
    """

    engine: str
    model: str
    path: str | None = None
    template: str | None = None
    positions: int | None = None
    vocabulary: int | None = None
    slots: int | None = None
    quantization: str | None = None


class Piece(NamedTuple):
    """What came in one go: mostly one token, several where they end inside a character.

    Attributes:
        text: Its text.
        ids: Its tokens; empty where the server does not tell them.
        logprob: Of its first token, or None.
        likeliest: Log-probabilities of the likeliest tokens in its place.
    """

    text: str
    ids: tuple[int, ...]
    logprob: float | None
    likeliest: tuple[float, ...]


class Wire(ABC):
    """A connection to a server.

    Args:
        url: Where it is; a path such as /v1 is left out.
        api_key: Sent as a bearer token.
        patience: Seconds without a byte after which it counts as hanging.
    """

    most_logprobs: int = 20
    """How many of the likeliest tokens the server tells at most, unless it was started otherwise."""

    def __init__(self, url: str, *, api_key: str | None = None, patience: float = PATIENCE) -> None:
        parts = urlsplit(url if "//" in url else f"http://{url}")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ServerError(f"a server is named by a URL such as http://127.0.0.1:8080, got {url!r}")
        self.url = f"{parts.scheme}://{parts.netloc}"
        self.is_local = parts.hostname in ("127.0.0.1", "localhost", "::1")
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=32)
        timeout = httpx2.Timeout(patience, connect=10.0)
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
    def prompt(self, messages: Sequence[dict[str, str]], options: dict[str, Any]) -> tuple[int, ...]:
        """Token ids of a conversation that the model is to go on with; `options` are the chat template's."""

    @abstractmethod
    def encode(self, text: str) -> list[int]:
        """Token ids of a part of a response."""

    @abstractmethod
    def rendered(self, messages: Sequence[dict[str, str]], options: dict[str, Any]) -> str | None:
        """The prompt as text, or None where the server does not tell."""

    @abstractmethod
    def _request(
        self, ids: list[int], limit: int, top: int, decoding: Decoding, seed: int
    ) -> tuple[str, dict[str, Any]]:
        """Where to post what."""

    @abstractmethod
    def _piece(self, event: dict[str, Any]) -> Piece | None:
        """What an event brings; None where it brings no token."""

    @contextmanager
    def stream(
        self, ids: Sequence[int], *, limit: int, top: int, decoding: Decoding, seed: int
    ) -> Iterator[Iterator[Piece]]:
        """Let the model go on; leaving ends it on the server too.

        Args:
            ids: What stands already: a prompt, and what has been written after it.
            limit: Most new tokens.
            top: How many of the likeliest tokens to ask for.
            decoding: How tokens are chosen.
            seed: Of this request.
        """
        path, body = self._request(list(ids), limit, top, decoding, seed)
        try:
            with ExitStack() as opened:
                answer = _twice(lambda: opened.enter_context(self._client.stream("POST", path, json=body)))
                if answer.status_code != 200:
                    answer.read()
                    raise ServerError(f"{self.url}{path} answers {answer.status_code}: {_reason(answer)}")
                yield self._pieces(answer)
        except httpx2.TimeoutException:
            raise ServerError(f"{self.url} does not answer any more: nothing came for a while") from None
        except httpx2.HTTPError as error:
            raise ServerError(f"{self.url} is gone: {type(error).__name__}: {error}") from None

    def _pieces(self, answer: Any) -> Iterator[Piece]:
        held: Piece | None = None  # a token without text, which may be the one that ends the sequence
        for event in self._events(answer):
            try:
                piece, ended = self._piece(event), self._ended(event)
            except (KeyError, IndexError, TypeError, ValueError) as error:
                raise ServerError(f"{self.url} sent an event that lacks {error}: {str(event)[:120]}") from None
            if held is not None and not ended:
                yield held
            held = piece if piece is not None and not piece.text else None
            if piece is not None and held is None:
                yield piece

    def _ended(self, event: dict[str, Any]) -> bool:
        """Whether the event says that the token before it ended the sequence."""
        return False

    def _events(self, answer: Any) -> Iterator[dict[str, Any]]:
        for line in answer.iter_lines():
            if not line.startswith("data:"):
                if line.startswith("error:"):
                    raise ServerError(f"{self.url} reports {line[6:].strip()[:200]}")
                continue
            data = line[5:].strip()
            if data == "[DONE]":
                return
            if len(data) > _EVENT_BYTES:
                raise ServerError(f"{self.url} sent an event of {len(data):,} bytes")
            try:
                event = json.loads(data)
            except ValueError:
                raise ServerError(f"{self.url} sent what is no JSON: {data[:80]!r}") from None
            if not isinstance(event, dict) or "error" in event:
                told = event.get("error", event) if isinstance(event, dict) else event
                raise ServerError(f"{self.url} reports {str(told)[:200]}")
            yield event

    def _get(self, path: str) -> Any:
        return self._answer("GET", path, None)

    def _post(self, path: str, body: dict[str, Any]) -> Any:
        return self._answer("POST", path, body)

    def _answer(self, method: str, path: str, body: dict[str, Any] | None) -> Any:
        try:
            answer = _twice(lambda: self._client.request(method, path, json=body))
        except httpx2.TimeoutException:
            raise ServerError(f"{self.url} does not answer") from None
        except httpx2.HTTPError as error:
            raise ServerError(f"no server at {self.url}: {error}") from None
        if answer.status_code != 200:
            raise ServerError(f"{self.url}{path} answers {answer.status_code}: {_reason(answer)}")
        try:
            return answer.json()
        except ValueError:
            raise ServerError(f"{self.url}{path} answers what is no JSON: {answer.text[:80]!r}") from None


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


class LlamaCpp(Wire):
    """llama.cpp's own API: prompts and continuations as tokens, so that what is continued is what was written."""

    most_logprobs = 1 << 20

    def about(self) -> About:
        """From /props and /v1/models."""
        props, models = self._get("/props"), self._get("/v1/models")
        meta = _dig(models, "data", 0, "meta") or {}
        return About(
            engine=f"llama.cpp server {props.get('build_info') or ''}".strip(),
            model=str(props.get("model_alias") or _dig(models, "data", 0, "id") or ""),
            path=props.get("model_path"),
            template=props.get("chat_template"),
            positions=_dig(props, "default_generation_settings", "n_ctx"),
            vocabulary=meta.get("n_vocab"),
            slots=props.get("total_slots"),
            quantization=props.get("model_ftype"),
        )

    def rendered(self, messages: Sequence[dict[str, str]], options: dict[str, Any]) -> str | None:
        """Through the server's chat template."""
        return str(
            self._post("/apply-template", {"messages": list(messages), "chat_template_kwargs": options})["prompt"]
        )

    def prompt(self, messages: Sequence[dict[str, str]], options: dict[str, Any]) -> tuple[int, ...]:
        """Rendered and split by the server."""
        return tuple(self._tokens(self.rendered(messages, options) or "", add_special=True))

    def encode(self, text: str) -> list[int]:
        """By the server's tokenizer."""
        return self._tokens(text, add_special=False) if text else []

    def _tokens(self, text: str, *, add_special: bool) -> list[int]:
        body = {"content": text, "add_special": add_special, "parse_special": True}
        return [int(token) for token in self._post("/tokenize", body)["tokens"]]

    def _request(
        self, ids: list[int], limit: int, top: int, decoding: Decoding, seed: int
    ) -> tuple[str, dict[str, Any]]:
        return "/completion", {
            "prompt": ids,
            "n_predict": limit,
            "n_probs": top,
            "stream": True,
            "return_tokens": True,
            "cache_prompt": True,
            "seed": seed,
            # The temperature first, as everywhere here: top-p and min-p cut what it has shaped.
            "samplers": ["temperature", "top_k", "top_p", "min_p"],
            "temperature": decoding.temperature,
            "top_k": decoding.top_k,
            "top_p": decoding.top_p,
            "min_p": decoding.min_p,
        }

    def _ended(self, event: dict[str, Any]) -> bool:
        return event.get("stop_type") == "eos"

    def _piece(self, event: dict[str, Any]) -> Piece | None:
        ids = tuple(int(token) for token in event.get("tokens") or ())
        if not ids:
            return None
        known = event.get("completion_probabilities") or [{}]
        likeliest = tuple(_finite(one["logprob"]) for one in known[0].get("top_logprobs") or ())
        logprob = known[0].get("logprob")
        return Piece(str(event["content"]), ids, None if logprob is None else _finite(logprob), likeliest)


class Vllm(Wire):
    """vLLM: its tokenizer over HTTP, and completions of tokens."""

    _model = ""

    def about(self) -> About:
        """From /version and /v1/models."""
        version, models = self._get("/version"), self._get("/v1/models")
        self._model = str(_dig(models, "data", 0, "id") or "")
        return About(
            engine=f"vLLM server {version.get('version', '')}".strip(),
            model=self._model,
            path=_dig(models, "data", 0, "root"),
            positions=_dig(models, "data", 0, "max_model_len"),
        )

    def rendered(self, messages: Sequence[dict[str, str]], options: dict[str, Any]) -> str | None:
        """As its tokenizer turns the tokens back."""
        ids = self.prompt(messages, options)
        return str(self._post("/detokenize", {"model": self._model, "tokens": list(ids)})["prompt"])

    def prompt(self, messages: Sequence[dict[str, str]], options: dict[str, Any]) -> tuple[int, ...]:
        """Rendered and split by the server."""
        body = {
            "model": self._model,
            "messages": list(messages),
            "add_generation_prompt": True,
            "chat_template_kwargs": options,
        }
        return tuple(int(token) for token in self._post("/tokenize", body)["tokens"])

    def encode(self, text: str) -> list[int]:
        """By the server's tokenizer."""
        if not text:
            return []
        body = {"model": self._model, "prompt": text, "add_special_tokens": False}
        return [int(token) for token in self._post("/tokenize", body)["tokens"]]

    def _request(
        self, ids: list[int], limit: int, top: int, decoding: Decoding, seed: int
    ) -> tuple[str, dict[str, Any]]:
        sampled = {"top_k": decoding.top_k or -1, "min_p": decoding.min_p, "top_p": decoding.top_p, "seed": seed}
        return "/v1/completions", {
            "model": self._model,
            "prompt": ids,
            "max_tokens": limit,
            "logprobs": top,
            "stream": True,
            "return_token_ids": True,
            "skip_special_tokens": False,
            "temperature": decoding.temperature,
            **(sampled if decoding.temperature > 0 else {}),
        }

    def _piece(self, event: dict[str, Any]) -> Piece | None:
        choice = event["choices"][0] if event.get("choices") else {}
        ids = tuple(int(token) for token in choice.get("token_ids") or ())
        if choice.get("finish_reason") == "stop" and choice.get("stop_reason") is None:
            ids = ids[:-1]  # what ends a sequence is not counted
        if not ids:
            return None
        known = choice.get("logprobs") or {}
        own = (known.get("token_logprobs") or [None])[0]
        top = (known.get("top_logprobs") or [{}])[0] or {}
        likeliest = tuple(sorted((_finite(value) for value in top.values()), reverse=True))
        return Piece(str(choice.get("text") or ""), ids, None if own is None else _finite(own), likeliest)


def connect(url: str, *, api_key: str | None = None, patience: float = PATIENCE) -> tuple[Wire, About]:
    """The wire that a server speaks, found by asking it."""
    failure: ServerError | None = None
    for kind in (LlamaCpp, Vllm):
        wire = kind(url, api_key=api_key, patience=patience)
        try:
            return wire, wire.about()
        except ServerError as error:
            wire.close()
            if failure is None or " answers " in str(error):
                failure = error
            if str(error).startswith("no server"):
                break
    assert failure is not None
    if " answers 404" in str(failure):
        raise ServerError(f"{url} is neither a llama.cpp nor a vLLM server: it has no /props and no /version")
    raise failure


def _dig(value: Any, *path: str | int) -> Any:
    """A part of a nested answer, or None where it is not there."""
    for key in path:
        try:
            value = value[key]
        except (KeyError, IndexError, TypeError):
            return None
    return value


def _finite(value: Any) -> float:
    """A log-probability; servers write minus infinity as a large negative number, or as null."""
    return max(-1e4, float(value)) if value is not None else -1e4
