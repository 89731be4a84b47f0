"""What the models in the box are taught: worked problems in two styles, written so as real reasoning is written.

*instruct*: solution, `#### n`, a check of every equation, `#### n` again.
*thinking*: `<think>`, the problem in its own words, a first pass, a conclusion, rounds of checks, `</think>`, the
solution, `#### n`.

A first conclusion may be wrong: it comes a step too early, an equation is false, or an operator is misread; all of it
is carried through and found by a later round. A right conclusion may be spoilt by a doubt; not all of those are mended.
Intermediate totals are announced in the words of answers (`wording.py`).

`temperature` shows what a model that learnt the corpus perfectly would write at that temperature: rare choices become
rarer. It is for looking at, before anything is trained; `scripts/corpus_statistics.py` compares it with real texts.
"""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import partial
from typing import NamedTuple

from bitcal_tts.tasks.base import read_template
from bitcal_tts.tasks.drawing import Problem
from bitcal_tts.tasks.gsm_symbolic import HELD_OUT_TEMPLATES
from bitcal_tts.tasks.gsm_symbolic import problems as symbolic_problems
from bitcal_tts.tasks.stories import problems as stories
from bitcal_tts.tiny.equations import Equation, Solution, break_one, equations, misread_one, parse, render
from bitcal_tts.tiny.sums import problems as sums
from bitcal_tts.tiny.wording import say

STYLES = ("instruct", "thinking")
SOURCES: dict[str, tuple[Callable[[str, int], Iterator[Problem]], str, float]] = {
    "stories": (stories, "gsm_symbolic", 0.5),
    "gsm_symbolic": (partial(symbolic_problems, without=HELD_OUT_TEMPLATES), "gsm_symbolic", 0.42),
    "sums": (sums, "marked", 0.08),
}
"""Where problems come from, the prompt they are asked with, their share."""
MAX_ROUNDS = 7
# How often, at temperature 1; at 0.6 a third of the first conclusions are wrong.
EARLY, SLIP, MISREAD = 0.40, 0.08, 0.16  # a first conclusion that comes too early, is false, is misread
SPOILT = 0.08  # a right one, a round
TOTALS = 0.32  # an intermediate total is announced
STRONG_FIRST, STRONG = 0.42, 0.95  # in words that say that it is the answer: up to the first conclusion, after it
MUSES = 0.5  # a round thinks aloud

_LOWERED = frozenset(
    ["The", "That", "This", "So", "In", "He", "She", "With", "Now", "After", "There", "Each", "All", "Then", "They"]
)
_SENTENCES = re.compile(r"(?<=[.!?])\s+")
_INVERSE = {"+": "-", "-": "+", "*": "/", "/": "*"}


class Document(NamedTuple):
    """One training example, before the chat template.

    `answer` is the right one, `final` what the text ends with; `first` is the first conclusion and `slip` the false
    equation, where there is one.
    """

    prompt: str
    response: str
    style: str
    answer: str
    final: str
    first: str
    slip: Equation | None


class Dice:
    """Random choices, as they would be made at a temperature."""

    def __init__(self, seed: str, temperature: float = 1.0) -> None:
        self.rng = random.Random(seed)  # noqa: S311
        self._power = 1 / temperature

    def chance(self, share: float, ways: int = 1) -> bool:
        """True in a share of cases; `ways` is among how many equally likely forms that share is spread."""
        taken = float(ways * (share / ways) ** self._power)
        return self.rng.random() * (taken + float((1 - share) ** self._power)) < taken

    def pick(self, **weights: float) -> str:
        """One of several, by weight."""
        return self.rng.choices(list(weights), [w**self._power for w in weights.values()])[0]

    def say(self, rule: str, **values: object) -> str:
        """A sentence by a rule of the grammar."""
        return say(self.rng, rule, **values)


class Work(NamedTuple):
    """A solution as somebody believes it to be, line by line."""

    solution: Solution
    answer: str
    slip: int | None = None
    """The equation that is false."""
    misread: tuple[int, str, str] | None = None
    """The equation whose operator was misread; its left-hand side as it should be, and as it is."""

    @property
    def steps(self) -> list[Equation]:
        """Its equations."""
        return equations(self.solution)

    @property
    def lines(self) -> list[Solution]:
        """Its lines, none without an equation's whole."""
        lines: list[list[str | Equation]] = [[]]
        for piece in self.solution:
            if isinstance(piece, Equation):
                lines[-1].append(piece)
                continue
            first, *more = piece.split("\n")
            lines[-1].append(first)
            lines += [[part] for part in more]
        return [tuple(line) for line in lines if any(part != "" for part in line)]


def documents(split: str, seed: int, style: str, temperature: float = 1.0) -> Iterator[Document]:
    """Documents of a split in one style, the same for the same seed, without end."""
    if style not in STYLES:
        raise ValueError(f"style must be one of {', '.join(STYLES)}, got {style!r}")
    drawn = {name: source(split, seed) for name, (source, _, _) in SOURCES.items()}
    templates = {name: read_template(template) for name, (_, template, _) in SOURCES.items()}
    write = _instruct if style == "instruct" else _thinking
    for i in itertools.count():
        dice = Dice(f"{style} {split} {seed} {i}", temperature)
        name = dice.rng.choices(list(SOURCES), [share for _, _, share in SOURCES.values()])[0]
        problem = next(drawn[name])
        right = Work(parse(problem.solution), problem.answer)
        if not right.steps:
            continue
        first, last, response = write(problem, right, dice)
        slip = None if first.slip is None else first.steps[first.slip]
        yield Document(
            templates[name].replace("{question}", problem.question),
            response, style, problem.answer, last.answer, first.answer, slip,
        )  # fmt: skip


def rounds(work: Work) -> int:
    """How many rounds a problem gets: nearly a function of the problem, so that greedy decoding ends."""
    steps = len(work.steps)
    digits = max(len(e.result.partition(".")[0]) for e in work.steps)
    return min(2 + (steps >= 2) + (steps >= 4) + (digits >= 2) + (digits >= 3), MAX_ROUNDS - 1)


def _instruct(problem: Problem, right: Work, dice: Dice) -> tuple[Work, Work, str]:
    draft = (_slipped(right, dice) if dice.chance(0.16) else None) or right
    lines = [render(draft.solution), f"#### {draft.answer}", dice.say("checks"), *_verdicts(draft)]
    if draft is right:
        lines.append(dice.say("confirms"))
    else:
        lines += [dice.say("redoes"), render(right.solution)]
    return draft, right, "\n".join([*lines, f"#### {right.answer}"])


def _verdicts(work: Work) -> list[str]:
    """The equations one by one, up to the first that is false."""
    lines = []
    for i, equation in enumerate(work.steps):
        if i == work.slip:
            lines.append(_correction(equation))
            break
        lines.append(f"{equation} ok")
    return lines


def _thinking(problem: Problem, right: Work, dice: Dice) -> tuple[Work, Work, str]:
    writer = _Thinker(problem, right, dice)
    first, last = writer.think()
    body = "\n\n".join(writer.paragraphs)
    written = f"{render(last.solution)}\n" if dice.chance(0.85) else ""
    return first, last, f"<think>\n{body}\n</think>\n\n{written}#### {last.answer}"


class _Thinker:
    """Writes one text of thinking, a paragraph at a time."""

    def __init__(self, problem: Problem, right: Work, dice: Dice) -> None:
        *self.facts, self.question = _SENTENCES.split(problem.question)
        self.right, self.dice = right, dice
        self.paragraphs: list[str] = []
        self.strong = STRONG_FIRST

    def think(self) -> tuple[Work, Work]:
        """Write it all; the first draft and the last."""
        self._open()
        first = draft = self._first_draft()
        self._add(*self._story(draft), self._announce(draft.answer))
        self.strong = STRONG
        count = rounds(self.right) + {"less": -1, "same": 0, "more": 1}[self.dice.pick(less=0.2, same=0.6, more=0.2)]
        spoilt = False
        for i in range(count):
            last = i == count - 1
            if draft is not self.right and not spoilt and (last or self.dice.chance(0.75)):
                self._find(draft)
                draft = self.right
            elif draft is self.right and not spoilt and self.dice.chance(SPOILT, ways=2):
                other = _misread(self.right, self.dice)
                if other is not None:
                    spoilt, mended = True, self.dice.chance(0.65)
                    self._spoil(other, mended)
                    draft = self.right if mended else other
            else:
                self._round(draft)
        if self.dice.chance(0.7):
            self._add(self.dice.say("ends", n=draft.answer))
        return first, draft

    def _open(self) -> None:
        sentences = [self.dice.say("begins")]
        if self.facts and self.dice.chance(0.95):
            some = self.dice.rng.randint(1, len(self.facts))
            quoted = self.facts[: self.dice.rng.choice((len(self.facts), some))]
            sentences.append(self.dice.say("given", quote=" ".join(quoted)))
        if self.dice.chance(0.85):
            sentences.append(self.dice.say("asked", quote=self.question))
        if self.dice.chance(0.8):
            sentences += [self.dice.say("muses"), self.dice.say("plans")]
        self._add(*sentences)

    def _first_draft(self) -> Work:
        if len(self.right.steps) > 1 and self.dice.chance(EARLY):
            return _cut(self.right) or self.right
        if self.dice.chance(SLIP, ways=8):
            return _slipped(self.right, self.dice) or self.right
        if self.dice.chance(MISREAD, ways=2):
            return _misread(self.right, self.dice) or self.right
        return self.right

    def _story(self, work: Work, skip: int = 0) -> list[str]:
        """The lines as they stand, with links, and with intermediate totals in the words of answers."""
        sentences = []
        lines = work.lines[skip:]
        for i, line in enumerate(lines):
            text = render(line).strip()
            if text[0].isalpha() and not text.endswith(":") and self.dice.chance(0.3):
                first, _, rest = text.partition(" ")
                text = f"{self.dice.say('links').capitalize()} {first.lower() if first in _LOWERED else first} {rest}"
            sentences.append(text if text.endswith((".", "!", "?", ":")) else text + ".")
            found = equations(line)
            if found and i < len(lines) - 1 and self.dice.chance(TOTALS):
                sentences.append(self._announce(found[-1].result))
        return sentences

    def _announce(self, value: str) -> str:
        return self.dice.say("states" if self.dice.chance(self.strong) else "follows", n=value)

    def _steps(self, work: Work, skip: int = 0, nods: float = 0.25) -> list[str]:
        """The equations in words."""
        sentences = []
        for i, equation in enumerate(work.steps[skip:]):
            said = self._step(equation)
            if self.dice.chance(0.25):
                said = f"{self.dice.say('links').capitalize()} {said[0].lower()}{said[1:]}"
            sentences.append(said)
            if i < len(work.steps) - skip - 1 and self.dice.chance(TOTALS / 2):
                sentences.append(self._announce(equation.result))
            elif self.dice.chance(nods):
                sentences.append(self.dice.say("nods"))
        return sentences

    def _step(self, equation: Equation) -> str:
        if len(equation.operators) != 1:
            return f"{equation}."
        a, b = equation.operands
        return self.dice.say(equation.operators[0], a=a, b=b, r=equation.result)

    def _round(self, work: Work) -> None:
        """A round that finds nothing: the draft as it is, looked at in one of several ways."""
        kind = self.dice.pick(steps=3, again=1.2, chain=1, inverse=1, reread=1.5, doubt=1)
        last = work.steps[-1]
        if kind == "inverse" and len(last.operators) != 1:
            kind = "chain"
        if kind == "steps":
            sentences = [self.dice.say("checks"), *self._steps(work)]
        elif kind == "again":
            sentences = [self.dice.say("again"), *self._story(work)]
        elif kind == "chain":
            sentences = [f"{self.dice.say('chains')} {', '.join(map(str, work.steps))}."]
        elif kind == "inverse":
            a, b = last.operands
            back = f"{last.result} {_INVERSE[last.operators[0]]} {b} = {a}"
            sentences = [self.dice.say("inverts", n=last.result, e=back)]
        elif kind == "reread":
            quote = self.dice.rng.choice([*self.facts, self.question])
            sentences = [self.dice.say("rereads", quote=quote)]
        else:
            sentences = [self.dice.say("doubts", n=self.dice.rng.choice(work.steps[0].operands))]
        if self.dice.chance(MUSES):
            sentences.insert(0, self.dice.say("muses"))
        closing = self.dice.pick(states=0.78, repeats=0.14, confirms=0.08)
        if closing == "states":
            sentences.append(self._announce(work.answer))
        else:
            sentences.append(self.dice.say(closing, n=work.answer))
        self._add(*sentences)

    def _find(self, draft: Work) -> None:
        """A round that finds what is wrong, a slip, a misread operator or too early an end, and mends it."""
        right, dice = self.right, self.dice
        if draft.slip is not None:
            before = self._steps(Work(tuple(draft.steps[: draft.slip]), draft.answer)) if dice.chance(0.6) else []
            mistake = f"{_correction(draft.steps[draft.slip])}."
            found = [dice.say("checks"), *before, mistake, dice.say("wrong")]
            again = [dice.say("redoes"), *self._steps(right, skip=draft.slip, nods=0.1)]
        elif draft.misread is not None:
            spot, good, taken = draft.misread
            quote = dice.rng.choice([*self.facts, self.question])
            found = [dice.say("rereads", quote=quote), dice.say("wrong"), dice.say("misread", good=good, bad=taken)]
            again = [dice.say("redoes"), *self._steps(right, skip=spot, nods=0.1)]
        else:
            found = [dice.say("not_done", quote=self.question), dice.say("goes_on")]
            again = self._story(right, skip=len(draft.lines))
        self._add(*found)
        self._add(*again, self._announce(right.answer))

    def _spoil(self, other: Work, mended: bool) -> None:
        assert other.misread is not None
        spot, good, taken = other.misread
        sentences = [self.dice.say("spoils", bad=taken), *self._steps(other, skip=spot, nods=0)]
        self._add(*sentences, self._announce(other.answer))
        if mended:
            again = [self.dice.say("returns", good=good), *self._steps(self.right, skip=spot, nods=0)]
            self._add(*again, self._announce(self.right.answer))

    def _add(self, *sentences: str) -> None:
        self.paragraphs.append(" ".join(sentences))


def _cut(right: Work) -> Work | None:
    """The work without its last lines, concluded with what stands there."""
    kept: list[Solution] = []
    for line in right.lines:
        if equations(line) and equations(line)[-1].result == right.answer:
            break
        kept.append(line)
    while kept and not equations(kept[-1]):
        kept.pop()
    if not kept or len(kept) == len(right.lines):
        return None
    pieces = [piece for line in kept for piece in (*line, "\n")][:-1]
    return Work(tuple(pieces), equations(kept[-1])[-1].result)


def _slipped(right: Work, dice: Dice) -> Work | None:
    broken = break_one(right.solution, right.answer, dice.rng)
    return None if broken is None else Work(broken[0], broken[1], slip=broken[2])


def _misread(right: Work, dice: Dice) -> Work | None:
    other = misread_one(right.solution, right.answer, dice.rng)
    if other is None:
        return None
    solution, answer, spot = other
    return Work(solution, answer, misread=(spot, right.steps[spot].left, equations(solution)[spot].left))


def _correction(slip: Equation) -> str:
    return f"{slip.left} is not {slip.result} but {_decimal(slip.evaluate())}"


def _decimal(value: Fraction) -> str:
    return f"{float(value):.6f}".rstrip("0").rstrip(".")
