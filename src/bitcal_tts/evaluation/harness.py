"""lm-evaluation-harness: our engines as one of its models, so that people run their own tasks under any method."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from lm_eval.api.model import LM

from bitcal_tts.engines.base import Decoding, EngineError, Request
from bitcal_tts.halting.answers import FORMATS, behind_marker
from bitcal_tts.tasks.base import read_template

_ASKS = ("question", "problem", "input", "query")
"""Where a document of the harness says what is asked, for methods that read it."""
_IGNORED = [",", r"\$", r"(?s).*#### ", r"\.$"]
_FIRST = {"function": "take_first"}


class HarnessModel(LM):  # type: ignore[misc]
    """An engine under one method. The engine renders its own chat template: leave the harness's switched off."""

    def __init__(
        self,
        engine: Any,
        method: Any,
        decoding: Decoding,
        *,
        batch_size: int,
        advance: Callable[[int], None] = lambda n: None,
    ) -> None:
        super().__init__()
        self._engine, self._method, self._decoding = engine, method, decoding
        self._batch_size, self._advance = batch_size, advance
        self.tokens: list[int] = []
        """What each request cost, probes included."""

    def generate_until(self, requests: list[Any], disable_tqdm: bool = False) -> list[str]:
        """Decode every context under the method; a stop string of the task cuts the text."""
        asked = [
            Request(str(i), str(instance.args[0]), self._method, seed=i, question=_question(instance.doc))
            for i, instance in enumerate(requests)
        ]
        texts = [""] * len(asked)
        for done in self._engine.decode(asked, self._decoding, batch_size=self._batch_size):
            i = int(done.id)
            texts[i] = _cut(done.text, requests[i].args[1].get("until") or ())
            self.tokens.append(len(done.token_ids) + done.probe_tokens)
            self._advance(1)
        return texts

    def loglikelihood(self, requests: list[Any], disable_tqdm: bool = False) -> list[tuple[float, bool]]:
        """Refused: nothing is decoded, so there is nothing to halt."""
        raise EngineError(
            "this task ranks given answers by their likelihood; halting is about what a model writes: choose a task "
            "that generates (output_type: generate_until)"
        )

    def loglikelihood_rolling(self, requests: list[Any], disable_tqdm: bool = False) -> list[float]:
        """Refused likewise."""
        raise EngineError("this task measures perplexity, and nothing is decoded that could be halted")


def local_gsm8k(path: Path, answers: str) -> dict[str, Any]:
    """The harness's GSM8K over a local file, without examples: its two filters, and the answer format beside them."""
    format = FORMATS[answers]

    def as_read(responses: Sequence[Sequence[str]], documents: Sequence[dict[str, Any]]) -> list[list[str]]:
        """What the answer format reads, written as the gold answer where they are equal."""
        read = []
        for texts, document in zip(responses, documents, strict=True):
            gold = behind_marker(str(document["answer"]))
            values = [format.value(text) for text in texts]
            read.append([gold if v is not None and format.equal(v, gold) else v or "[invalid]" for v in values])
        return read

    return {
        "task": "gsm8k_local",
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(path)}},
        "test_split": "test",
        "output_type": "generate_until",
        "doc_to_text": read_template("gsm8k").replace("{question}", "{{question}}"),
        "doc_to_target": "{{answer}}",
        "generation_kwargs": {"until": []},
        "metric_list": [
            {
                "metric": "exact_match", "aggregation": "mean", "higher_is_better": True, "ignore_case": True,
                "ignore_punctuation": False, "regexes_to_ignore": _IGNORED,
            }
        ],
        "filter_list": [
            _regex("strict-match", r"#### (\-?[0-9\.\,]+)"),
            _regex("flexible-extract", r"(-?[$0-9.,]{2,})|(-?[0-9]+)", group_select=-1),
            {"name": "answer-format", "filter": [{"function": "custom", "filter_fn": as_read}, _FIRST]},
        ],
    }  # fmt: skip


def _regex(name: str, pattern: str, **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "filter": [{"function": "regex", "regex_pattern": pattern, **more}, _FIRST],
    }


def _question(document: Any) -> str | None:
    if isinstance(document, dict):
        for key in _ASKS:
            if isinstance(document.get(key), str):
                return str(document[key])
    return None


def _cut(text: str, stops: str | Sequence[str]) -> str:
    """The text before the first of the stop strings."""
    for stop in [stops] if isinstance(stops, str) else stops:
        text = text.partition(stop)[0] if stop else text
    return text
