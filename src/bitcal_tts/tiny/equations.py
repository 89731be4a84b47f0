"""Equations in worked solutions: found, evaluated exactly, broken on purpose.

A solution becomes a list of pieces, plain text and equations. Breaking it falsifies one equation and carries
the false value through everything after it, so that all other arithmetic still holds and the answer is wrong.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

_CURRENCY = r"[$€£]?"
_DIGITS = r"\d+(?:,\d{3})*(?:\.\d+)?"
_WORD = r"(?!x\b)[A-Za-z]+(?:/[a-z]+)?"
_UNIT = rf"(?:/[a-z]+)?(?:\s+{_WORD}){{0,4}}"
_OPERAND = rf"{_CURRENCY}{_DIGITS}{_UNIT}"
_EQUATION = re.compile(
    rf"(?<![\w.,/*+=)%-])(?P<left>{_OPERAND}(?:\s*[-+*/x×÷]\s*{_OPERAND})+)"
    rf"\s*=\s*(?P<right>{_CURRENCY}-?{_DIGITS})(?![\d%(*+=]|[.,]\d|\s*[-+*/=])"
)
_NUMBER = re.compile(rf"(?<![\w.,])-?{_DIGITS}(?![\w%]|[.,]\d)")
_TERM = re.compile(rf"({_DIGITS})|([-+*/x×÷])")


@dataclass(frozen=True)
class Equation:
    """`a op b (op c ...) = result`, operands and operators alternating."""

    operands: tuple[str, ...]
    operators: tuple[str, ...]
    result: str

    def __str__(self) -> str:
        return f"{self.left} = {self.result}"

    @property
    def left(self) -> str:
        """The left-hand side."""
        rest = (f" {op} {x}" for op, x in zip(self.operators, self.operands[1:], strict=True))
        return self.operands[0] + "".join(rest)

    def evaluate(self) -> Fraction:
        """The left-hand side's value, products first."""
        terms = [Fraction(self.operands[0])]
        for op, operand in zip(self.operators, self.operands[1:], strict=True):
            value = Fraction(operand)
            if op == "*":
                terms[-1] *= value
            elif op == "/":
                terms[-1] /= value
            else:
                terms.append(value if op == "+" else -value)
        return sum(terms, Fraction(0))

    @property
    def holds(self) -> bool:
        """Whether it is true."""
        return self.evaluate() == Fraction(self.result)


Piece = str | Equation
Solution = tuple[Piece, ...]


def parse(solution: str) -> Solution:
    """Split a solution into text and true equations; units inside an equation are dropped."""
    pieces: list[Piece] = []
    at = 0
    for match in _EQUATION.finditer(solution):
        equation = _equation(match)
        if equation is None:
            continue
        pieces += [solution[at : match.start()], equation]
        at = match.end()
    pieces.append(solution[at:])
    return tuple(piece for piece in pieces if piece != "")


def equations(solution: Solution) -> list[Equation]:
    """The equations of a solution, in order."""
    return [piece for piece in solution if isinstance(piece, Equation)]


def render(solution: Solution) -> str:
    """The solution as text."""
    return "".join(map(str, solution))


def break_one(solution: Solution, answer: str, rng: random.Random) -> tuple[Solution, str, int] | None:
    """Falsify one equation and carry the error through: the new solution, its answer, and which equation.

    None where no equation can be broken so that the answer changes and every number stays short.
    """
    return _first_that_matters(solution, answer, rng, _slip)


def misread_one(solution: Solution, answer: str, rng: random.Random) -> tuple[Solution, str, int] | None:
    """Take another operator in one equation and carry on from there: all arithmetic holds, the answer is wrong."""
    return _first_that_matters(solution, answer, rng, _misread)


def _first_that_matters(
    solution: Solution, answer: str, rng: random.Random, change: Callable[[Equation, random.Random], Equation | None]
) -> tuple[Solution, str, int] | None:
    found = equations(solution)
    spots = list(range(len(found)))
    rng.shuffle(spots)
    for spot in spots[:4]:
        instead = change(found[spot], rng)
        changed = None if instead is None else _carry(solution, spot, instead)
        if changed is None:
            continue
        pieces, values = changed
        wrong = values.get(Fraction(answer))
        if wrong is not None and Fraction(wrong) != Fraction(answer):
            return pieces, wrong, spot
    return None


def _slip(equation: Equation, rng: random.Random) -> Equation | None:
    wrong = _wrong(equation.result, rng)
    return None if wrong is None else Equation(equation.operands, equation.operators, wrong)


def _misread(equation: Equation, rng: random.Random) -> Equation | None:
    if len(equation.operators) != 1:
        return None
    other = Equation(equation.operands, ({"+": "-", "-": "+", "*": "+", "/": "*"}[equation.operators[0]],), "")
    result = _short(other.evaluate())
    return None if result is None else Equation(other.operands, other.operators, result)


def _equation(match: re.Match[str]) -> Equation | None:
    terms = _TERM.findall(re.sub(r"/[a-z]+", "", re.sub(rf"\s+{_WORD}", "", match["left"])))
    operands = tuple(_plain(number) for number, op in terms if number)
    operators = tuple({"x": "*", "×": "*", "÷": "/"}.get(op, op) for number, op in terms if op)
    if len(operators) != len(operands) - 1:
        return None
    equation = Equation(operands, operators, _plain(re.sub(r"[$€£]", "", match["right"])))
    try:
        return equation if equation.holds else None
    except ZeroDivisionError:
        return None


def _carry(solution: Solution, spot: int, instead: Equation) -> tuple[Solution, dict[Fraction, str]] | None:
    """The solution with another equation at a spot, and what became of each value after it."""
    pieces: list[Piece] = []
    changed: dict[Fraction, str] = {}
    seen = -1
    for piece in solution:
        if isinstance(piece, str):
            pieces.append(_NUMBER.sub(lambda m: _swap(m[0], changed), piece) if changed else piece)
            continue
        seen += 1
        if seen == spot:
            changed[Fraction(piece.result)] = instead.result
            pieces.append(instead)
            continue
        again = Equation(tuple(_swap(x, changed) for x in piece.operands), piece.operators, piece.result)
        if again.operands != piece.operands:
            try:
                result = _short(again.evaluate())
            except ZeroDivisionError:
                return None
            if result is None:
                return None
            changed[Fraction(piece.result)] = result
            again = Equation(again.operands, again.operators, result)
        pieces.append(again)
    return tuple(pieces), changed


def _plain(number: str) -> str:
    number = number.replace(",", "")
    return number.rstrip("0").rstrip(".") if "." in number else number


def _swap(number: str, changed: dict[Fraction, str]) -> str:
    return changed.get(Fraction(number.replace(",", "")), number)


def _wrong(number: str, rng: random.Random) -> str | None:
    """A value near the right one, or None where every near value is too long to write."""
    value = Fraction(number)
    unit = Fraction(1) if value.denominator == 1 else Fraction(1, 2)
    near = [_short(value + sign * k * unit) for k in (1, 2, 3, 10) for sign in (1, -1)]
    return rng.choice([text for text in near if text is not None] or [None])


def _short(value: Fraction) -> str | None:
    """A decimal of at most three places and six digits before the point, or None."""
    if value <= 0 or value >= 10**6 or (value * 1000).denominator != 1:
        return None
    if value.denominator == 1:
        return str(value.numerator)
    return f"{float(value):.3f}".rstrip("0")
