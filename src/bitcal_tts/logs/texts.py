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
from bitcal_tts.logs.files import HALVES, Fault, LogError, Record, read_records

THINK = ("<think>\n", "\n</think>\n\n")
"""Put around reasoning that a log keeps apart from the answer."""
_THOUGHT = ("thinking", "reasoning")
"""Parts of a message that were not said."""
_TRIED = 50  # records in which columns are looked for
_VOCABULARY = 150_000  # for the bound on what truncated log-probabilities leave open
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
    "reasoning": ("reasoning_content", "reasoning", "thinking", "thoughts", "reasoning_trace"),
    "answer": (
        "gold", "gold_answer", "answer", "target", "ground_truth", "expected", "expected_answer", "reference", "label",
        "correct_answer", "final_answer", "answerkey", "solution", "reward_model.ground_truth", "doc.answer",
    ),
    "model": ("model", "model_name", "model_id"),
    "id": ("id", "custom_id", "index", "idx", "uid", "problem_id", "task_id"),
    "finish": ("finish", "finish_reason", "stop_reason", "done_reason"),
    "truncated": ("truncated", "is_truncated"),
}  # fmt: skip
_MODEL = ("assistant", "gpt", "model", "bot")
_CHOICES = ("choices", "response.choices", "response.body.choices", "body.choices", "output.choices", "outputs")
"""Where a completion's choices are."""
_ANSWERS = ("message", "response.message", "response", "response.body", "body", "output")
"""Where a log has the one message that answers."""
_CONVERSATIONS = (
    "messages", "request.messages", "request.body.messages", "body.messages", "conversation", "conversations", "prompt",
)  # fmt: skip
_OF_A_SERVER = frozenset({"message", "finish_reason", "stop_reason", "index", "logprobs"})
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
        inside = list(dict.fromkeys(name for values in tried for name in _names_inside(values)))
        for part, names in _NAMES.items():
            name = known.get(part) or _found(names, [*present, *inside], taken=set(self._names.values()))
            if known.get(part) and tried and all(_inside(values, str(name)) is None for values in tried):
                raise LogError(f"{path} has no column {name!r}: it has {', '.join(present) or 'none'}")
            if name is not None:
                self._names[part] = name
        if tried and not any(_choices(values) or _messages(values) for values in tried):
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
        choices = _choices(values)
        if choices:
            return [(choice, values) for choice in choices]
        name = self._names.get("response")
        several = None if name is None else _inside(values, name)
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
        messages = _messages(values)
        question = self._question(values) or _asked(messages)
        response = (_answered(choice, messages) if choice or not sample else None) or self._response(values)
        if not question:
            raise _UnusableError("has no question")
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
        tokens = _tokens(choice, values)
        if tokens is not None and not _is_all(response, "".join(str(token.text) for token in tokens)):
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
            return _joined(reasoning, response)
        return response or reasoning

    def _text(self, values: Mapping[str, Any], part: str) -> str | None:
        name = self._names.get(part)
        value = None if name is None else _inside(values, name)
        while isinstance(value, list) and len(value) == 1:
            value = value[0]
        if isinstance(value, bytes):
            raise _UnusableError(f"has a {name} that is not UTF-8")
        if value is None or isinstance(value, (bool, dict, list)) or (isinstance(value, float) and math.isnan(value)):
            return None
        return str(value).strip() or None

    def _truncated(self, values: Mapping[str, Any], choice: Mapping[str, Any]) -> bool | None:
        told = _inside(values, self._names.get("truncated", "truncated"))
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


def _inside(values: Any, name: str) -> Any:
    """A value by its name, dots leading inside."""
    if isinstance(values, Mapping) and name in values:
        return values[name]
    for part in name.split("."):
        if isinstance(values, list) and part.lstrip("-").isdigit() and -len(values) <= int(part) < len(values):
            values = values[int(part)]
        elif isinstance(values, Mapping) and part in values:
            values = values[part]
        else:
            return None
    return values


def _choices(values: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The choices of a completion, wherever a log keeps them; none where it has none.

    The choices of a question have texts too, but nothing that only a server writes.
    """
    for place in _CHOICES:
        choices = _inside(values, place)
        if isinstance(choices, list) and choices and all(isinstance(choice, Mapping) for choice in choices):
            first = choices[0]
            if (
                first.keys() & _OF_A_SERVER
                or first.keys() >= {"text", "token_ids"}
                or [*first] == ["text"] == [*choices[-1]]
            ):
                return choices
    for message in (values, *(_inside(values, place) for place in _ANSWERS)):
        if isinstance(message, Mapping) and message.get("role") in _MODEL and _content(message):
            return [{"message": message, "finish_reason": message.get("stop_reason")}]
    return []


def _messages(values: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """What was said, in order; a prompt and its completion may come as messages, too."""
    for place in _CONVERSATIONS:
        messages = _inside(values, place)
        if isinstance(messages, list) and messages and all(isinstance(message, Mapping) for message in messages):
            followed = _inside(values, "completion") if place == "prompt" else None
            return (
                [*messages, *(part for part in followed if isinstance(part, Mapping))]
                if isinstance(followed, list)
                else messages
            )
    return []


def _role(message: Mapping[str, Any]) -> Any:
    return message.get("role") or message.get("from")


def _asked(messages: Sequence[Mapping[str, Any]]) -> str | None:
    """What the user said last."""
    said = [_content(message) for message in messages if _role(message) in ("user", "human")]
    return said[-1] if said else None


def _answered(choice: Mapping[str, Any], messages: Sequence[Mapping[str, Any]]) -> str | None:
    """What the model said: of a completion, or as the last message."""
    if isinstance(choice.get("text"), str):
        return str(choice["text"])
    message = choice.get("message")
    if not isinstance(message, Mapping) and messages and _role(messages[-1]) in _MODEL:
        message = messages[-1]
    if not isinstance(message, Mapping):
        return None
    apart = (message[k] for k in _NAMES["reasoning"] if isinstance(message.get(k), str) and message[k])
    reasoning = next(apart, None) or _thought(message)
    content = _content(message)
    return _joined(reasoning, content or "") if reasoning else content


def _joined(reasoning: str, content: str) -> str:
    return f"{THINK[0]}{reasoning.strip()}{THINK[1]}{content.strip()}"


def _content(message: Mapping[str, Any]) -> str | None:
    content = message.get("content", message.get("value"))
    if isinstance(content, list):
        said = (part.get("text") for part in content if isinstance(part, Mapping) and not _is_thought(part))
        content = "".join(text for text in said if isinstance(text, str))
    return content if isinstance(content, str) and content.strip() else None


def _thought(message: Mapping[str, Any]) -> str | None:
    """What the parts of a message hold that were thought, not said."""
    content = message.get("content")
    parts = [part for part in content if _is_thought(part)] if isinstance(content, list) else []
    texts = (next((text for k in (*_THOUGHT, "text") if (text := _plain(part.get(k)))), "") for part in parts)
    return "".join(texts) or None


def _plain(value: Any) -> str:
    """A text, or texts in parts, as one."""
    if isinstance(value, list):
        return "".join(
            part["text"] for part in value if isinstance(part, Mapping) and isinstance(part.get("text"), str)
        )
    return value if isinstance(value, str) else ""


def _is_thought(part: Any) -> bool:
    return isinstance(part, Mapping) and part.get("type") in _THOUGHT


def _is_all(response: str, tokens: str) -> bool:
    """Whether tokens are all of a response, but for what was put around reasoning that came apart."""
    if not tokens or tokens not in response:
        return False
    left = response.replace(tokens, "", 1).replace(THINK[0].strip(), "").replace(THINK[1].strip(), "")
    return not left.strip()


def _tokens(choice: Mapping[str, Any], values: Mapping[str, Any]) -> list[Token] | None:
    """Tokens with their log-probabilities, as OpenAI and vLLM give them with chats or completions, or llama.cpp."""
    logged = choice.get("logprobs")
    try:
        if isinstance(logged, Mapping) and isinstance(logged.get("content"), list):
            return [_token(entry) for entry in logged["content"]]
        if isinstance(logged, Mapping) and isinstance(logged.get("tokens"), list):
            tops = logged.get("top_logprobs") or [None] * len(logged["tokens"])
            entries = zip(logged["tokens"], logged["token_logprobs"], tops, strict=True)
            return [_known(text, logprob, list((top or {}).values())) for text, logprob, top in entries]
        probabilities = values.get("completion_probabilities")
        if isinstance(probabilities, list) and probabilities:
            return [_token(entry) for entry in probabilities]
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError):
        return None
    return None


def _token(entry: Mapping[str, Any]) -> Token:
    text = entry["token"] if "token" in entry else entry["content"]
    top = entry.get("top_logprobs") or []
    return _known(text, entry["logprob"], [choice["logprob"] for choice in top])


def _known(text: str, logprob: float | None, likeliest: Sequence[float]) -> Token:
    finite = [value for value in likeliest if math.isfinite(value)]
    if logprob is None or len(finite) < 2:
        return Token(text, logprob=logprob)
    return Token.from_top(text, logprob, sorted(finite, reverse=True), vocabulary=_VOCABULARY)


CLOSINGS = (
    "</think>",
    "<|end_of_thought|>",
    "<|END_THINKING|>",
    "\u25c1/think\u25b7",
    "</thought>",
    "</thinking>",
    "[/THINK]",
    "</seed:think>",
    "<|channel|>final<|message|>",
    "<|channel|>final <|message|>",
    "<|im_start|>answer\n",
    "\nanswer\n",
)
"""How models end their thinking; the last two are what s1 writes."""


_OPENINGS = {
    "</think>": "<think>",
    "<|end_of_thought|>": "<|begin_of_thought|>",
    "<|END_THINKING|>": "<|START_THINKING|>",
    "\u25c1/think\u25b7": "\u25c1think\u25b7",
    "<|im_start|>answer\n": "<|im_start|>think\n",
    "<|channel|>final <|message|>": "<|channel|>analysis <|message|>",
    "</thought>": "<thought>",
    "</thinking>": "<thinking>",
    "[/THINK]": "[THINK]",
    "</seed:think>": "<seed:think>",
    "<|channel|>final<|message|>": "<|channel|>analysis<|message|>",
}


def opening_of(responses: Sequence[str], close: str | None) -> str | None:
    """The marker that begins the thinking, where the texts that end one have it: texts without it do not think.

    None where they have not begun it: the prompt has, and a text is inside it from the start. One that merely speaks of
    the marker says nothing.
    """
    opening = _OPENINGS.get(close or "")
    if opening is None or close is None:
        return None
    begun = [opening in text.partition(close)[0] for text in responses if close in text]
    return opening if begun and sum(begun) >= 0.9 * len(begun) else None


def closing_of(responses: Sequence[str]) -> str | None:
    """The marker that ends the thinking in a fair share of texts, or None where they do not think aloud."""
    shares = {mark: sum(mark in text for text in responses) / max(1, len(responses)) for mark in CLOSINGS}
    best = max(CLOSINGS, key=lambda mark: shares[mark])
    return best if shares[best] >= 0.2 else None


def format_of(texts: Sequence[LoggedText]) -> str:
    """The answer format that gold answers, else responses, tell."""
    options = sum(
        len(re.findall(r"^[ \t]*\(?(?:[A-J]|[1-9])[.):]\s+\S", text.question, re.MULTILINE)) > 2 for text in texts
    )
    answers = [text.answer for text in texts if text.answer is not None]
    if options > 0.8 * len(texts) and all(FORMATS["option"].value(f"#### {answer}\n") for answer in answers):
        return "option"
    if not answers:
        found = [FORMATS["expression"].value(text.response) for text in texts]
        answers = [value for value in found if value is not None]
    numbers = sum(_is_number(answer) for answer in answers)
    return "number" if numbers >= 0.9 * len(answers) else "expression"


def _is_number(text: str) -> bool:
    return FORMATS["number"].equal(text, text)
