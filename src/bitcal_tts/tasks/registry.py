"""Tasks by name."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

from bitcal_tts.halting.answers import FORMATS
from bitcal_tts.halting.checks import did_you_mean
from bitcal_tts.tasks.base import Item, Task, TaskError, read_template
from bitcal_tts.tasks.drawing import far_seed
from bitcal_tts.tasks.listed import (
    LISTED_FORMATS,
    SCORERS,
    from_jsonl,
    gsm8k_from_hub,
    math_from_hub,
    prints_the_answer,
    same_expression,
)

TEXTS = "texts"
"""The task of texts that were imported: whatever they were asked."""
GENERATED = ("gsm_symbolic", "stories")
"""Tasks whose problems are drawn, without end."""
_READ = ("gsm8k", "math", "choice", "code", "jsonl")
"""Tasks whose problems may come from a file."""
TASKS = (*GENERATED, *_READ, "codeio")


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
        name: `gsm_symbolic` (generated; the default), `stories` (generated, of templates that no
            model in the box has seen), `gsm8k`, `math` (MATH-500), `choice`, `code`, `codeio` (predict a
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
    if answers is not None and answers not in FORMATS:
        meant = did_you_mean(answers, FORMATS)
        raise TaskError(f"unknown answer format {answers!r}{meant}; available: {', '.join(FORMATS)}")
    task = _load(name, data, split, answers)
    changes: dict[str, Any] = {}
    if template is not None:
        changes["template"] = _read_user_template(template)
    if answers is not None:
        changes["format"] = FORMATS[answers]
    if execute:
        changes |= {"scorer": prints_the_answer, "identity": {**task.identity, "execute": True}}
    return Task(**{**task.__dict__, **changes})


def _load(name: str, data: str | None, split: str, answers: str | None) -> Task:
    if data is not None and split != "test":
        raise TaskError(f"a file is one split: give the {split} problems in a file of their own, without --split")
    if data is not None and name not in _READ:
        raise TaskError(f"the task {name!r} makes its own problems and reads no file: --task jsonl reads {data}")
    if name in GENERATED:
        return _generated(name, split)
    if name == "gsm8k":
        return from_jsonl("gsm8k", data, split) if data else gsm8k_from_hub(split)
    if name == "math":
        return from_jsonl("math", data, split) if data else math_from_hub(split)
    if name in _READ:
        if data is None:
            more = ", choices" if name == "choice" else ""
            raise TaskError(f"task {name!r} needs --data FILE with a JSON object a line: question, answer{more}")
        return from_jsonl(name, data, split, answers)
    return _reasoning_gym(name, split)


def restore_task(name: str, answers: str, *, split: str = "test", execute: bool = False) -> Task:
    """The task whose items are in traces already: its answer format and scorer, without data file or hub."""
    if name not in ("gsm8k", "jsonl", TEXTS, *LISTED_FORMATS):
        return load_task(name, split=split, answers=answers)
    scorer = prints_the_answer if execute else SCORERS.get(name)
    if name == TEXTS and answers == "expression":
        scorer = same_expression
    return Task(name, "{question}", FORMATS[answers], lambda n, seed: [], scorer=scorer)


def _generated(name: str, split: str) -> Task:
    from bitcal_tts.tasks import gsm_symbolic, stories

    source = stories if name == "stories" else gsm_symbolic
    if split not in source.SPLITS:
        raise TaskError(f"{name} has no split {split!r}; available: {', '.join(source.SPLITS)}")

    def draw(n: int, seed: int) -> list[Item]:
        drawn = itertools.islice(source.problems(split, seed), n)
        return [Item(f"{split}-{seed}-{i:05d}", p.question, p.answer) for i, p in enumerate(drawn)]

    return Task(name, read_template("gsm_symbolic"), FORMATS["gsm8k"], draw, {"split": split})


def _reasoning_gym(name: str, split: str) -> Task:
    """A data set, and how hard it is to be: `chain_sum:max_terms=2,max_digits=1`."""
    import reasoning_gym
    from reasoning_gym.factory import DATASETS

    data_set, _, told = name.partition(":")
    if data_set not in DATASETS:
        meant = did_you_mean(data_set, [*TASKS, *DATASETS])
        raise TaskError(
            f"unknown task {name!r}{meant}; available: {', '.join(TASKS)} and the {len(DATASETS)} data sets of "
            f"reasoning-gym, such as {', '.join(sorted(DATASETS)[:4])}"
        )

    options = _options(name, told)

    def draw(n: int, seed: int) -> list[Item]:
        entries = reasoning_gym.create_dataset(data_set, seed=far_seed(f"{name} {split} {seed}"), size=n, **options)
        return [
            Item(
                f"{seed}-{i:05d}",
                e["question"],
                str(e["answer"]),
                json.loads(json.dumps(e["metadata"], default=str)),
            )
            for i, e in enumerate(entries)
        ]

    try:
        judge = reasoning_gym.create_dataset(data_set, seed=0, size=1, **options)
    except (TypeError, AssertionError, ValueError) as error:
        raise TaskError(f"the task {name!r} cannot be had: {error}") from None

    def score(answer: str, item: Item) -> bool:
        entry = {"question": item.question, "answer": item.answer, "metadata": item.extra}
        return float(judge.score_answer(answer, entry)) >= 1.0

    shape, template = ("code", "code") if data_set == "codeio" else ("marked_text", "marked")
    identity = {"source": "reasoning-gym", "split": split}
    return Task(name, read_template(template), FORMATS[shape], draw, identity, score)


def _options(name: str, told: str) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for part in filter(None, told.split(",")):
        key, equals, value = part.partition("=")
        if not equals:
            raise TaskError(f"options of a task are KEY=VALUE, as in chain_sum:max_terms=2; got {part!r} in {name!r}")
        try:
            options[key.strip()] = json.loads(value)
        except ValueError:
            options[key.strip()] = value
    return options


def _read_user_template(path: str) -> str:
    try:
        template = Path(path).read_text(encoding="utf-8").rstrip("\n")
    except OSError as error:
        raise TaskError(f"cannot read the prompt template {path}: {error.strerror}") from error
    if "{question}" not in template:
        raise TaskError(f"the prompt template {path} has no {{question}} in it")
    return template
