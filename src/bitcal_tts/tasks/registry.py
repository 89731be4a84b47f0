"""Tasks by name."""

from __future__ import annotations

import hashlib
import itertools
import json
import string
from pathlib import Path
from typing import Any

from bitcal_tts.halting.answers import FORMATS, as_number
from bitcal_tts.tasks.base import Item, Task, TaskError, read_template

TASKS = ("gsm_symbolic", "gsm8k", "math", "choice", "code", "codeio", "jsonl")
GSM8K_HUB_ID = "openai/gsm8k"
MATH_HUB_ID = "HuggingFaceH4/MATH-500"
_FORMATS = {"math": "boxed", "choice": "choice", "code": "code"}


def load_task(
    name: str = "gsm_symbolic",
    *,
    data: str | None = None,
    split: str = "test",
    template: str | None = None,
    answers: str | None = None,
    execute: bool = False,
) -> Task:
    """A task by name.

    Args:
        name: `gsm_symbolic` (generated; the default), `gsm8k`, `math` (MATH-500), `choice`, `code`, `codeio` (predict a
            program's output), `jsonl`, or any reasoning-gym data set.
        data: A local JSONL file with `question` and `answer` (for gsm8k and math in place of the hub, for jsonl,
            choice and code needed). A choice question has `choices`, a list, as well.
        split: `test`, or `calibration` and `train` where the task has them.
        template: A prompt template file with `{question}` in it, in place of the task's own.
        answers: An answer format, in place of the task's own: gsm8k, released, marked_text, boxed, choice, code.
        execute: For `code`: run the Python that the model writes, in a limited subprocess, and compare what it prints.
    """
    if execute and name != "code":
        raise TaskError(f"only the task 'code' executes what a model writes, not {name!r}")
    task = _load(name, data, split)
    changes: dict[str, Any] = {}
    if template is not None:
        changes["template"] = _read_user_template(template)
    if answers is not None:
        if answers not in FORMATS:
            raise TaskError(f"unknown answer format {answers!r}; available: {', '.join(FORMATS)}")
        changes["answers"] = FORMATS[answers]
    if execute:
        changes |= {"scorer": _prints_the_answer, "identity": {**task.identity, "execute": True}}
    return Task(**{**task.__dict__, **changes})


def _load(name: str, data: str | None, split: str) -> Task:
    if name == "gsm_symbolic":
        return _gsm_symbolic(split)
    if name == "gsm8k":
        return _from_jsonl("gsm8k", data, split) if data else _gsm8k_from_hub(split)
    if name == "math":
        return _from_jsonl("math", data, split) if data else _math_from_hub(split)
    if name in ("jsonl", "choice", "code"):
        if data is None:
            more = ", choices" if name == "choice" else ""
            raise TaskError(f"task {name!r} needs --data FILE with a JSON object a line: question, answer{more}")
        return _from_jsonl(name, data, split)
    return _reasoning_gym(name, split)


def restore_task(name: str, answers: str, *, split: str = "test", execute: bool = False) -> Task:
    """The task whose items are in traces already: its answer format and scorer, without data file or hub."""
    if name not in ("gsm8k", "jsonl", *_FORMATS):
        return load_task(name, split=split, answers=answers)
    scorer = _prints_the_answer if execute else _SCORERS.get(name)
    return Task(name, "{question}", FORMATS[answers], lambda n, seed: [], scorer=scorer)


def _gsm_symbolic(split: str) -> Task:
    from bitcal_tts.tasks.gsm_symbolic import SPLITS, problems

    if split not in SPLITS:
        raise TaskError(f"gsm_symbolic has no split {split!r}; available: {', '.join(SPLITS)}")

    def draw(n: int, seed: int) -> list[Item]:
        drawn = itertools.islice(problems(split, seed), n)
        return [Item(f"{split}-{seed}-{i:05d}", p.question, p.answer) for i, p in enumerate(drawn)]

    return Task("gsm_symbolic", read_template("gsm_symbolic"), FORMATS["gsm8k"], draw, {"split": split})


def _reasoning_gym(name: str, split: str) -> Task:
    import reasoning_gym
    from reasoning_gym.factory import DATASETS

    if name not in DATASETS:
        raise TaskError(
            f"unknown task {name!r}; available: {', '.join(TASKS)} and the {len(DATASETS)} data sets of reasoning-gym, "
            f"such as {', '.join(sorted(DATASETS)[:4])}"
        )

    def draw(n: int, seed: int) -> list[Item]:
        # reasoning-gym draws item i of seed s like item i - 1 of seed s + 1: hashed seeds lie far apart.
        far = int.from_bytes(hashlib.sha256(f"{name} {split} {seed}".encode()).digest()[:4], "big")
        entries = reasoning_gym.create_dataset(name, seed=far, size=n)
        return [
            Item(
                f"{seed}-{i:05d}",
                e["question"],
                str(e["answer"]),
                json.loads(json.dumps(e["metadata"], default=str)),
            )
            for i, e in enumerate(entries)
        ]

    judge = reasoning_gym.create_dataset(name, seed=0, size=1)

    def score(answer: str, item: Item) -> bool:
        entry = {"question": item.question, "answer": item.answer, "metadata": item.extra}
        return float(judge.score_answer(answer, entry)) >= 1.0

    shape, template = ("code", "code") if name == "codeio" else ("marked_text", "marked")
    identity = {"source": "reasoning-gym", "split": split}
    return Task(name, read_template(template), FORMATS[shape], draw, identity, score)


def _gsm8k_from_hub(split: str) -> Task:
    rows = _hub_rows("gsm8k", GSM8K_HUB_ID, "main", split)
    items = [_gsm8k_item(f"gsm8k-{split}-{i:05d}", row["question"], row["answer"]) for i, row in enumerate(rows)]
    return _listed("gsm8k", items, {"source": GSM8K_HUB_ID, "split": split})


def _math_from_hub(split: str) -> Task:
    rows = _hub_rows("math", MATH_HUB_ID, None, split)
    items = [Item(f"math-{split}-{i:05d}", row["problem"], row["answer"]) for i, row in enumerate(rows)]
    return _listed("math", items, {"source": MATH_HUB_ID, "split": split})


def _hub_rows(name: str, hub_id: str, config: str | None, split: str) -> Any:
    try:
        from datasets import load_dataset
    except ImportError:
        raise TaskError(
            f"{name} from the hub needs the datasets package: pip install 'bitcal-tts[hub]', or give --data FILE.jsonl"
        ) from None
    try:
        return load_dataset(hub_id, config, split=split)
    except Exception as error:  # the hub client raises many kinds
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise TaskError(
            f"cannot load {hub_id} ({split}): {first}; give --data FILE.jsonl to read it locally"
        ) from error


def _from_jsonl(name: str, data: str, split: str) -> Task:
    path = Path(data)
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise TaskError(f"cannot read {data}: {error.strerror}") from error
    items: list[Item] = []
    for number, line in enumerate(raw.decode("utf-8-sig", errors="replace").splitlines(), 1):
        if not line.strip():
            continue
        where = f"{data}, line {number}"
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise TaskError(f"{where}: not JSON ({error.msg})") from None
        if not isinstance(row, dict):
            raise TaskError(f"{where}: expected a JSON object with 'question' and 'answer'")
        row.setdefault("question", row.get("problem"))
        for key in ("question", "answer"):
            if not isinstance(row.get(key), (str, int, float)):
                raise TaskError(f"{where}: the object has no {key!r}; every line needs 'question' and 'answer'")
        question, answer = str(row["question"]), str(row["answer"])
        if name == "choice":
            question, answer = _with_choices(question, answer, row.get("choices"), where)
        try:
            (question + answer).encode()
        except UnicodeEncodeError:
            raise TaskError(f"{where}: holds half a surrogate pair, which is no text") from None
        identity = str(row.get("id", f"{path.stem}-{len(items):05d}"))
        items.append(_gsm8k_item(identity, question, answer) if name == "gsm8k" else Item(identity, question, answer))
    if not items:
        raise TaskError(f"{data} holds no items")
    if len({item.id for item in items}) != len(items):
        raise TaskError(f"{data} gives the same 'id' to several items")
    return _listed(name, items, {"source": path.name, "data_sha256": hashlib.sha256(raw).hexdigest(), "split": split})


def _gsm8k_item(identity: str, question: str, answer: str) -> Item:
    return Item(identity, question, answer.rpartition("####")[2].strip())


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


def _prints_the_answer(answer: str, item: Item) -> bool:
    from bitcal_tts.tasks.execute import run_code

    printed = run_code(answer)
    return printed is not None and FORMATS["code"].equal(printed, item.answer)


def _same_mathematics(answer: str, item: Item) -> bool:
    """Equality by math-verify, which knows that 1/2 is 0.5 and x + 1 is 1 + x; textual equality comes first."""
    if FORMATS["boxed"].equal(answer, item.answer):
        return True
    try:
        from math_verify import parse, verify
    except ImportError:
        raise TaskError("the task 'math' needs math-verify: pip install 'bitcal-tts[tasks]'") from None
    # No timeout of its own, which would use signals and only work in the main thread.
    gold, given = (parse(f"${text}$", parsing_timeout=None) for text in (item.answer, answer))
    return bool(gold and given and verify(gold, given, timeout_seconds=None))


_SCORERS = {"math": _same_mathematics}


def _listed(name: str, items: list[Item], identity: dict[str, Any]) -> Task:
    def draw(n: int, seed: int) -> list[Item]:
        if n > len(items):
            raise TaskError(f"{name} has {len(items)} items, {n} were asked for")
        return items[:n]

    if name in _FORMATS:
        return Task(name, read_template(name), FORMATS[_FORMATS[name]], draw, identity, _SCORERS.get(name))
    numeric = all(as_number(item.answer) is not None for item in items)
    shape = "gsm8k" if numeric else "marked_text"
    return Task(name, read_template("gsm8k" if numeric else "marked"), FORMATS[shape], draw, identity)


def _read_user_template(path: str) -> str:
    try:
        template = Path(path).read_text(encoding="utf-8").rstrip("\n")
    except OSError as error:
        raise TaskError(f"cannot read the prompt template {path}: {error.strerror}") from error
    if "{question}" not in template:
        raise TaskError(f"the prompt template {path} has no {{question}} in it")
    return template
