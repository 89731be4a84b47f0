"""A model behind a server: streamed, halted by closing the stream, landed and probed by continuing the same text."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np

from bitcal_tts.engines.base import Completion, Decoding, EngineError, Fork, Place, Request, Score, Written
from bitcal_tts.engines.gguf import GgufBits, file_sha256, gguf_bits
from bitcal_tts.engines.llama_server import OwnServer
from bitcal_tts.engines.thinking import FAMILIES, ThinkMarkers, find_markers, style_of
from bitcal_tts.engines.wire import PATIENCE, About, Piece, ServerError, Wire, connect
from bitcal_tts.halting.identity import Identity
from bitcal_tts.halting.landing import AnswerWriting
from bitcal_tts.halting.session import Ask, Directive, End, Force, Session, Tokens
from bitcal_tts.halting.signals import TOP, Signals, from_top

GREEDY = Decoding()
_CLOSELY = 512


class HttpEngine:
    """A server's model as an engine.

    Args:
        url: Where the server is.
        model: What its model is expected to be; another one is refused.
        bits: Its weight precision, where that cannot be read.
        top: How many of the likeliest tokens to ask for; all of the vocabulary makes the signals full.
        system: The system prompt of every request.
        template_options: Extra arguments of the chat template, such as `enable_thinking`.
        markers: How the model marks its thinking, where that cannot be found.
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
        api_key: str | None = None,
        patience: float = PATIENCE,
        owned: OwnServer | None = None,
    ) -> None:
        if top < 2:
            raise EngineError(f"at least the 2 likeliest tokens are needed, got {top}")
        self._owned = owned
        self._wire, self._about = connect(url, api_key=api_key, patience=patience)
        try:
            self._check_model(model)
            self._name = model or _stem(self._about.model)
            self._system = system
            self._options = dict(sorted((template_options or {}).items()))
            self._file = _readable(self._about, self._wire)
            self._gguf = None if self._file is None else gguf_bits(self._file)
            self._declared_bits = bits
            self._check_bits(bits, self._gguf)
            vocabulary = self._about.vocabulary
            self._vocabulary = (
                1 << 18 if vocabulary is None else vocabulary
            )  # of an unknown one the largest in use: a bound
            self._top = top if vocabulary is None else min(top, vocabulary)
            self.max_positions = self._about.positions
            self._encode = lru_cache(maxsize=4096)(lambda text: tuple(self._wire.encode(text)))
            self._rendered = lru_cache(maxsize=4096)(
                lambda text: self._wire.prompt(self._messages(text), self._options)
            )
            rendered = self._wire.rendered(self._messages("?"), self._options) or ""
            self.thinking = find_markers(_Vocabulary(self), rendered) if markers == "found" else markers
            self._is_full = vocabulary is not None and self._top >= vocabulary
        except BaseException:
            self._wire.close()
            raise

    def __enter__(self) -> HttpEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the connections back."""
        self._wire.close()
        if self._owned is not None:
            self._owned.close()

    def _check_model(self, model: str | None) -> None:
        told = self._about.model
        if model is not None and model not in (told, _stem(told), Path(told).name):
            raise ServerError(f"the server has {told!r}, not {model!r}: name that with --model, or leave it out")

    def _check_bits(self, asked: float | None, read: GgufBits | None) -> None:
        if read is not None and asked is not None and asked != read.bits:
            raise EngineError(f"the server's model has {read.bits:g} bits ({read.scheme}), not {asked:g}")
        if read is None and asked is None:
            raise EngineError(
                "the server does not tell the precision of its weights, and its model's file cannot be read from here: "
                "say it with --bits"
            )

    @property
    def bits(self) -> float:
        """Weight precision: of the model's file, or as declared."""
        return self._gguf.bits if self._gguf is not None else float(self._declared_bits or 0)

    @property
    def style(self) -> str:
        """`thinking` or `instruct`, by the template as it is rendered."""
        return style_of(self.thinking)

    def signals(self, chunk_size: int) -> Signals:
        """What comes with every token: the likeliest, or all where so many were asked for."""
        return Signals("full" if self._is_full else "top", k=None if self._is_full else self._top, probes=True)

    def describe(self) -> dict[str, Any]:
        """What is being run: what the server reports, what its file tells, what was declared."""
        about, gguf = self._about, self._gguf
        template = None if about.template is None else hashlib.sha256(about.template.encode()).hexdigest()
        reported: dict[str, Any] = {
            "engine": about.engine,
            "model": self._name,
            # What a server multiplies in is its build's to decide, and no server tells.
            "compute_dtype": f"as {about.engine} decides",
            **({} if template is None else {"template_sha256": template}),
        }
        read: dict[str, Any] = {}
        if gguf is not None and self._file is not None:
            read = {
                "model_sha256": _hashed(self._file),
                "bits": gguf.bits,
                "scheme": gguf.scheme,
                "body_bits_per_weight": round(gguf.body, 4),
                "all_bits_per_weight": round(gguf.everything, 4),
                "parameters": gguf.parameters,
            }
        declared = {} if gguf is not None else {"bits": float(self._declared_bits or 0), "scheme": about.quantization}
        return {
            **reported,
            **read,
            **declared,
            "declared": sorted(key for key in declared if key == "bits"),
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
        taken = (len(self.prompt(prompt)) + max_tokens for prompt in prompts)
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
        sessions = self._sessions(requests, decoding, chunk_size)
        stopped = threading.Event()

        def one(i: int) -> Completion:
            return _Flight(self, requests[i], sessions[i], decoding, stopped).run()

        yield from _together(one, len(requests), self._at_once(batch_size), stopped)

    def _at_once(self, asked: int) -> int:
        """Streams that are open at once: what waits for a slot would look like a server that hangs."""
        return min(asked, self._about.slots or asked)

    def _sessions(self, requests: Sequence[Request], decoding: Decoding, chunk_size: int) -> list[Session]:
        """A session for every request, made in a random order: drift is watched in that order."""
        identity, signals = self.identity(decoding), self.signals(chunk_size)
        sessions: dict[int, Session] = {}
        for i in np.random.default_rng(0).permutation(len(requests)).tolist():
            request = requests[i]
            if not isinstance(request.prefix, str) and request.prefix:
                raise EngineError("over HTTP a prefix must be text: what its tokens say is the server's to know")
            sessions[i] = Session(
                request.method,
                signals=signals,
                identity=identity,
                prefix=request.prefix if isinstance(request.prefix, str) else "",
                question=request.question,
                count_tokens=lambda text: len(self._encode(text)),
            )
        return [sessions[i] for i in range(len(requests))]

    def probe(self, forks: Sequence[Fork], *, batch_size: int = 32) -> Iterator[list[Written]]:
        """Make the model answer, greedily, at the places of each fork."""
        jobs = [(i, j) for i, fork in enumerate(forks) for j in range(len(fork.places))]
        stopped = threading.Event()

        def one(n: int) -> tuple[int, int, Written]:
            i, j = jobs[n]
            fork, place = forks[i], forks[i].places[j]
            before = [*self.prompt(fork.prompt), *fork.tokens[: place.tokens]]
            return i, j, self.write(before, place, stopped, entropy=True)

        found: dict[tuple[int, int], Written] = {}
        for i, j, written in _together(one, len(jobs), self._at_once(batch_size), stopped):
            found[i, j] = written
        for i, fork in enumerate(forks):
            yield [found[i, j] for j in range(len(fork.places))]

    def score(
        self, texts: Sequence[tuple[str, Sequence[int]]], *, chunk_size: int = 16, batch_size: int = 32
    ) -> Iterator[Score]:
        """Refused: servers do not tell the signals of a given text."""
        raise EngineError("a server does not score given texts: use --engine transformers")

    def write(self, before: Sequence[int], place: Place, stopped: threading.Event, *, entropy: bool) -> Written:
        """Append a landing and let the model answer after it.

        Args:
            before: What stands before the landing, the prompt included.
            place: Where, and what to append there.
            stopped: Set where nobody waits for it any more.
            entropy: Whether to find out the entropy after the closing as well.
        """
        closing, cue = (list(self._encode(text)) for text in place.landing)
        written = Written([*closing, *cue], len(closing), place.entropy)
        if entropy and closing:
            written.entropy = self._entropy_after([*before, *closing])
        limit = (place.format.reserve if place.limit is None else place.limit) - len(written.forced)
        writing = AnswerWriting(place.format, place.landing.cue, limit)
        if writing.over:
            return written
        landed = [*before, *written.forced]
        with self._wire.stream(landed, limit=limit, top=2, decoding=GREEDY, seed=0) as pieces:
            for piece in pieces:
                if stopped.is_set():
                    break
                for at in range(len(piece.ids)):
                    text = piece.text if at == 0 else ""
                    writing.feed(text)
                    written.ids.append(piece.ids[at])
                    written.texts.append(text)
                    written.logprobs.append(piece.logprob if piece.logprob is not None else 0.0)
                    if writing.over:
                        break
                if writing.over:
                    break
        return written

    def _entropy_after(self, ids: Sequence[int]) -> float:
        """Next-token entropy there."""
        # Of one token more can be asked; after a closing much is possible, and few of the likeliest say little.
        top = max(self._top, min(_CLOSELY, self._vocabulary, self._wire.most_logprobs))
        with self._wire.stream(ids, limit=1, top=top, decoding=GREEDY, seed=0) as pieces:
            for piece in pieces:
                return from_top(piece.likeliest, self._vocabulary).entropy
        return 0.0  # it would have ended there

    def _messages(self, prompt: str) -> list[dict[str, str]]:
        system = [] if self._system is None else [{"role": "system", "content": self._system}]
        return [*system, {"role": "user", "content": prompt}]

    def prompt(self, prompt: str) -> tuple[int, ...]:
        """Token ids of what was asked, as the model reads it."""
        return self._rendered(prompt)


class _Flight:
    """One request on its way: its stream, its session, and what has come."""

    def __init__(
        self, engine: HttpEngine, request: Request, session: Session, decoding: Decoding, stopped: threading.Event
    ) -> None:
        self._engine, self._request, self._session = engine, request, session
        self._decoding, self._stopped = decoding, stopped
        prefix = request.prefix if isinstance(request.prefix, str) else ""
        self._before = [*engine.prompt(request.prompt), *engine._encode(prefix)]
        self._done = Completion(request.id, len(self._before))

    def run(self) -> Completion:
        """Decode to the end, or to where the session ends it."""
        engine, request = self._engine, self._request
        seed = (self._decoding.seed * 1_000_003 + request.seed) % 2**31
        stream = engine._wire.stream(
            self._before, limit=request.budget, top=engine._top, decoding=self._decoding, seed=seed
        )
        directive: Directive | None = None
        with stream as pieces:
            for piece in pieces:
                if self._stopped.is_set():
                    raise ServerError("stopped")
                directive = self._take(piece)
                while isinstance(directive, Ask):
                    directive = self._session.tell(self._write(directive, entropy=True).probe())
                if isinstance(directive, End | Force):
                    break
        if isinstance(directive, Force):
            self._land(directive)
        elif not isinstance(directive, End):
            self._session.end()
        return self._close()

    def _take(self, piece: Piece) -> Directive:
        done, n = self._done, len(piece.ids)
        if not piece.likeliest or piece.logprob is None:
            raise ServerError(
                f"{self._engine._wire.url} sends no log-probabilities with its tokens: start it so that it does"
            )
        known = from_top(piece.likeliest, self._engine._vocabulary)
        rest: list[Any] = [None] * (n - 1)  # tokens inside a character come together, and are told of once
        texts = [piece.text, *[""] * (n - 1)]
        columns = {
            "entropies": [known.entropy, *rest],
            "logprobs": [piece.logprob, *rest],
            "margins": [known.margin, *rest],
            "top_logprobs": [known.top_logprob, *rest],
        }
        done.token_ids += piece.ids
        done.token_texts += texts
        for name, column in columns.items():
            getattr(done, name).extend(float("nan") if value is None else value for value in column)
        if not self._engine._is_full:
            return self._session.feed(Tokens(texts, **columns, missing=[known.missing] * n))
        return self._session.feed(Tokens(texts, **columns))

    def _write(self, directive: Ask | Force, *, entropy: bool) -> Written:
        limit = directive.room if isinstance(directive, Force) else None
        format = self._request.method.parameters.format
        place = Place(directive.at, directive.landing, format, limit=limit)
        before = [*self._before, *self._done.token_ids[: directive.at]]
        return self._engine.write(before, place, self._stopped, entropy=entropy)

    def _land(self, directive: Force) -> None:
        """The stream is closed; what came past the stop is cut off, and the landing appended."""
        written = self._write(directive, entropy=False)
        self._cut(directive.at)
        self._session.landed(written.probe())
        self._done.token_ids += written.forced + written.ids
        closing, cue = directive.landing
        forced = [""] * len(written.forced)
        for at, text in ((0, closing), (written.closed, cue)):
            if text:
                forced[at] = text
        self._done.token_texts += forced + written.texts

    def _cut(self, at: int) -> None:
        done = self._done
        for column in (
            done.token_ids, done.token_texts, done.entropies, done.logprobs, done.margins, done.top_logprobs,
        ):  # fmt: skip
            del column[at:]

    def _close(self) -> Completion:
        done, outcome = self._done, self._session.outcome
        if not outcome.landing_tokens:
            self._cut(outcome.tokens)
        done.finish, done.decision, done.answer = outcome.finish, outcome.decision, outcome.answer
        done.probe_tokens, done.landing_tokens = outcome.probe_tokens, outcome.landing_tokens
        done.decoded = outcome.decoded
        return done


class _Vocabulary:
    """What finding think markers asks of a tokenizer, asked of the server."""

    def __init__(self, engine: HttpEngine) -> None:
        self.chat_template = engine._about.template or ""
        self._engine = engine

    def get_added_vocab(self) -> list[str]:
        markers = {marker for family in FAMILIES for marker in family if len(marker) < 30}
        return [marker for marker in sorted(markers) if len(self._engine._encode(marker)) == 1]


def _together(one: Callable[[int], Any], n: int, at_once: int, stopped: threading.Event) -> Iterator[Any]:
    """Do `n` things, `at_once` at a time, in any order; who leaves early, or fails, stops the others."""
    with ThreadPoolExecutor(at_once) as pool:
        futures = [pool.submit(one, i) for i in range(n)]
        try:
            for future in as_completed(futures):
                yield future.result()
        finally:
            stopped.set()
            for future in futures:
                future.cancel()


def _stem(name: str) -> str:
    """A model's name without folder and ending."""
    return Path(name).name.removesuffix(".gguf")


def _readable(about: About, wire: Wire) -> Path | None:
    """The model's file, where the server is on this machine and tells where it lies."""
    if not wire.is_local or about.path is None or not about.path.endswith(".gguf"):
        return None
    path = Path(about.path)
    return path if path.is_file() else None


@lru_cache(maxsize=8)
def _hashed(path: Path) -> str:
    return file_sha256(path)
