"""A model behind a server: streamed, halted by closing the stream, landed and probed by continuing the same text."""

from __future__ import annotations

import hashlib
import math
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Literal

from bitcal_tts.engines.base import (
    Completion,
    Decoding,
    EngineError,
    Fork,
    Place,
    Request,
    Score,
    Written,
    conversation,
    open_sessions,
)
from bitcal_tts.engines.dialects import connect
from bitcal_tts.engines.flight import Flight
from bitcal_tts.engines.gguf import gguf_facts
from bitcal_tts.engines.llama_server import OwnServer
from bitcal_tts.engines.served_thinking import ServedThinking
from bitcal_tts.engines.thinking import ThinkMarkers, style_of
from bitcal_tts.engines.together import together
from bitcal_tts.engines.wire import PATIENCE, About, Prompt, Standing, Wire
from bitcal_tts.halting.identity import Identity
from bitcal_tts.halting.signals import TOP, Signals, from_top

GREEDY = Decoding()
_CLOSELY = 512
_LARGEST = 1 << 18
"""Tokens of a vocabulary that is not told: the largest in use, so that what is missing is bounded from above."""


class HttpEngine:
    """A server's model as an engine.

    Args:
        url: Where the server is.
        model: Which of its models; where it has no such one, it is refused.
        bits: Its weight precision, where that cannot be read.
        top: How many of the likeliest tokens to ask for; all of the vocabulary makes the signals full.
        system: The system prompt of every request.
        template_options: Extra arguments of the chat template, such as `enable_thinking`.
        markers: How the model marks its thinking, where that cannot be found.
        api: What the server speaks, by its name in `DIALECTS`; by default it is asked.
        api_key: Sent as a bearer token.
        patience: Seconds without a byte after which the server counts as hanging.
        owned: The server, where it is this engine's own: it is stopped with it.
    """

    def __init__(
        self,
        url: str,
        *,
        model: str | None = None,
        bits: float | None = None,
        top: int = TOP,
        system: str | None = None,
        template_options: Mapping[str, Any] | None = None,
        markers: ThinkMarkers | Literal["found"] | None = "found",
        api: str | None = None,
        api_key: str | None = None,
        patience: float = PATIENCE,
        owned: OwnServer | None = None,
    ) -> None:
        if top < 2:
            raise EngineError(f"at least the 2 likeliest tokens are needed, got {top}")
        self._system = system
        self._options = dict(sorted((template_options or {}).items()))
        self._encoded = lru_cache(maxsize=4096)(lambda text: tuple(self._wire.encode(text)))
        self._prompts = lru_cache(maxsize=4096)(lambda text: self._wire.prompt(self._messages(text), self._options))
        with ExitStack() as opened:
            if owned is not None:
                opened.callback(owned.close)
            self._connect = partial(connect, url, model=model, api=api, api_key=api_key, patience=patience)
            self._wire, self._about = self._connect()
            opened.callback(self._wire.close)
            self._name = model or _stem(self._about.model)
            self._file = _readable(self._about, self._wire)
            self._facts = None if self._file is None else gguf_facts(self._file)
            self._bits = self._checked_bits(bits)
            known = self._about.vocabulary
            self.vocabulary = known or _LARGEST
            self._top = min(top, self.vocabulary)
            self.is_full = known is not None and self._top >= known
            self.max_positions = self._about.positions
            self._finder: ServedThinking | None = None
            if markers == "found":
                self._finder = ServedThinking(self._wire, self._about.template, self.encode, system)
                markers = self._finder.markers(self._options)
            self.thinking = markers
            self._opened = opened.pop_all()

    def __enter__(self) -> HttpEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the connections back; a server of its own ends."""
        self._opened.close()

    def changed(self) -> str | None:
        """In what the server is another than it was, in words; None where it is the same. For one that was away."""
        wire, about = self._connect()
        wire.close()
        facts = None if self._file is None else gguf_facts(self._file)
        if about == self._about and facts == self._facts:
            return None
        what = "another model" if about.model != self._about.model or about.path != self._about.path else "changed"
        return f"the upstream is not what it was when the sidecar was started ({what}): restart the sidecar"

    @property
    def url(self) -> str:
        """Where the server is."""
        return self._wire.url

    @property
    def wire(self) -> Wire:
        """What the server speaks."""
        return self._wire

    @property
    def served_as(self) -> str:
        """The name that the server has for its model."""
        return self._about.model or self._name

    def has_other(self, name: str) -> bool:
        """Whether a name is that of another model of the same server."""
        return self._about.has_other(name)

    @property
    def top(self) -> int:
        """How many of the likeliest tokens are asked for."""
        return self._top

    @property
    def template_options(self) -> dict[str, Any]:
        """Extra arguments of the chat template."""
        return self._options

    def thinking_with(self, options: Mapping[str, Any]) -> ThinkMarkers | None:
        """How the model marks its thinking where its template is told more than usual."""
        told = {**self._options, **options}
        return self.thinking if self._finder is None or told == self._options else self._finder.markers(told)

    def _checked_bits(self, asked: float | None) -> float:
        """Of the model's file, or as declared."""
        if self._facts is None:
            if asked is None:
                raise EngineError(
                    "the server does not tell the precision of its weights, and its model's file cannot be read from "
                    "here: say it with --bits"
                )
            return float(asked)
        read = self._facts
        if asked is not None and asked != read["bits"]:
            raise EngineError(f"the server's model has {read['bits']:g} bits ({read['scheme']}), not {asked:g}")
        return float(read["bits"])

    @property
    def bits(self) -> float:
        """Weight precision: of the model's file, or as declared."""
        return self._bits

    @property
    def style(self) -> str:
        """`thinking` or `instruct`, by the template as it is rendered."""
        return style_of(self.thinking)

    def signals(self, chunk_size: int) -> Signals:
        """What comes with every token: the likeliest, or all where so many were asked for."""
        return Signals("full" if self.is_full else "top", k=None if self.is_full else self._top, probes=True)

    def describe(self) -> dict[str, Any]:
        """What is being run: what the server reports, what its file tells, what was declared."""
        about = self._about
        template = None if about.template is None else hashlib.sha256(about.template.encode()).hexdigest()
        reported: dict[str, Any] = {
            "engine": about.engine,
            "model": self._name,
            # What a server multiplies in is its build's to decide, and no server tells.
            "compute_dtype": f"as {about.engine} decides",
            **({} if template is None else {"template_sha256": template}),
        }
        read = self._facts or {}
        declared = {} if read else {"bits": self.bits}
        if not read and about.quantization is not None:
            reported["scheme"] = about.quantization
        return {
            **reported,
            **read,
            **declared,
            "declared": sorted(declared),
            "reported": sorted(reported),
            "template_options": self._options,
            "style": self.style,
            "system": self._system,
            "thinking": list(self.thinking) if self.thinking else None,
            "repetition_penalty": 1.0,
        }

    def identity(self, decoding: Decoding) -> Identity:
        """What a promise is tied to, as far as server and file tell it."""
        return Identity.of({**self.describe(), "decoding": decoding.describe()})

    def too_long(self, prompts: Sequence[str], max_tokens: int) -> dict[int, int]:
        """Prompts that do not fit with their budget: which, and how many positions they would take."""
        if self.max_positions is None:
            return {}
        taken = (self.prompt(prompt).tokens + max_tokens for prompt in prompts)
        return {i: n for i, n in enumerate(taken) if n > self.max_positions}

    def decode(
        self,
        requests: Sequence[Request],
        decoding: Decoding | None = None,
        *,
        batch_size: int = 32,
        chunk_size: int = 16,
        keep_hidden: bool = False,
    ) -> Iterator[Completion]:
        """Decode all requests, `batch_size` streams at a time, yielding each as it ends.

        Args:
            requests: The prompts, each with the method that halts it and owns its budget.
            decoding: Greedy unless told otherwise.
            batch_size: Streams that are open at once, no more than the server says that it has slots.
            chunk_size: Of no consequence here: every token is looked at as it comes.
            keep_hidden: Refused: no server gives hidden states.
        """
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {batch_size}")
        if keep_hidden:
            raise EngineError("a server gives no hidden states: leave --hidden out")
        decoding = decoding or GREEDY
        sessions = open_sessions(
            requests,
            signals=self.signals(chunk_size),
            identity=self.identity(decoding),
            count_tokens=lambda text: len(self.encode(text)),
            prefix=_prefix,
        )
        stopped = threading.Event()

        def one(i: int) -> Completion:
            request = requests[i]
            prefix = _prefix(request)
            standing = Standing(self.prompt(request.prompt), self.encode(prefix), prefix)
            return Flight(self, request, sessions[i], standing, decoding, stopped).run()

        yield from together(one, len(requests), self.at_once(batch_size), stopped, self._wire)

    def at_once(self, asked: int) -> int:
        """Of so many streams, those that are open at once: one that waits for a slot looks like a server that hangs."""
        return min(asked, self._about.slots or asked)

    def probe(self, forks: Sequence[Fork], *, batch_size: int = 32) -> Iterator[list[Written]]:
        """Make the model answer, greedily, at the places of each fork."""
        jobs = [(i, j) for i, fork in enumerate(forks) for j in range(len(fork.places))]
        stopped = threading.Event()

        def one(n: int) -> tuple[int, int, Written]:
            i, j = jobs[n]
            fork, place = forks[i], forks[i].places[j]
            text = "".join(fork.texts[: place.tokens])
            standing = Standing(self.prompt(fork.prompt), fork.tokens[: place.tokens], text)
            return i, j, self.write(standing, place, stopped, entropy=True)

        found: list[dict[int, Written]] = [{} for _ in forks]
        told = 0
        for i, j, written in together(one, len(jobs), self.at_once(batch_size), stopped, self._wire):
            found[i][j] = written
            while told < len(forks) and len(found[told]) == len(forks[told].places):
                yield [found[told][j] for j in range(len(found[told]))]
                told += 1
        yield from ([] for _ in forks[told:])  # which have no places

    def score(
        self, texts: Sequence[tuple[str, Sequence[int]]], *, chunk_size: int = 16, batch_size: int = 32
    ) -> Iterator[Score]:
        """Refused: servers do not tell the signals of a given text."""
        raise EngineError("a server does not score given texts: use --engine transformers")

    def stream(self, standing: Standing, limit: int, decoding: Decoding, seed: int) -> Any:
        """Let the model go on, with as many of the likeliest tokens as were asked for."""
        return self._wire.stream(standing, limit=limit, top=self._top, decoding=decoding, seed=seed)

    def write(self, before: Standing, place: Place, stopped: threading.Event, *, entropy: bool) -> Written:
        """Append a landing and let the model answer after it.

        Args:
            before: What stands before the landing.
            place: Where, and what to append there.
            stopped: Set where nobody waits for it any more.
            entropy: Whether to find out the entropy after the closing as well.
        """
        closing, cue = (self.encode(text) for text in place.landing)
        written, writing = place.begin(closing, cue)
        if entropy and (closing or not place.entropy):
            written.entropy = self._entropy_after(_with(before, closing, place.landing.closing))
        if writing.over:
            return written
        landed = _with(before, written.forced, place.landing.closing + place.landing.cue)
        with self._wire.stream(landed, limit=writing.limit, top=2, decoding=GREEDY, seed=0) as pieces:
            for piece in pieces:
                if stopped.is_set():
                    break
                for at, token in enumerate(piece.ids):
                    text = piece.text if at == 0 else ""
                    writing.feed(text)
                    written.ids.append(token)
                    written.texts.append(text)
                    written.logprobs.append(math.nan if piece.logprob is None or at > 0 else piece.logprob)
                    if writing.over:
                        break
                if writing.over:
                    break
        return written

    def _entropy_after(self, standing: Standing) -> float:
        """Next-token entropy there."""
        # Of one token more can be asked; after a closing much is possible, and few of the likeliest say little.
        top = max(self._top, min(_CLOSELY, self.vocabulary, self._wire.most_logprobs))
        with self._wire.stream(standing, limit=1, top=top, decoding=GREEDY, seed=0) as pieces:
            for piece in pieces:
                return from_top(piece.likeliest, self.vocabulary).entropy
        return math.nan  # it would have ended there, of which not every server tells how likely that was

    def _messages(self, prompt: str) -> list[dict[str, str]]:
        return conversation(self._system, prompt)

    def prompt(self, prompt: str) -> Prompt:
        """What was asked, as the server takes it."""
        return self._prompts(prompt)

    def encode(self, text: str) -> list[int]:
        """Token ids of a part of a response."""
        return list(self._encoded(text))


def _prefix(request: Request) -> str:
    if isinstance(request.prefix, str):
        return request.prefix
    if request.prefix:
        raise EngineError("over HTTP a prefix must be text: what its tokens say is the server's to know")
    return ""


def _with(standing: Standing, ids: Sequence[int], text: str) -> Standing:
    """The same with a landing, or a part of it, behind it."""
    return Standing(standing.prompt, [*standing.ids, *ids], standing.text + text)


def _stem(name: str) -> str:
    """A model's name without folder and ending."""
    return Path(name).name.removesuffix(".gguf")


def _readable(about: About, wire: Wire) -> Path | None:
    """The model's file, where the server is on this machine and tells where it lies."""
    if not wire.is_local or about.path is None or not about.path.endswith(".gguf"):
        return None
    path = Path(about.path)
    return path if path.is_file() else None
