"""What servers speak: llama.cpp's own API, vLLM's, and the chat completions that all of them share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any
from urllib.parse import quote

from bitcal_tts.engines.base import Decoding
from bitcal_tts.engines.wire import (
    PATIENCE,
    UNKNOWN_ID,
    About,
    Piece,
    Prompt,
    ServerError,
    Standing,
    Wire,
    finite,
)
from bitcal_tts.halting.counting import approximate


class _Tokenizing(Wire):
    """A server that tells its tokens: what is continued is what was written."""

    def text_prompt(self, text: str) -> Prompt:
        """Split by the server."""
        ids = tuple(self._tokens(text, add_special=True))
        return Prompt((), {}, ids, len(ids))

    def encode(self, text: str) -> list[int]:
        """By the server's tokenizer."""
        return self._tokens(text, add_special=False) if text else []

    @abstractmethod
    def _tokens(self, text: str, *, add_special: bool) -> list[int]:
        """Token ids of a text, with what a prompt begins with where that is asked for."""

    def _part(self, told: dict[str, Any], key: str) -> Any:
        if key not in told:
            raise ServerError(f"{self.url} answers without {key}: it is not the server that it seemed")
        return told[key]

    def _ids(self, told: dict[str, Any]) -> list[int]:
        tokens = self._part(told, "tokens")
        if not isinstance(tokens, list) or not all(isinstance(token, int) for token in tokens):
            raise ServerError(
                f"{self.url} answers with tokens that are no numbers: it is not the server that it seemed"
            )
        return tokens


class LlamaCpp(_Tokenizing):
    """llama.cpp's own API: prompts and continuations as tokens."""

    most_logprobs = 1 << 20
    _routed: Mapping[str, str] = MappingProxyType({})

    def about(self) -> About:
        """From /props and /v1/models; a router of several models is told which one is meant, every time."""
        props, models = self._get("/props"), _models(self._get("/v1/models"))
        if len(models) > 1 or props.get("role") == "router":
            model = self._chosen(list(models))
            self._routed = {"model": model}
            props = self._get(f"/props?model={quote(model, safe='')}")
        else:
            model = self._chosen([str(props.get("model_alias") or next(iter(models), ""))])
        meta = _dig(models, model, "meta") or _dig(list(models.values()), 0, "meta") or {}
        return About(
            engine=f"llama.cpp server {props.get('build_info') or ''}".strip(),
            model=model,
            path=props.get("model_path"),
            template=props.get("chat_template"),
            positions=_dig(props, "default_generation_settings", "n_ctx"),
            vocabulary=meta.get("n_vocab"),
            slots=props.get("total_slots"),
            quantization=props.get("model_ftype"),
            others=tuple(name for name in models if self._routed and name != model),
        )

    def rendered(self, messages: Sequence[dict[str, str]], options: dict[str, Any]) -> str | None:
        """Through the server's chat template."""
        told = self._post(
            "/apply-template", {"messages": list(messages), "chat_template_kwargs": options, **self._routed}
        )
        return str(self._part(told, "prompt"))

    def prompt(self, messages: Sequence[dict[str, str]], options: dict[str, Any]) -> Prompt:
        """Rendered and split by the server."""
        ids = tuple(self._tokens(self.rendered(messages, options) or "", add_special=True))
        return Prompt(tuple(messages), options, ids, len(ids))

    def _tokens(self, text: str, *, add_special: bool) -> list[int]:
        body = {"content": text, "add_special": add_special, "parse_special": True, **self._routed}
        return self._ids(self._post("/tokenize", body))

    def request(
        self, standing: Standing, limit: int, top: int, decoding: Decoding, seed: int
    ) -> tuple[str, dict[str, Any]]:
        """To /completion, which takes tokens."""
        return "/completion", {
            **self._routed,
            "prompt": [*(standing.prompt.ids or ()), *standing.ids],
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

    def ended(self, event: dict[str, Any]) -> bool:
        """Where it says that it stopped at an end."""
        return event.get("stop_type") == "eos"

    def read(self, event: dict[str, Any]) -> Iterator[Piece]:
        """A piece with the ids of its tokens."""
        ids = tuple(int(token) for token in event.get("tokens") or ())
        if not ids:
            return
        known = event.get("completion_probabilities") or [{}]
        likeliest = tuple(finite(one["logprob"]) for one in known[0].get("top_logprobs") or ())
        logprob = known[0].get("logprob")
        yield Piece(str(event["content"]), ids, None if logprob is None else finite(logprob), likeliest)


class Vllm(_Tokenizing):
    """vLLM: its tokenizer over HTTP, and completions of tokens."""

    _model = ""

    def about(self) -> About:
        """From /version and /v1/models."""
        version, models = self._get("/version"), _models(self._get("/v1/models"))
        # The first is what it was started with; behind it come its other names, and adapters.
        self._model = self._chosen(list(models)) if self._asked is not None else next(iter(models), "")
        root = _dig(models, self._model, "root")
        return About(
            engine=f"vLLM server {version.get('version', '')}".strip(),
            model=self._model,
            path=root,
            positions=_dig(models, self._model, "max_model_len"),
            others=tuple(name for name, told in models.items() if _dig(told, "root") != root),
        )

    def rendered(self, messages: Sequence[dict[str, str]], options: dict[str, Any]) -> str | None:
        """As its tokenizer turns the tokens back."""
        ids = self.prompt(messages, options).ids
        told = self._post("/detokenize", {"model": self._model, "tokens": list(ids or ())})
        return str(self._part(told, "prompt"))

    def prompt(self, messages: Sequence[dict[str, str]], options: dict[str, Any]) -> Prompt:
        """Rendered and split by the server."""
        body = {
            "model": self._model,
            "messages": list(messages),
            "add_generation_prompt": True,
            "chat_template_kwargs": options,
        }
        ids = tuple(self._ids(self._post("/tokenize", body)))
        return Prompt(tuple(messages), options, ids, len(ids))

    def _tokens(self, text: str, *, add_special: bool) -> list[int]:
        body = {"model": self._model, "prompt": text, "add_special_tokens": add_special}
        return self._ids(self._post("/tokenize", body))

    def request(
        self, standing: Standing, limit: int, top: int, decoding: Decoding, seed: int
    ) -> tuple[str, dict[str, Any]]:
        """To /v1/completions, which takes tokens."""
        sampled = {"top_k": decoding.top_k or -1, "min_p": decoding.min_p, "top_p": decoding.top_p, "seed": seed}
        return "/v1/completions", {
            "model": self._model,
            "prompt": [*(standing.prompt.ids or ()), *standing.ids],
            "max_tokens": limit,
            "logprobs": top,
            "stream": True,
            "return_token_ids": True,
            "skip_special_tokens": False,
            "temperature": decoding.temperature,
            **(sampled if decoding.temperature > 0 else {}),
        }

    def read(self, event: dict[str, Any]) -> Iterator[Piece]:
        """A piece with the ids of its tokens."""
        choice = _choice(event)
        ids = tuple(int(token) for token in choice.get("token_ids") or ())
        if choice.get("finish_reason") == "stop" and choice.get("stop_reason") is None:
            ids = ids[:-1]  # the token that ends a sequence comes with its text, in the event that says so
        if not ids:
            return
        known = choice.get("logprobs") or {}
        own = (known.get("token_logprobs") or [None])[0]
        top = (known.get("top_logprobs") or [{}])[0] or {}
        likeliest = tuple(sorted((finite(value) for value in top.values()), reverse=True))
        yield Piece(str(choice.get("text") or ""), ids, None if own is None else finite(own), likeliest)


class Chat(Wire):
    """The chat completions that all servers share: Ollama, SGLang and whatever else speaks them.

    Tokens have no ids here, only texts, and what has been written is continued as a partial message of the assistant:
    whether the server does that is tried out before it is relied on.
    """

    _model = ""
    _owner = ""

    def about(self) -> About:
        """From /v1/models."""
        models = _models(self._get("/v1/models"))
        if not models:
            raise ServerError(f"{self.url}/v1/models names no model")
        self._model = self._chosen(list(models))
        self._owner = str(_dig(models, self._model, "owned_by") or "")
        others = tuple(name for name in models if name != self._model)
        about = About(engine=f"OpenAI-compatible server {self._owner}".strip(), model=self._model, others=others)
        self._check_that_it_continues()
        return about

    def _check_that_it_continues(self) -> None:
        """What it goes on with after half of its own greedy text must be the other half."""
        prompt = self.prompt([{"role": "user", "content": "Count from 1 to 20: 1, 2, 3"}], {})

        def greedy(text: str, limit: int) -> list[Piece]:
            standing = Standing(prompt, (), text)
            with self.stream(standing, limit=limit, top=2, decoding=Decoding(), seed=0) as pieces:
                return list(pieces)

        whole = greedy("", 12)
        half = "".join(piece.text for piece in whole[:6])
        rest = "".join(piece.text for piece in whole[6:])
        if rest and "".join(piece.text for piece in greedy(half, len(whole) - 6)) != rest:
            raise ServerError(
                f"{self.url} does not go on with a partial message of the assistant: nothing can be landed there"
            )

    def rendered(self, messages: Sequence[dict[str, str]], options: dict[str, Any]) -> str | None:
        """Not told."""
        return None

    def prompt(self, messages: Sequence[dict[str, str]], options: dict[str, Any]) -> Prompt:
        """As it is; its length is an estimate."""
        said = "\n".join(message["content"] for message in messages)
        return Prompt(tuple(messages), options, None, len(approximate(said)))

    def text_prompt(self, text: str) -> Prompt:
        """Chat completions have none."""
        raise ServerError("chat completions take messages, not a text to go on with")

    def encode(self, text: str) -> list[int]:
        """As many unknown tokens as pieces."""
        return [UNKNOWN_ID] * len(approximate(text))

    def request(
        self, standing: Standing, limit: int, top: int, decoding: Decoding, seed: int
    ) -> tuple[str, dict[str, Any]]:
        """To /v1/chat/completions, with what has been written as a partial message."""
        sampled = {"top_p": decoding.top_p, "seed": seed, "top_k": decoding.top_k or -1, "min_p": decoding.min_p}
        begun = [{"role": "assistant", "content": standing.text}] if standing.text else []
        # llama.cpp and Ollama go on with a partial message of themselves; vLLM and SGLang are told to.
        told: dict[str, Any] = {"reasoning_format": "none"} if self._owner == "llamacpp" else {}
        if begun and self._owner not in ("llamacpp", "library"):
            told = {"continue_final_message": True, "add_generation_prompt": False}
        return "/v1/chat/completions", {
            "model": self._model,
            "messages": [*standing.prompt.messages, *begun],
            "max_tokens": limit,
            "logprobs": True,
            "top_logprobs": top,
            "stream": True,
            "temperature": decoding.temperature,
            **({"chat_template_kwargs": standing.prompt.options} if standing.prompt.options else {}),
            **(sampled if decoding.temperature > 0 else {}),
            **told,
        }

    def ended(self, event: dict[str, Any]) -> bool:
        """Where it says that it stopped."""
        return _choice(event).get("finish_reason") == "stop"

    def read(self, event: dict[str, Any]) -> Iterator[Piece]:
        """A piece a token, without ids."""
        choice = _choice(event)
        delta = choice.get("delta") or {}
        if delta.get("reasoning_content") or delta.get("reasoning"):
            raise ServerError(
                f"{self.url} takes the thinking out of the text, so that nothing inside it can be continued: start it "
                "without a reasoning parser"
            )
        text, told = str(delta.get("content") or ""), (choice.get("logprobs") or {}).get("content") or []
        if not told:
            if text:
                yield Piece(text, (UNKNOWN_ID,), None, ())
            return
        each = [str(one["token"]) for one in told]
        if "".join(each) != text:  # tokens inside a character
            each = [text, *[""] * (len(told) - 1)]
        for piece, one in zip(each, told, strict=True):
            likeliest = tuple(finite(other["logprob"]) for other in one.get("top_logprobs") or ())
            yield Piece(piece, (UNKNOWN_ID,), finite(one["logprob"]), likeliest)


DIALECTS: dict[str, type[Wire]] = {"llamacpp": LlamaCpp, "vllm": Vllm, "chat": Chat}


def connect(
    url: str,
    *,
    model: str | None = None,
    api: str | None = None,
    api_key: str | None = None,
    patience: float = PATIENCE,
) -> tuple[Wire, About]:
    """The wire that a server speaks: the one that is named, or found by asking the server."""
    if api is not None and api not in DIALECTS:
        raise ServerError(f"there is no API {api!r}; known: {', '.join(DIALECTS)}")
    missing: ServerError | None = None
    for kind in DIALECTS.values() if api is None else [DIALECTS[api]]:
        wire = kind(url, model=model, api_key=api_key, patience=patience)
        try:
            return wire, wire.about()
        except ServerError as error:
            wire.close()
            missing = error
            if " answers 404" not in str(error):
                raise
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            wire.close()
            raise ServerError(f"{url} does not answer as it should: {type(error).__name__}: {error}") from None
    known = "llama.cpp, vLLM and OpenAI-compatible servers have" if api is None else f"the API {api} has"
    raise ServerError(f"{url} does not have what {known}: {missing}")


def _models(told: dict[str, Any]) -> dict[str, Any]:
    """What /v1/models says of each model, by its name."""
    listed = told.get("data")
    return {str(_dig(one, "id") or ""): one for one in (listed if isinstance(listed, list) else ())}


def _choice(event: dict[str, Any]) -> dict[str, Any]:
    """What an event has of the one answer that was asked for."""
    choice: dict[str, Any] = event["choices"][0] if event.get("choices") else {}
    return choice


def _dig(value: Any, *path: str | int) -> Any:
    """A part of a nested answer, or None where it is not there."""
    for key in path:
        try:
            value = value[key]
        except (KeyError, IndexError, TypeError):
            return None
    return value
