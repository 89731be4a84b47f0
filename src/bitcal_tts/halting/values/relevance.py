"""Whether a result is what a question asks for: a linear model over hashed words, fitted on GSM8K's own solutions.

In the solutions of its 7,473 training problems a final result differs from those on the way: "72 clips altogether in
April and May" answers "How many clips did Natalia sell altogether in April and May?", "24 clips in May" does not; and
it is made of more of the question's numbers. The weights are `relevance.npy`; `scripts/fit_relevance.py` made them.
"""

from __future__ import annotations

import zlib
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitcal_tts.halting.values.asking import Asking, stem
from bitcal_tts.halting.values.numbers import Mention
from bitcal_tts.halting.words import words_of

SIZE = 1 << 14
_STOP = words_of(
    "the a an of to is are was were in on and or it that this with by at as be will have has had do does did "
    "so then we i you there from which would can now let me my"
)


class Relevance:
    """Judges results by one question; what comes again in a text is hashed once."""

    def __init__(self, asking: Asking) -> None:
        self._asking = asking
        self._asked = asked = asking.asked_stems - _STOP
        self._said = {word: _indices("A", "A" + word) for word in asked}
        self._unsaid = {word: _indices("U", "U" + word) for word in asked}
        self._beside: dict[tuple[str, str], frozenset[int]] = {}
        self._manners: dict[tuple[Any, ...], frozenset[int]] = {}

    def __call__(self, mention: Mention, subjects: frozenset[str], made_of: int) -> float:
        """Log-odds that such a result is the answer.

        Args:
            mention: The result, with the words around it.
            subjects: Names that the text speaks of there.
            made_of: Bits of the question's numbers that it was computed from.
        """
        weights = _weights()
        return float(weights[self.hashed(mention, subjects, made_of)].sum() + weights[SIZE])

    def hashed(self, mention: Mention, subjects: frozenset[str], made_of: int) -> list[int]:
        """The features of a result: which of its words the question has, and where; what it was made of, and how."""
        before, after = self._stems(mention.before), self._stems(mention.after)
        found = set(self._manner(mention, subjects, made_of))
        for side, stems in (("b", before), ("d", after)):
            for word in stems:
                found |= self._beside.get((side, word)) or self._hash_word(side, word)
        for word in self._asked:
            found |= self._said[word] if word in before or word in after else self._unsaid[word]
        return sorted(found)

    def _stems(self, words: list[str]) -> set[str]:
        return {stem(word) for word in words if word.lower() not in _STOP and word not in self._asking.names}

    def _hash_word(self, side: str, word: str) -> frozenset[int]:
        """A word before or behind a result: whether it is asked for, and with which asked words it comes."""
        where = "m" if word in self._asked else "r" if word in self._asking.all_stems else "n"
        pairs = (f"{asked}|{word}" for asked in self._asked if asked != word)
        hashed = self._beside[side, word] = _indices(side + where, side + where + word, side + word, *pairs)
        return hashed

    def _manner(self, mention: Mention, subjects: frozenset[str], made_of: int) -> frozenset[int]:
        """Of whom it is said, what it is a number of, how it was computed, and out of what."""
        asking = self._asking
        speaks = (not subjects.isdisjoint(asking.asked_names), not subjects <= asking.asked_names)
        key = (speaks, mention.currency, mention.percent, mention.computed, mention.operation, made_of)
        known = self._manners.get(key)
        if known is None:
            others = len(asking.names) > len(asking.asked_names)
            known = self._manners[key] = _indices(
                "names" + "".join(str(int(said)) for said in (bool(asking.asked_names), others, *speaks)),
                f"${mention.currency}{asking.money}",
                f"%{mention.percent}{asking.percent}",
                f"comp{mention.computed}",
                *(f"{mention.operation}|{word}" for word in self._asked if mention.operation),
                f"missing{min(3, len(asking.given) - made_of.bit_count())}",
                f"last{made_of & asking.last_given > 0}",
                f"given{min(6, len(asking.given))}|{min(4, made_of.bit_count())}",
            )
        return known


@cache
def _weights() -> NDArray[np.float32]:
    with files("bitcal_tts.halting.values").joinpath("relevance.npy").open("rb") as file:
        weights: NDArray[np.float32] = np.load(file, allow_pickle=False)
    return weights


def _indices(*names: str) -> frozenset[int]:
    return frozenset(zlib.crc32(name.encode()) & (SIZE - 1) for name in names)
