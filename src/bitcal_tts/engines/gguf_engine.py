"""GGUF models in this process, through llama-cpp-python: full distributions, hidden states, sequences side by side."""

from __future__ import annotations

import ctypes
import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Literal

import llama_cpp
import llama_cpp.llama_cpp as llama
from llama_cpp.llama_chat_format import Jinja2ChatFormatter

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
from bitcal_tts.engines.gguf import gguf_facts
from bitcal_tts.engines.gguf_vocabulary import GgufVocabulary
from bitcal_tts.engines.lane_row import LaneRow
from bitcal_tts.engines.lanes import Lane, Lanes, Steps
from bitcal_tts.engines.thinking import ThinkMarkers, find_markers, marker_tokens, style_of
from bitcal_tts.halting.identity import Identity
from bitcal_tts.halting.signals import Signals

_PROBED = 256
"""Tokens of room behind a budget: what a probe at its end may take."""


class LlamaCppEngine:
    """A GGUF file as an engine.

    Args:
        file: The model.
        bits: What its precision is expected to be; another one is refused.
        system: The system prompt of every request.
        template_options: Extra arguments of the chat template, such as `enable_thinking`.
        markers: How the model marks its thinking, where that cannot be found.
        hidden: Whether hidden states are told; prompts then take longer.
        threads: Of the processor; by default all.
        gpu_layers: Layers on a GPU, where llama-cpp-python was built for one; -1 is all of them.
    """

    def __init__(
        self,
        file: Path,
        *,
        bits: float | None = None,
        system: str | None = None,
        template_options: Mapping[str, Any] | None = None,
        markers: ThinkMarkers | Literal["found"] | None = "found",
        hidden: bool = True,
        threads: int | None = None,
        gpu_layers: int = -1,
    ) -> None:
        self._file = file
        self._facts = gguf_facts(file)
        if bits is not None and bits != self._facts["bits"]:
            raise EngineError(f"{file} has {self._facts['bits']:g} bits ({self._facts['scheme']}), not {bits:g}")
        _quiet()
        parameters = llama.llama_model_default_params()
        parameters.n_gpu_layers = gpu_layers
        self._model = llama.llama_model_load_from_file(str(file).encode(), parameters)
        if not self._model:
            raise EngineError(f"llama.cpp cannot load {file}")
        try:
            self._begin(file, markers, system, template_options)
        except BaseException:
            self.close()
            raise
        self._hidden, self._threads = hidden, threads
        self.max_positions: int | None = llama.llama_model_n_ctx_train(self._model)

    def _begin(
        self,
        file: Path,
        markers: ThinkMarkers | Literal["found"] | None,
        system: str | None,
        template_options: Mapping[str, Any] | None,
    ) -> None:
        """Read what the file says of its prompts."""
        self.vocabulary = GgufVocabulary(self._model)
        self._system, self._options = system, dict(sorted((template_options or {}).items()))
        template = llama.llama_model_chat_template(self._model, None)
        if template is None:
            raise EngineError(f"{file} has no chat template")
        self._template = str(template, "utf-8")
        vocab = llama.llama_model_get_vocab(self._model)
        bos, eos = llama.llama_vocab_bos(vocab), llama.llama_vocab_eos(vocab)
        words = [self.vocabulary.piece(token).decode() if token >= 0 else "" for token in (eos, bos)]
        self._formatter = Jinja2ChatFormatter(self._template, *words)
        self.prompt = lru_cache(maxsize=4096)(self._prompt)
        self.thinking = find_markers(self, self._rendered("?")) if markers == "found" else markers

    def close(self) -> None:
        """Give the memory back."""
        if self._model:
            llama.llama_model_free(self._model)
            self._model = None

    @property
    def chat_template(self) -> str:
        """Of the file."""
        return self._template

    def get_added_vocab(self) -> list[str]:
        """Think markers that are one token each."""
        return marker_tokens(self.vocabulary.encode)

    @property
    def bits(self) -> float:
        """Weight precision, by the types of the tensors."""
        return float(self._facts["bits"])

    @property
    def style(self) -> str:
        """`thinking` or `instruct`, by the template as it is rendered."""
        return style_of(self.thinking)

    def signals(self, chunk_size: int) -> Signals:
        """All there is of every token, and hidden states where they are asked for."""
        return Signals("full", hidden_every=chunk_size if self._hidden else None, probes=True)

    def describe(self) -> dict[str, Any]:
        """What is being run, read from the file."""
        return {
            "engine": f"llama-cpp-python {llama_cpp.__version__}",
            "model": self._file.name.removesuffix(".gguf"),
            "compute_dtype": "as llama.cpp decides",
            "template_sha256": hashlib.sha256(self._template.encode()).hexdigest(),
            **self._facts,
            "template_options": self._options,
            "style": self.style,
            "system": self._system,
            "thinking": list(self.thinking) if self.thinking else None,
            "repetition_penalty": 1.0,
        }

    def identity(self, decoding: Decoding) -> Identity:
        """What a promise is tied to."""
        return Identity.of({**self.describe(), "decoding": decoding.describe()})

    def too_long(self, prompts: Sequence[str], max_tokens: int) -> dict[int, int]:
        """Prompts that do not fit with their budget: which, and how many positions they would take."""
        taken = (len(self.prompt(prompt)) + max_tokens for prompt in prompts)
        return {i: n for i, n in enumerate(taken) if self.max_positions is not None and n > self.max_positions}

    def _rendered(self, prompt: str) -> str:
        messages: Any = conversation(self._system, prompt)
        return str(self._formatter(messages=messages, **self._options).prompt)

    def _prompt(self, prompt: str) -> tuple[int, ...]:
        text = self._rendered(prompt)
        return tuple(self.vocabulary.split(text, special=True))

    def decode(
        self,
        requests: Sequence[Request],
        decoding: Decoding | None = None,
        *,
        batch_size: int = 8,
        chunk_size: int = 16,
        keep_hidden: bool = False,
    ) -> Iterator[Completion]:
        """Decode all requests, `batch_size` sequences at a time, yielding each as it ends.

        Args:
            requests: The prompts, each with the method that halts it and owns its budget.
            decoding: Greedy unless told otherwise.
            batch_size: Sequences that are decoded side by side.
            chunk_size: Hidden states are compared every so many tokens.
            keep_hidden: Keep the hidden vectors at chunk boundaries, not only their cosines.
        """
        for name, value in (("batch_size", batch_size), ("chunk_size", chunk_size)):
            if value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        if keep_hidden and not self._hidden:
            raise EngineError("hidden states were not asked for: LlamaCppEngine(..., hidden=True)")
        if not requests:
            return
        decoding = decoding or Decoding()
        sessions = open_sessions(
            requests,
            signals=self.signals(chunk_size),
            identity=self.identity(decoding),
            count_tokens=lambda text: len(self.vocabulary.encode(text)),
            prefix=self._prefix,
        )
        rows = [
            LaneRow(self, request, session, decoding, chunk_size, keep_hidden)
            for request, session in zip(requests, sessions, strict=True)
        ]
        room = max(len(row.prompt) + row.request.budget for row in rows) + _PROBED
        yield from self._run((row.run for row in rows), min(batch_size, len(rows)), room)

    def _run(self, jobs: Iterator[Callable[[Lane], Steps[Any]]], count: int, room: int) -> Iterator[Any]:
        lanes = Lanes(self._model, count=count, room=room, threads=self._threads, hidden=self._hidden)
        try:
            yield from lanes.run(jobs)
        finally:
            lanes.close()

    def _prefix(self, request: Request) -> str:
        if isinstance(request.prefix, str):
            return request.prefix
        return b"".join(map(self.vocabulary.piece, request.prefix)).decode(errors="replace")

    def probe(self, forks: Sequence[Fork], *, batch_size: int = 8) -> Iterator[list[Written]]:
        """Make the model answer, greedily, at the places of each fork; what places share is decoded once."""
        if not forks:
            return
        room = max(len(self.prompt(fork.prompt)) + len(fork.tokens) for fork in forks) + _PROBED
        jobs = (partial(self._fork, i, fork) for i, fork in enumerate(forks))
        found: dict[int, list[Written]] = {}
        waiting = 0
        for i, written in self._run(jobs, min(batch_size, len(forks)), room):
            found[i] = written
            while waiting in found:
                yield found.pop(waiting)
                waiting += 1

    def _fork(self, number: int, fork: Fork, lane: Lane) -> Steps[tuple[int, list[Written]]]:
        before = [*self.prompt(fork.prompt), *fork.tokens]
        begin = len(before) - len(fork.tokens)
        found: dict[int, Written] = {}
        for i in sorted(range(len(fork.places)), key=lambda i: fork.places[i].tokens):
            end = begin + fork.places[i].tokens
            lane.cut(end - 1)  # the last token is fed again: what follows it is asked for
            found[i] = yield from self.write(lane, before[lane.length : end], fork.places[i], entropy=True)
            lane.cut(end)
        return number, [found[i] for i in range(len(fork.places))]

    def write(self, lane: Lane, before: list[int], place: Place, *, entropy: bool) -> Steps[Written]:
        """Append a landing and let the model answer after it.

        Args:
            lane: Holds what stands already, but for
            before: the last tokens of it.
            place: What to append there.
            entropy: Whether the entropy after the closing is asked for.
        """
        closing, cue = (self.vocabulary.encode(text) for text in place.landing)
        written, writing = place.begin(closing, cue)
        feed = [*before, *written.forced]
        if entropy and (closing or not place.entropy):
            told = yield [*before, *closing]
            written.entropy, feed = told.entropy, cue
        if writing.over:
            return written
        if feed:
            told = yield feed
        texts = self.vocabulary.texts()
        while True:
            token = int(told.logits.argmax())
            if token in self.vocabulary.ends:
                return written
            text = texts.add(token)
            writing.feed(text)
            written.ids.append(token)
            written.texts.append(text)
            written.logprobs.append(told.logprob(token))
            if writing.over:
                return written
            told = yield [token]

    def score(
        self, texts: Sequence[tuple[str, Sequence[int]]], *, chunk_size: int = 16, batch_size: int = 32
    ) -> Iterator[Score]:
        """Refused: given texts are scored by Transformers."""
        raise EngineError("llama.cpp does not score given texts here: use --engine transformers")


@llama.llama_log_callback  # type: ignore[untyped-decorator]
def _nothing(level: int, text: bytes, data: Any) -> None:
    """llama.cpp writes pages to standard error."""


@lru_cache(maxsize=1)
def _quiet() -> None:
    if not os.environ.get("BITCAL_LLAMA_LOG"):
        llama.llama_log_set(_nothing, ctypes.c_void_p(0))
