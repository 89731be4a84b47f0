"""Tasks by name."""

from __future__ import annotations

import hashlib
import itertools
import json
from pathlib import Path
from typing import Any

from bitcal_tts.halting.answers import FORMATS, as_number
from bitcal_tts.tasks.base import Item, Task, TaskError, read_template

TASKS = ("gsm_symbolic", "gsm8k", "jsonl")
GSM8K_HUB_ID = "openai/gsm8k"


def load_task(
    name: str = "gsm_symbolic",
    *,
    data: str | None = None,
    split: str = "test",
    template: str | None = None,
    answers: str | None = None,
) -> Task:
    """A task by name.

    Args:
        name: `gsm_symbolic` (generated; the default), `gsm8k`, `jsonl`, or any reasoning-gym data set.
        data: A local JSONL file with `question` and `answer` (for gsm8k in place of the hub, for jsonl needed).
        split: `test`, or `calibration` and `train` where the task has them.
        template: A prompt template file with `{question}` in it, in place of the task's own.
        answers: An answer format, in place of the task's own: gsm8k, released, marked_text.
    """
    task = _load(name, data, split)
    changes: dict[str, Any] = {}
    if template is not None:
        changes["template"] = _read_user_template(template)
    if answers is not None:
        if answers not in FORMATS:
            raise TaskError(f"unknown answer format {answers!r}; available: {', '.join(FORMATS)}")
        changes["answers"] = FORMATS[answers]
    return Task(**{**task.__dict__, **changes})


def _load(name: str, data: str | None, split: str) -> Task:
    if name == "gsm_symbolic":
        return _gsm_symbolic(split)
    if name == "gsm8k":
        return _from_jsonl("gsm8k", data, split) if data else _gsm8k_from_hub(split)
    if name == "jsonl":
        if data is None:
            raise TaskError("task 'jsonl' needs --data FILE with a JSON object a line: question, answer")
        return _from_jsonl("jsonl", data, split)
    return _reasoning_gym(name, split)


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

    return Task(
        name, read_template("marked"), FORMATS["marked_text"], draw, {"source": "reasoning-gym", "split": split}, score
    )


def _gsm8k_from_hub(split: str) -> Task:
    try:
        from datasets import load_dataset
    except ImportError:
        raise TaskError(
            "gsm8k from the hub needs the datasets package: pip install 'bitcal-tts[hub]', or give --data FILE.jsonl"
        ) from None
    try:
        rows = load_dataset(GSM8K_HUB_ID, "main", split=split)
    except Exception as error:  # the hub client raises many kinds
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise TaskError(
            f"cannot load {GSM8K_HUB_ID} ({split}): {first}; give --data FILE.jsonl to read it locally"
        ) from error
    items = [_gsm8k_item(f"gsm8k-{split}-{i:05d}", row["question"], row["answer"]) for i, row in enumerate(rows)]
    return _listed("gsm8k", items, {"source": GSM8K_HUB_ID, "split": split})


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
        for key in ("question", "answer"):
            if not isinstance(row.get(key), (str, int, float)):
                raise TaskError(f"{where}: the object has no {key!r}; every line needs 'question' and 'answer'")
        question, answer = str(row["question"]), str(row["answer"])
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


def _listed(name: str, items: list[Item], identity: dict[str, Any]) -> Task:
    def draw(n: int, seed: int) -> list[Item]:
        if n > len(items):
            raise TaskError(f"{name} has {len(items)} items, {n} were asked for")
        return items[:n]

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
