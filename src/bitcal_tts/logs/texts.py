"""A record as a question, a response and an answer, under whatever names it has them.

Flat records have columns, whose names are found or told. Chat logs have messages and choices, with the reasoning apart
from the answer or in it, and with log-probabilities or without. What a record lacks is named.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from bitcal_tts.halting.answers import FORMATS, MARKER, behind_marker
from bitcal_tts.halting.exchange import Token
from bitcal_tts.logs.chats import REASONING, answered, asked, choices_of, inside, joined, messages_of
from bitcal_tts.logs.files import HALVES, Fault, LogError, Record, read_records
from bitcal_tts.logs.logprobs import are_all, tokens_of

_TRIED = 50  # records in which columns are looked for
_NAMES: dict[str, tuple[str, ...]] = {
    "question": (
        "question", "problem", "prompt", "query", "instruction", "input", "user", "doc.question", "doc.problem",
    ),
    "response": (
        "response", "completion", "output", "generation", "generated_text", "model_output", "model_response",
        "prediction", "generated", "assistant", "full_response", "text", "model_answer",
        "generated_answer", "responses", "completions",
        "generations", "outputs", "resps", "content",
    ),
    "reasoning": REASONING,
    "answer": (
        "gold", "gold_answer", "answer", "target", "ground_truth", "expected", "expected_answer", "reference", "label",
        "correct_answer", "final_answer", "answerkey", "solution", "reward_model.ground_truth", "doc.answer",
    ),
    "model": ("model", "model_name", "model_id"),
    "id": ("id", "custom_id", "index", "idx", "uid", "problem_id", "task_id"),
    "finish": ("finish", "finish_reason", "stop_reason", "done_reason"),
    "truncated": ("truncated", "is_truncated"),
}  # fmt: skip
NO_QUESTION = "has no question"
_CAPPED = ("length", "max_tokens", "limit", "budget", "truncated")


@dataclass(frozen=True)
class Columns:
    """Names of a file's columns, dots inside for what is nested; None is to be found."""

    question: str | None = None
    response: str | None = None
    answer: str | None = None
    model: str | None = None
    id: str | None = None


@dataclass(frozen=True)
class LoggedText:
    """What a model wrote about a question.

    Attributes:
        line: Of the file, from 1.
        id: Of the record, or its line.
        question: What was asked.
        response: All of it, the thinking between its markers.
        answer: The gold answer, or None.
        model: What wrote it, or None.
        truncated: Whether it was cut off; None where the log does not say.
        tokens: Its tokens with their log-probabilities, or None.
    """

    line: int
    id: str
    question: str
    response: str
    answer: str | None = None
    model: str | None = None
    truncated: bool | None = None
    tokens: Sequence[Token] | None = None


def read_texts(path: Path, columns: Columns | None = None, *, gold: bool = True) -> Iterator[LoggedText | Fault]:
    """The texts of a file, in order; records that hold none come as faults.

    Args:
        path: JSONL, JSON, CSV or Parquet.
        columns: Names, as far as they are told.
        gold: Whether a gold answer is needed.
    """
    records = read_records(path)
    tried = list(itertools.islice(records, _TRIED))
    reader = _Reader(path, columns or Columns(), [r.values for r in tried if isinstance(r, Record)], gold=gold)
    for record in itertools.chain(tried, records):
        if isinstance(record, Fault):
            yield record
            continue
        try:
            yield from reader.read(record)
        except _UnusableError as error:
            yield Fault(record.line, str(error))


class _UnusableError(Exception):
    """Why a record holds no text."""


class _Reader:
    """Reads the records of one file."""

    def __init__(self, path: Path, told: Columns, tried: Sequence[Mapping[str, Any]], *, gold: bool) -> None:
        self._gold = gold
        self._names: dict[str, str] = {}
        known = {field.name: getattr(told, field.name) for field in fields(told)}
        present = list(dict.fromkeys(name for values in tried for name in values))
        nested = list(dict.fromkeys(name for values in tried for name in _names_inside(values)))
        for part, names in _NAMES.items():
            name = known.get(part) or _found(names, [*present, *nested], taken=set(self._names.values()))
            if known.get(part) and tried and all(inside(values, str(name)) is None for values in tried):
                raise LogError(f"{path} has no column {name!r}: it has {', '.join(present) or 'none'}")
            if name is not None:
                self._names[part] = name
        if tried and not any(choices_of(values) or messages_of(values) for values in tried):
            missing = [part for part in ("question", "response") if part not in self._names]
            if missing:
                raise LogError(
                    f"{path} has no column that looks like a {' or a '.join(missing)}: it has "
                    f"{', '.join(present)}; say which with --{missing[0]} NAME"
                )

    def read(self, record: Record) -> Iterator[LoggedText]:
        """The texts of a record: of one question a model may have been asked for several."""
        samples = self._samples(record.values)
        for i, (choice, values) in enumerate(samples):
            yield self._read(record.line, values, choice, "" if len(samples) == 1 else f"/{i}")

    def _samples(self, values: Mapping[str, Any]) -> list[tuple[Mapping[str, Any], Mapping[str, Any]]]:
        """Each choice of a completion, or each of several responses, with its record."""
        choices = choices_of(values)
        if choices:
            return [(choice, values) for choice in choices]
        name = self._names.get("response")
        several = None if name is None else inside(values, name)
        if isinstance(several, list) and len(several) > 1 and all(isinstance(text, str) for text in several):
            return [({}, {**values, str(name): text}) for text in several]
        return [({}, values)]

    def _question(self, values: Mapping[str, Any]) -> str | None:
        """What is asked; where it comes as an instruction and what that is about, both."""
        question = self._text(values, "question")
        about = values.get("input")
        if self._names.get("question") == "instruction" and isinstance(about, str) and about.strip():
            return f"{question}\n\n{about.strip()}" if question else about.strip()
        return question

    def _read(self, line: int, values: Mapping[str, Any], choice: Mapping[str, Any], sample: str) -> LoggedText:
        messages = messages_of(values)
        question = self._question(values) or asked(messages)
        response = (answered(choice, messages) if choice or not sample else None) or self._response(values)
        if not question:
            raise _UnusableError(NO_QUESTION)
        if not response:
            raise _UnusableError("has no response")
        told, name, model = (self._text(values, part) for part in ("answer", "id", "model"))
        answer = None if told is None else _lettered(gold_of(told), question, values)
        if any(text is not None and HALVES.search(text) for text in (question, response, answer, name, model)):
            raise _UnusableError("holds half a surrogate pair, which is no text")
        if answer is None and self._gold:
            raise _UnusableError(
                "has no gold answer (--answer NAME says which column it is in; --label final needs none)"
            )
        tokens = tokens_of(choice, values)
        if tokens is not None and not are_all(response, "".join(str(token.text) for token in tokens)):
            tokens = None
        return LoggedText(
            line=line,
            id=f"{name or f'line-{line}'}{sample}",
            question=question,
            response=response,
            answer=answer,
            model=model,
            truncated=self._truncated(values, choice),
            tokens=tokens,
        )

    def _response(self, values: Mapping[str, Any]) -> str | None:
        response, reasoning = self._text(values, "response"), self._text(values, "reasoning")
        if reasoning and response and reasoning not in response:
            return joined(reasoning, response)
        return response or reasoning

    def _text(self, values: Mapping[str, Any], part: str) -> str | None:
        name = self._names.get(part)
        value = None if name is None else inside(values, name)
        while isinstance(value, list) and len(value) == 1:
            value = value[0]
        if isinstance(value, bytes):
            raise _UnusableError(f"has a {name} that is not UTF-8")
        if value is None or isinstance(value, (bool, dict, list)) or (isinstance(value, float) and math.isnan(value)):
            return None
        return str(value).strip() or None

    def _truncated(self, values: Mapping[str, Any], choice: Mapping[str, Any]) -> bool | None:
        told = inside(values, self._names.get("truncated", "truncated"))
        if isinstance(told, bool):
            return told
        finish = choice.get("finish_reason") or self._text(values, "finish")
        return None if finish is None else str(finish).lower() in _CAPPED


def gold_of(answer: str) -> str | None:
    r"""The value of a gold answer that comes with its derivation: behind `####`, or in the last `\boxed{}`."""
    if MARKER in answer:
        return behind_marker(answer) or None
    if "\\boxed" in answer:
        return FORMATS["boxed"].value(answer) or answer
    return answer.strip()


def _lettered(gold: str | None, question: str, values: Mapping[str, Any]) -> str | None:
    """A gold answer that counts the choices from 0, as data sets have it, as the letter that the question shows."""
    choices: list[Any] = next(
        (values[name] for name in ("choices", "options") if isinstance(values.get(name), list)), []
    )
    if gold is None or not gold.isdecimal() or not int(gold) < len(choices) <= 10:
        return gold
    return "ABCDEFGHIJ"[int(gold)] if re.search(r"^[ \t]*\(?A[).:]", question, re.MULTILINE) else gold


def _names_inside(values: Mapping[str, Any]) -> Iterator[str]:
    """The columns of the records that a record holds."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from (f"{name}.{inner}" for inner in value)


def _found(names: Sequence[str], present: Sequence[str], taken: set[str]) -> str | None:
    lower = {name.lower(): name for name in reversed(present) if name not in taken}
    return next((lower[name] for name in names if name in lower), None)
