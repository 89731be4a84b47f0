"""What the models in the box are taught: worked problems in two styles, with mistakes that are found.

*instruct*: solution, `#### n`, a check of every equation, `#### n` again.
*thinking*: `<think>`, a first pass, a statement of the answer, one to four check rounds, `</think>`, `#### n`.

In some documents one equation is falsified and carried through; a check finds it, sometimes only a later
one, and the work is redone. Wording varies, so that nothing downstream can live on one fixed phrase.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from fractions import Fraction
from typing import NamedTuple

from bitcal_tts.tasks.base import read_template
from bitcal_tts.tasks.gsm_symbolic import Problem, problems
from bitcal_tts.tiny.equations import Equation, Solution, break_one, equations, parse, render

STYLES = ("instruct", "thinking")
MISTAKE_RATE = 0.16
MAX_ROUNDS = 4

STATEMENTS = (
    "So the answer is {n}.",
    "That gives {n}.",
    "The result is {n}.",
    "I get {n}.",
    "So it comes to {n}.",
    "Therefore the answer is {n}.",
    "Thus we have {n}.",
    "The final value is {n}.",
    "This makes {n}.",
    "Hence the result is {n}.",
    "**Answer:** {n}",
    "So we end up with {n}.",
    "My answer is {n}.",
    "In total that is {n}.",
)
CHECKS = (
    "Let me check.",
    "Let me verify this.",
    "Wait, let me go over it again.",
    "I should double-check.",
    "Checking the work.",
    "Hmm, is that right?",
    "Let me make sure.",
    "Now to confirm it.",
    "Let me look at this once more.",
    "To be safe, I will test it.",
    "Let me review the steps.",
    "But first, a check.",
)
REDOS = (
    "Redo.",
    "Let me redo it.",
    "I made a mistake there.",
    "That step is wrong, so again.",
    "Starting over.",
    "Let me fix that.",
    "No, that is off. Once more.",
    "Correcting this.",
    "So I have to do it again.",
    "An error. Let me repeat the work.",
    "Actually, that was not right. Again.",
    "Back to the start.",
)
CONFIRMATIONS = (
    "All steps hold.",
    "Everything checks out.",
    "That is consistent.",
    "No mistake found.",
    "Good.",
    "It holds.",
    "The steps are right.",
    "That agrees.",
    "Fine.",
    "Yes, it works.",
)
RESOLVES = (
    "Solving it again from the start.",
    "Another pass over the problem.",
    "Let me work through it anew.",
    "Once more, step by step.",
    "A second attempt.",
)
CHAINS = ("In short:", "Only the numbers:", "The short chain:", "Briefly:", "Just the arithmetic:")


class Document(NamedTuple):
    """One training example, before the chat template."""

    prompt: str
    response: str
    style: str
    mistake: Equation | None


def documents(split: str, seed: int, style: str) -> Iterator[Document]:
    """Documents of a split in one style, the same for the same seed, without end."""
    if style not in STYLES:
        raise ValueError(f"style must be one of {', '.join(STYLES)}, got {style!r}")
    template = read_template("gsm_symbolic")  # the models are trained with the prompt the task asks with
    for i, problem in enumerate(problems(split, seed)):
        rng = random.Random(f"{style} {split} {seed} {i}")  # noqa: S311
        solution = parse(problem.solution)
        if not equations(solution):
            continue
        write = _instruct if style == "instruct" else _thinking
        response, mistake = write(problem, solution, rng)
        yield Document(template.replace("{question}", problem.question), response, style, mistake)


def rounds(solution: Solution) -> int:
    """How many check rounds a problem gets: a function of the problem alone, so that greedy decoding ends."""
    steps = len(equations(solution))
    digits = max(len(e.result.partition(".")[0]) for e in equations(solution))
    wanted = 1 + (steps >= 2) + (digits >= 3) + (digits >= 4)
    # Long work is checked less often, so that nearly all responses end within 512 tokens.
    room = MAX_ROUNDS - sum(len(render(solution)) > limit for limit in (160, 260, 400))
    return min(wanted, room)


class _Draft(NamedTuple):
    """A solution as written, which may be wrong at `bad`."""

    solution: Solution
    answer: str
    bad: int | None


def _first_pass(problem: Problem, solution: Solution, rng: random.Random) -> _Draft:
    if rng.random() < MISTAKE_RATE:
        broken = break_one(solution, problem.answer, rng)
        if broken is not None:
            return _Draft(*broken)
    return _Draft(solution, problem.answer, None)


def _mistake(draft: _Draft) -> Equation | None:
    return None if draft.bad is None else equations(draft.solution)[draft.bad]


def _instruct(problem: Problem, solution: Solution, rng: random.Random) -> tuple[str, Equation | None]:
    draft = _first_pass(problem, solution, rng)
    lines = [render(draft.solution), f"#### {draft.answer}", rng.choice(CHECKS), *_every_step(draft)]
    if draft.bad is None:
        lines.append(rng.choice(CONFIRMATIONS))
    else:
        lines += [rng.choice(REDOS), render(solution)]
    return "\n".join([*lines, f"#### {problem.answer}"]), _mistake(draft)


def _thinking(problem: Problem, solution: Solution, rng: random.Random) -> tuple[str, Equation | None]:
    first = draft = _first_pass(problem, solution, rng)
    good = _Draft(solution, problem.answer, None)
    count = rounds(solution)
    lines = [render(draft.solution), _state(draft, rng)]
    for i in range(count):
        kind = rng.choice(("last", "every", "every", "again", "chain"))
        if draft.bad is not None and i == count - 1:
            kind = "every"
        lines.append(rng.choice(CHECKS))
        found = _finds(draft, kind)
        lines += _round(draft, solution, kind, rng)
        if found:
            draft = good
        lines.append(_state(draft, rng))
    body = "\n".join(lines)
    return f"<think>\n{body}\n</think>\n\n#### {draft.answer}", _mistake(first)


def _finds(draft: _Draft, kind: str) -> bool:
    """A look at the last step sees only a mistake there; every other kind of check sees any."""
    if draft.bad is None:
        return False
    return kind != "last" or draft.bad == len(equations(draft.solution)) - 1


def _round(draft: _Draft, solution: Solution, kind: str, rng: random.Random) -> list[str]:
    found = _finds(draft, kind)
    if kind == "again":
        return [rng.choice(RESOLVES), render(solution)]
    if kind == "chain":
        return [f"{rng.choice(CHAINS)} {', '.join(map(str, equations(solution)))}."]
    steps = _every_step(draft)
    lines = steps[-1:] if kind == "last" else steps
    if not found:
        return [*lines, rng.choice(CONFIRMATIONS)]
    return [*lines, rng.choice(REDOS), render(solution)]


def _every_step(draft: _Draft) -> list[str]:
    """The equations one by one, up to the first that is false."""
    lines = []
    for i, equation in enumerate(equations(draft.solution)):
        if i == draft.bad:
            lines.append(f"{equation.left} is not {equation.result} but {_decimal(equation.evaluate())}")
            break
        lines.append(f"{equation} ok")
    return lines


def _decimal(value: Fraction) -> str:
    return f"{float(value):.6f}".rstrip("0").rstrip(".")


def _state(draft: _Draft, rng: random.Random) -> str:
    return rng.choice(STATEMENTS).format(n=draft.answer)
