"""Enumerations of words, and what is said in many places."""

from __future__ import annotations

from enum import Enum


class Word(str, Enum):
    """A string enum that prints as its value (`enum.StrEnum` needs Python 3.11)."""

    __str__ = str.__str__


def words_of(text: str) -> frozenset[str]:
    """The words of a list that reads like a sentence."""
    return frozenset(text.split())


def percent(share: float) -> str:
    """A share as people read it, to three digits."""
    return f"{100 * share:.3g} %"
