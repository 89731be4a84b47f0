"""Grade-school stories composed from parts, without end and by seed; whole templates are held out.

A template is the order of a story's parts: how somebody comes by some things, what happens to them, and what is asked.
There are some seven thousand, and which of them a model may be trained on is a hash of the template, not of the text:
a calibration or test story never equals a training text up to its names and numbers.
"""

from __future__ import annotations

import hashlib
import operator
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from bitcal_tts.tasks.drawing import Problem, distinct

SPLITS = ("train", "calibration", "test")
LARGEST = 5000
_NAMES = (
    ("Ada", "she"), ("Ben", "he"), ("Clara", "she"), ("David", "he"), ("Emma", "she"), ("Felix", "he"),
    ("Grace", "she"), ("Henry", "he"), ("Iris", "she"), ("Jonas", "he"), ("Kate", "she"), ("Leo", "he"),
    ("Mia", "she"), ("Noah", "he"), ("Olivia", "she"), ("Paul", "he"), ("Rosa", "she"), ("Sam", "he"),
)  # fmt: skip
_THINGS = (
    "apples", "marbles", "stamps", "cards", "pencils", "cookies", "flowers", "shells", "books", "coins", "stickers",
    "eggs", "balls", "candles", "beads", "toys", "tickets", "pears", "buttons", "cups",
)  # fmt: skip
_PACKS = ("boxes", "bags", "packs", "baskets", "crates")
_ASIDES = (
    "{He} is {small} years old.",
    "{Other} has a dog that is {small} years old.",
    "It has been raining for {small} hours.",
    "The shop is {small} miles away.",
    "{He} has {small} brothers.",
)
_COMPUTE: dict[str, Callable[[int, int], int]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.floordiv,
}  # fmt: skip
_FRACTIONS = ((2, "Half"), (3, "A third"), (4, "A quarter"), (5, "A fifth"))


class UnfitError(Exception):
    """The numbers drawn do not suit the story; another draw may."""


@dataclass
class _Story:
    """What has been told so far: sentences, worked lines, how many things there are."""

    rng: random.Random
    name: str
    he: str
    other: str
    things: str
    count: int = 0
    others: int | None = None
    told: list[str] = field(default_factory=list)
    worked: list[str] = field(default_factory=list)

    def tell(self, *forms: str, **values: object) -> None:
        self.told.append(self._fill(self.rng.choice(forms), values))

    def work(self, left: int, sign: str, right: int, *forms: str) -> int:
        result = _COMPUTE[sign](left, right)
        if not 0 < result <= LARGEST:
            raise UnfitError
        self.worked.append(self._fill(self.rng.choice(forms), {"e": f"{left} {sign} {right} = {result}"}))
        return result

    def _fill(self, form: str, values: dict[str, object]) -> str:
        him = "her" if self.he == "she" else "him"
        return form.format(
            N=self.name, he=self.he, He=self.he.capitalize(), him=him, Other=self.other, things=self.things, **values
        )


_Part = Callable[[_Story], None]


def _has(s: _Story) -> None:
    s.count = s.rng.randint(8, 90)
    s.tell(
        "{N} has {a} {things}.", "{N} starts with {a} {things}.", "There are {a} {things} on {N}'s table.", a=s.count
    )


def _packs(s: _Story) -> None:
    packs, each = s.rng.randint(2, 12), s.rng.randint(3, 24)
    s.tell(
        "{N} buys {p} {packs} with {k} {things} in each.",
        "{N} has {p} {packs} of {things}, and there are {k} in each of the {packs}.",
        p=packs, k=each, packs=s.rng.choice(_PACKS),
    )  # fmt: skip
    s.count = s.work(packs, "*", each, "In all the packs there are {e} {things}.", "{N} has {e} {things}.")


def _daily(s: _Story) -> None:
    days, each = s.rng.randint(3, 14), s.rng.randint(4, 30)
    s.tell(
        "{N} collects {k} {things} a day for {d} days.",
        "For {d} days {N} makes {k} {things} every day.",
        k=each,
        d=days,
    )
    s.count = s.work(each, "*", days, "In these days {he} gets {e} {things}.", "That is {e} {things}.")


def _finds(s: _Story) -> None:
    more = s.rng.randint(5, 80)
    s.tell(
        "Then {he} finds {b} more.", "{Other} gives {him} {b} more {things}.", "Later {he} gets another {b}.", b=more
    )
    s.count = s.work(s.count, "+", more, "Now {he} has {e} {things}.", "With these there are {e}.")


def _loses(s: _Story) -> None:
    less = s.rng.randint(3, max(s.count - 2, 3))
    s.tell("{He} gives {b} of them to {Other}.", "{b} of the {things} get lost.", "{He} sells {b} {things}.", b=less)
    s.count = s.work(s.count, "-", less, "After that {he} has {e} {things}.", "This leaves {e}.")


def _buys(s: _Story) -> None:
    packs, each = s.rng.randint(2, 9), s.rng.randint(3, 20)
    s.tell(
        "Then {he} buys {p} {packs} of {k} {things} each.", "{Other} brings {p} {packs} with {k} {things} in each.",
        p=packs, k=each, packs=s.rng.choice(_PACKS),
    )  # fmt: skip
    new = s.work(packs, "*", each, "The new ones are {e} {things}.", "That adds {e} {things}.")
    s.count = s.work(s.count, "+", new, "Together with the old ones: {e}.", "So {he} has {e} {things}.")


def _gives_each(s: _Story) -> None:
    friends, each = s.rng.randint(2, 9), s.rng.randint(2, 12)
    s.tell(
        "{He} gives {k} {things} to each of {m} friends.",
        "{m} children get {k} {things} each from {him}.",
        k=each,
        m=friends,
    )
    gone = s.work(friends, "*", each, "The friends get {e} {things}.", "{He} gives away {e} of them.")
    s.count = s.work(s.count, "-", gone, "So {e} are left.", "{He} keeps {e} {things}.")


def _fraction(s: _Story) -> None:
    fitting = [(k, words) for k, words in _FRACTIONS if s.count % k == 0]
    if not fitting:
        raise UnfitError
    parts, words = s.rng.choice(fitting)
    s.tell("{words} of the {things} are broken and thrown away.", "{words} of them go to {Other}.", words=words)
    gone = s.work(s.count, "/", parts, "That part is {e} {things}.", "The part that goes is {e}.")
    s.count = s.work(s.count, "-", gone, "So {he} still has {e} {things}.", "There remain {e}.")


def _grows(s: _Story) -> None:
    times = s.rng.randint(2, 5)
    s.tell(
        "By the next week {he} has {k} times as many {things}.",
        "A month later the number of {things} is {k} times as large.",
        k=times,
    )  # fmt: skip
    s.count = s.work(s.count, "*", times, "Then there are {e} {things}.", "{He} then has {e}.")


def _times_as_many(s: _Story) -> None:
    times = s.rng.randint(2, 6)
    s.tell(
        "{Other} has {k} times as many {things} as {N}.", "{N} has some, but {Other} has {k} times as many.", k=times
    )
    s.others = s.work(s.count, "*", times, "{Other} has {e} {things}.", "So {Other}'s are {e}.")


def _more_than(s: _Story) -> None:
    more = s.rng.randint(3, 60)
    s.tell("{Other} has {b} {things} more than {N}.", "{Other} has as many as {N} and {b} more.", b=more)
    s.others = s.work(s.count, "+", more, "{Other} has {e} {things}.", "So {Other}'s are {e}.")


def _fewer_than(s: _Story) -> None:
    less = s.rng.randint(2, max(s.count - 1, 2))
    s.tell("{Other} has {b} {things} fewer than {N}.", "{Other} lacks {b} {things} to have as many as {N}.", b=less)
    s.others = s.work(s.count, "-", less, "{Other} has {e} {things}.", "So {Other}'s are {e}.")


def _how_many(s: _Story) -> None:
    s.tell("How many {things} does {N} have now?", "How many {things} does {he} have in the end?")


def _times(low: int, high: int, asked: tuple[str, str], worked: tuple[str, str]) -> _Part:
    """An end that asks for the count times a number, {k}."""

    def part(s: _Story) -> None:
        k = s.rng.randint(low, high)
        s.tell(*asked, k=k)
        s.count = s.work(s.count, "*", k, *worked)

    return part


def _divided(asked: tuple[str, str], worked: tuple[str, str]) -> _Part:
    """An end that asks for the count divided by a number that divides it, {m}."""

    def part(s: _Story) -> None:
        fitting = [m for m in range(2, 25) if s.count % m == 0 and s.count > m]
        if not fitting:
            raise UnfitError
        m = s.rng.choice(fitting)
        s.tell(*asked, m=m)
        s.count = s.work(s.count, "/", m, *worked)

    return part


def _money_left(s: _Story) -> None:
    price = s.rng.randint(2, 12)
    spent = s.rng.randint(3, max(min(s.count * price - 2, 200), 3))
    s.tell(
        "{He} sells them all for ${p} each and spends ${b} of the money. How many dollars are left?",
        "Each one is sold for ${p}. {He} owes {Other} ${b}. How many dollars does {he} keep?",
        p=price, b=spent,
    )  # fmt: skip
    got = s.work(s.count, "*", price, "{He} gets {e} dollars.", "The {things} bring {e} dollars.")
    s.count = s.work(got, "-", spent, "So {e} dollars are left.", "{He} keeps {e} dollars.")


def _wants(s: _Story) -> None:
    goal = s.count + s.rng.randint(4, 120)
    s.tell(
        "{He} wants to have {t}. How many more does {he} need?",
        "How many {things} are missing until there are {t}?",
        t=goal,
    )
    s.count = s.work(goal, "-", s.count, "{He} needs {e} more.", "So {e} {things} are missing.")


def _together(s: _Story) -> None:
    assert s.others is not None
    s.tell("How many {things} do {N} and {Other} have together?", "What is the number of {things} of both?")
    s.count = s.work(s.count, "+", s.others, "Together they have {e} {things}.", "Both have {e}.")


def _difference(s: _Story) -> None:
    assert s.others is not None
    s.tell(
        "What is the difference between what {N} and {Other} have?", "By how many {things} do {N} and {Other} differ?"
    )
    more, less = max(s.count, s.others), min(s.count, s.others)
    s.count = s.work(more, "-", less, "The difference is {e}.", "They differ by {e} {things}.")


STARTS: dict[str, _Part] = {"has": _has, "packs": _packs, "daily": _daily}
EVENTS: dict[str, _Part] = {
    "finds": _finds, "loses": _loses, "buys": _buys, "gives each": _gives_each, "fraction": _fraction, "grows": _grows,
}  # fmt: skip
COMPARISONS: dict[str, _Part] = {"times as many": _times_as_many, "more than": _more_than, "fewer than": _fewer_than}
ENDS: dict[str, _Part] = {
    "how many": _how_many,
    "money": _times(
        2, 15,
        ("{He} sells all of them for ${k} each. How many dollars does {he} get?",
         "At ${k} each, what are all {things} worth?"),
        ("All of them bring {e} dollars.", "The money is {e} dollars."),
    ),
    "money left": _money_left,
    "share": _divided(
        ("{He} shares them equally among {m} friends. How many does each friend get?",
         "How many {things} does each of {m} children get if they share them?"),
        ("Each one gets {e} {things}.", "A fair share is {e}."),
    ),
    "boxes": _divided(
        ("{He} packs them into boxes of {m}. How many boxes does {he} need?",
         "A box holds {m} {things}. How many boxes are filled?"),
        ("{He} needs {e} boxes.", "The boxes are {e}."),
    ),
    "lasts": _divided(
        ("{He} uses {m} of them a day. How many days do they last?",
         "If {m} {things} are used every day, after how many days are none left?"),
        ("They last {e} days.", "That is {e} days."),
    ),
    "weighs": _times(
        3, 25,
        ("Each of them weighs {k} grams. How many grams do they all weigh?",
         "How many grams are all the {things}, at {k} grams each?"),
        ("All of them weigh {e} grams.", "The weight is {e} grams."),
    ),
    "wants": _wants,
}  # fmt: skip
OF_BOTH: dict[str, _Part] = {"together": _together, "difference": _difference}


class Template(NamedTuple):
    """The order of a story's parts."""

    start: str
    events: tuple[str, ...]
    end: str

    @property
    def held_out(self) -> bool:
        """Whether no story of it may be trained on: one template in five."""
        return hashlib.sha256(" ".join([self.start, *self.events, self.end]).encode()).digest()[0] % 5 == 0


def problems(split: str, seed: int) -> Iterator[Problem]:
    """Distinct stories of a split, the same for the same seed, without end."""

    def draw(rng: random.Random, _: int) -> Problem | None:
        template = _draw(rng)
        if template.held_out == (split == "train"):
            return None
        try:
            problem = tell(template, rng)
        except UnfitError:
            return None
        return problem if split == "train" or _held_for(problem.question) == split else None

    return distinct("stories", SPLITS, split, seed, draw)


def tell(template: Template, rng: random.Random) -> Problem:
    """A story of a template, with its worked solution.

    Raises:
        UnfitError: The numbers drawn do not suit.
    """
    (name, he), (other, _) = rng.sample(_NAMES, 2)
    story = _Story(rng, name, he, other, rng.choice(_THINGS))
    parts = STARTS | EVENTS | COMPARISONS
    for part in (template.start, *template.events):
        parts[part](story)
        if rng.random() < 0.1:
            story.tell(*_ASIDES, small=rng.randint(2, 12))
    (ENDS | OF_BOTH)[template.end](story)
    if not story.worked:
        raise UnfitError
    return Problem(" ".join(story.told), "\n".join(story.worked), str(story.count))


def _draw(rng: random.Random) -> Template:
    events = [rng.choice(list(EVENTS)) for _ in range(rng.choice((1, 1, 2, 2, 3)))]
    if rng.random() < 0.25:
        return Template(
            rng.choice(list(STARTS)), (*events[:-1], rng.choice(list(COMPARISONS))), rng.choice(list(OF_BOTH))
        )
    return Template(rng.choice(list(STARTS)), tuple(events), rng.choice(list(ENDS)))


def _held_for(question: str) -> str:
    return "test" if hashlib.sha256(question.encode()).digest()[0] % 2 else "calibration"
