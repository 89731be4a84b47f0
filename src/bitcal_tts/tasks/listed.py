"""Tasks whose items are listed: in a JSONL file, or in a data set on the hub."""

from __future__ import annotations

import codecs
import hashlib
import json
import re
import string
from fractions import Fraction
from pathlib import Path
from typing import Any

from bitcal_tts.halting.answers import FORMATS, MARKER, as_number, behind_marker
from bitcal_tts.halting.answers.numbers import number_in
from bitcal_tts.installing import install_command
from bitcal_tts.tasks.base import Item, Task, TaskError, read_template
from bitcal_tts.tasks.mathematics import same

GSM8K_HUB_ID = "openai/gsm8k"
MATH_HUB_ID = "HuggingFaceH4/MATH-500"
_NUMBERS = ("gsm8k", "released")
"""Formats whose answers are numbers and nothing else."""
LISTED_FORMATS = {"math": "boxed", "choice": "choice", "code": "code"}
"""Answer formats of tasks that have their own."""


def from_jsonl(name: str, data: str, split: str, answers: str | None = None) -> Task:
    """A task from a local file, every line checked.

    Args:
        name: Of the task.
        data: The file.
        split: Recorded.
        answers: The answer format, where it is not to be told from the gold answers; then there may be none.
    """
    path = Path(data)
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise TaskError(f"cannot read {data}: {error.strerror}") from error
    items: list[Item] = []
    lines: list[int] = []
    unanswered: list[int] = []
    for number, line in enumerate(raw.removeprefix(codecs.BOM_UTF8).split(b"\n"), 1):
        if not line.strip():
            continue
        where = f"{data}, line {number}"
        try:
            row = json.loads(line.decode())
        except UnicodeDecodeError:
            raise TaskError(f"{where}: not UTF-8") from None
        except json.JSONDecodeError as error:
            raise TaskError(f"{where}: not JSON ({error.msg})") from None
        except RecursionError:
            raise TaskError(f"{where}: nested too deeply") from None
        if not isinstance(row, dict):
            raise TaskError(f"{where}: expected a JSON object with 'question' and 'answer'")
        row.setdefault("question", row.get("problem"))
        unknown = name == "jsonl" and answers is not None and row.get("answer") is None
        if unknown:
            unanswered.append(number)
        for key in ("question",) if unknown else ("question", "answer"):
            value = row.get(key)
            if isinstance(value, bool) or not isinstance(value, (str, int, float)):
                hint = "; where no answers are known, --answers says how they are written" if name == "jsonl" else ""
                raise TaskError(f"{where}: the object has no {key!r}; every line needs 'question' and 'answer'{hint}")
            if not str(value).strip() or value != value:
                raise TaskError(f"{where}: {key!r} is empty")
        question, answer = str(row["question"]), "" if unknown else str(row["answer"])
        if name == "choice":
            question, answer = _with_choices(question, answer, row.get("choices"), where)
        try:
            (question + answer).encode()
        except UnicodeEncodeError:
            raise TaskError(f"{where}: holds half a surrogate pair, which is no text") from None
        name_of_item = str(row.get("id", f"{path.stem}-{len(items):05d}"))
        worked = name == "gsm8k" or (name == "jsonl" and MARKER in answer)
        items.append(_gsm8k_item(name_of_item, question, answer) if worked else Item(name_of_item, question, answer))
        lines.append(number)
    if not items:
        raise TaskError(f"{data} holds no items")
    if 0 < len(unanswered) < len(items):
        there = len(items) - len(unanswered)
        raise TaskError(f"{data}, line {unanswered[0]}: the object has no 'answer', which {there} others have")
    if len({item.id for item in items}) != len(items):
        raise TaskError(f"{data} gives the same 'id' to several items")
    identity = {"source": path.name, "data_sha256": hashlib.sha256(raw).hexdigest(), "split": split}
    if name not in LISTED_FORMATS and not unanswered:
        answers = _told_format(items, lines, data, answers)
    return _listed(name, items, identity, answers)


def _told_format(items: list[Item], lines: list[int], data: str, asked: str | None) -> str:
    """The format that is asked for, or that the gold answers tell; where it is of numbers, each of them must be one."""
    texts = [(line, item.answer) for line, item in zip(lines, items, strict=True) if as_number(item.answer) is None]
    numbers = len(items) - len(texts)
    if texts and (asked in _NUMBERS or (asked is None and numbers)):
        line, answer = texts[0]
        what = f"{asked} answers are" if asked else "another is" if numbers == 1 else f"{numbers} others are"
        raise TaskError(
            f"{data}, line {line}: the answer {answer[:60]!r} is no number, and {what}: mend it, or compare all "
            "answers as texts (--answers marked_text) or by the number in them (--answers number)"
        )
    return asked or ("marked_text" if texts else "gsm8k")


def gsm8k_from_hub(split: str) -> Task:
    """GSM8K."""
    rows = _hub_rows("gsm8k", GSM8K_HUB_ID, "main", split)
    items = [_gsm8k_item(f"gsm8k-{split}-{i:05d}", row["question"], row["answer"]) for i, row in enumerate(rows)]
    return _listed("gsm8k", items, {"source": GSM8K_HUB_ID, "split": split})


def math_from_hub(split: str) -> Task:
    """MATH-500."""
    rows = _hub_rows("math", MATH_HUB_ID, None, split)
    items = [Item(f"math-{split}-{i:05d}", row["problem"], row["answer"]) for i, row in enumerate(rows)]
    return _listed("math", items, {"source": MATH_HUB_ID, "split": split})


def _hub_rows(name: str, hub_id: str, config: str | None, split: str) -> Any:
    try:
        from datasets import load_dataset
    except ImportError:
        raise TaskError(
            f"{name} from the hub needs the datasets package: {install_command('hub')}, or give --data FILE.jsonl"
        ) from None
    try:
        return load_dataset(hub_id, config, split=split)
    except Exception as error:  # the hub client raises many kinds
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise TaskError(
            f"cannot load {hub_id} ({split}): {first}; give --data FILE.jsonl to read it locally"
        ) from error


def _listed(name: str, items: list[Item], identity: dict[str, Any], answers: str | None = None) -> Task:
    def draw(n: int, seed: int) -> list[Item]:
        if n > len(items):
            raise TaskError(f"{name} has {len(items)} items, {n} were asked for")
        return items[:n]

    usual = LISTED_FORMATS.get(name, "gsm8k")
    template = _TEMPLATES.get(answers or usual, "marked") if name not in LISTED_FORMATS else name
    return Task(
        name, read_template(template), FORMATS[answers or usual], draw, identity, SCORERS.get(name), size=len(items)
    )


_TEMPLATES = {"gsm8k": "gsm8k", "released": "gsm8k", "boxed": "math", "code": "code"}
"""Prompts that ask for an answer in a format; others ask for text after a marker."""


def _gsm8k_item(identity: str, question: str, answer: str) -> Item:
    return Item(identity, question, behind_marker(answer))


def _with_choices(question: str, answer: str, choices: Any, where: str) -> tuple[str, str]:
    """The question with its choices below, and the letter of the answer, which may be a letter, a number or a text."""
    if (
        not isinstance(choices, list)
        or not 2 <= len(choices) <= 26
        or not all(isinstance(c, (str, int, float)) for c in choices)
    ):
        raise TaskError(f"{where}: the object has no 'choices', a list of 2 to 26 texts")
    letters = string.ascii_uppercase[: len(choices)]
    texts = [str(choice) for choice in choices]
    if answer.strip().upper() in list(letters):
        letter = answer.strip().upper()
    elif answer in texts:
        letter = letters[texts.index(answer)]
    elif answer.isdigit() and int(answer) < len(choices):
        letter = letters[int(answer)]
    else:
        raise TaskError(f"{where}: the answer {answer!r} is none of the choices, their letters or their numbers from 0")
    listed = "\n".join(f"{name}) {text}" for name, text in zip(letters, texts, strict=True))
    return f"{question}\n{listed}", letter


def prints_the_answer(answer: str, item: Item) -> bool:
    """Whether the code in an answer, run, prints what was asked for."""
    from bitcal_tts.tasks.execute import run_code

    printed = run_code(answer)
    return printed is not None and FORMATS["code"].equal(printed, item.answer)


def _same_mathematics(answer: str, item: Item) -> bool:
    """Equality by math-verify; textual equality comes first."""
    if FORMATS["boxed"].equal(answer, item.answer):
        return True
    return same(item.answer, answer)


def same_expression(answer: str, item: Item) -> bool:
    """Equality of expressions as models write them; where both are numbers and nothing else, of numbers."""
    if FORMATS["expression"].equal(answer, item.answer):
        return True
    number, gold = _number_alone(answer), _number_alone(item.answer)
    return number == gold if number is not None and gold is not None else same(item.answer, answer)


def _number_alone(text: str) -> Fraction | None:
    """The number that a text is, or that a letter is said to be; None where more is said of it."""
    name, equals, value = text.rpartition("=")
    return None if _SAYS_MORE.search(text) or (equals and not _NAME.fullmatch(name)) else number_in(value)


_SAYS_MORE = re.compile(r"[<>|\[\]_^]|\\(?:infty|in|le|leq|ge|geq|ne|neq|lt|gt|pm|cup|cap)\b|\bor\b|\d\s*,\s*(?!\d{3})")
_NAME = re.compile(r"[\s$]*[A-Za-z](?:\([A-Za-z]\))?\s*")

SCORERS = {"math": _same_mathematics}
"""Tasks whose equality of answers is not their format's."""
