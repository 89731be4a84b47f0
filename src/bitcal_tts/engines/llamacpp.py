"""Halting inside llama-cpp-python's own loop.

People who have one pass it what halts each request:

    halting = Halting(llm, bitcal_tts.build_method("complete", bits=4, budget=512))
    llm.create_completion(prompt, **halting.kwargs())
    halting.outcome
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import llama_cpp
import numpy as np
from numpy.typing import NDArray

from bitcal_tts.engines.base import EngineError
from bitcal_tts.engines.gguf import gguf_facts
from bitcal_tts.engines.gguf_vocabulary import GgufVocabulary
from bitcal_tts.engines.logits import seen
from bitcal_tts.engines.watched import SIGNALS, Watched
from bitcal_tts.halting.controller import Controller
from bitcal_tts.halting.exchange import SessionOutcome
from bitcal_tts.halting.identity import Identity

_TIED = ("model_sha256", "bits", "scheme")


class Halting:
    """Halting for one request: the loop's `logits_processor` and `stopping_criteria`.

    Args:
        llm: The `llama_cpp.Llama` that decodes.
        method: Halts the request.
        question: What was asked, for methods that read it.
        declare: What is served, for a method whose promise is tied to it; the file's own facts are read.
    """

    def __init__(
        self,
        llm: llama_cpp.Llama,
        method: Controller,
        *,
        question: str | None = None,
        declare: Mapping[str, Any] | None = None,
    ) -> None:
        lacking = SIGNALS.lacks(method.needs)
        if lacking:
            words = ", ".join(signal.words for signal in lacking)
            raise EngineError(f"{method.parameters.name} needs {words}, which is not to be had inside llama-cpp-python")
        template = llm.metadata.get("tokenizer.chat_template")
        known = {
            "engine": f"llama-cpp-python {llama_cpp.__version__}",
            "model": Path(llm.model_path).name.removesuffix(".gguf"),
            "compute_dtype": "as llama.cpp decides",
            **({} if template is None else {"template_sha256": hashlib.sha256(template.encode()).hexdigest()}),
            **{key: value for key, value in gguf_facts(Path(llm.model_path)).items() if key in _TIED},
        }
        identity = Identity(known).declare(dict(declare or {}))
        self._out: list[int] = []
        self._row = Watched(method, self._out, _vocabulary_of(llm), identity, question=question)
        self._begun: int | None = None
        self._logits: NDArray[np.float32] | None = None

    def kwargs(self) -> dict[str, Any]:
        """What to pass to `create_completion` or `create_chat_completion`.

        A loop that ends by itself does not show its last token: one more is asked for than the budget, so that it is
        always the session that ends there.
        """
        return {
            "max_tokens": self._row.session.method.parameters.budget + 1,
            "logits_processor": llama_cpp.LogitsProcessorList([self._look]),
            "stopping_criteria": llama_cpp.StoppingCriteriaList([self._is_over]),
        }

    def _look(self, ids: Any, scores: Any) -> Any:
        """See the logits, decide on what has come, and force what must come."""
        if self._begun is None:
            self._begun = len(ids)
        for token in ids[self._begun + len(self._out) :].tolist():
            if self._logits is not None:
                (told,) = seen(self._logits[None])
                self._row.known[len(self._out)] = told.entropy, told.logprob(token), told.margin, told.top_logprob
                self._logits = None
            self._out.append(token)
        self._row.take()
        forced = self._row.forces
        if forced is None:
            self._logits = np.array(scores, dtype=np.float32)
            return scores
        scores[:] = -np.inf
        scores[forced] = 0.0
        return scores

    def _is_over(self, ids: Any, logits: Any) -> bool:
        """Whether the request was halted: the token that has just been chosen is dropped."""
        return self._row.session.over

    @property
    def outcome(self) -> SessionOutcome:
        """How the request went, once the loop has ended."""
        if not self._row.session.over:
            self._row.session.end()
        return self._row.session.outcome


_VOCABULARIES: WeakKeyDictionary[llama_cpp.Llama, GgufVocabulary] = WeakKeyDictionary()


def _vocabulary_of(llm: llama_cpp.Llama) -> GgufVocabulary:
    """Of a model that many requests are decoded by: going through its tokens takes longer than many of them do."""
    if llm not in _VOCABULARIES:
        _VOCABULARIES[llm] = GgufVocabulary(llm._model.model)
    return _VOCABULARIES[llm]
