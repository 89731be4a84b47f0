from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any

import pytest

from bitcal_tts.tasks import TaskError, gsm_symbolic, load_task
from bitcal_tts.tasks.stories import COMPARISONS, ENDS, EVENTS, STARTS, Template, UnfitError, problems, tell
from bitcal_tts.tiny.corpus import documents
from bitcal_tts.tiny.equations import equations, parse


def every_template() -> list[Template]:
    plain = itertools.product(STARTS, [(e,) for e in EVENTS], ENDS)
    compared = itertools.product(STARTS, [(c,) for c in COMPARISONS], ("together", "difference"))
    return [Template(*parts) for parts in (*plain, *compared)]


@pytest.mark.parametrize("template", every_template(), ids=" ".join(("{0.start}", "{0.end}")).format)
def test_a_story_is_worked_by_true_equations_that_end_in_its_answer(template: Template) -> None:
    told = 0
    for seed in range(40):
        try:
            problem = tell(template, random.Random(seed))
        except UnfitError:
            continue
        told += 1
        steps = equations(parse(problem.solution))
        assert len(steps) == len(problem.solution.splitlines())  # parse keeps none that is false
        assert steps[-1].result == problem.answer
        assert problem.question.endswith("?")
    assert told >= 5


def test_held_out_templates_are_never_trained_on_and_no_question_is_in_two_splits() -> None:
    drawn = {s: [p.question for p in itertools.islice(problems(s, 0), 400)] for s in ("train", "calibration", "test")}
    for a, b in itertools.combinations(drawn.values(), 2):
        assert not set(a) & set(b)
    held = [t.held_out for t in every_template()]
    assert 0.1 < sum(held) / len(held) < 0.3
    template = next(t for t in every_template() if t.held_out)
    shape = {len(tell(template, random.Random(s)).question.split(".")) for s in range(3)}
    assert shape  # a held-out template can be told; only never for training


def test_the_same_seed_draws_the_same_stories_and_another_one_others() -> None:
    one, again, other = (list(itertools.islice(problems("test", seed), 20)) for seed in (0, 0, 1))
    assert one == again != other


def test_splits_that_are_not_there_are_refused() -> None:
    with pytest.raises(TaskError, match="stories has no split 'unseen'; available: train, calibration, test"):
        load_task("stories", split="unseen")
    with pytest.raises(ValueError, match="split must be one of"):
        next(problems("unseen", 0))


def test_templates_that_the_corpus_leaves_out_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Told by the templates that are asked for, with the real ones counted."""
    asked: set[int] = set()
    real = dict(gsm_symbolic._templates())

    def counting(i: int) -> Callable[[random.Random, float], Any]:
        def draw(rng: random.Random, difficulty: float) -> Any:
            asked.add(i)
            return real[i](rng, difficulty)

        return draw

    monkeypatch.setattr(gsm_symbolic, "_templates", lambda: {i: counting(i) for i in real})
    list(itertools.islice(documents("train", 0, "instruct"), 400))
    assert len(asked) > 40 and not asked & gsm_symbolic.HELD_OUT_TEMPLATES
    list(itertools.islice(gsm_symbolic.problems("test", 0), 400))
    assert asked > gsm_symbolic.HELD_OUT_TEMPLATES
