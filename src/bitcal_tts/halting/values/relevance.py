"""Whether a result is what a question asks for: a linear model over hashed words, fitted on GSM8K's own solutions.

In the solutions of its 7,473 training problems a final result differs from those on the way: "72 clips altogether in
April and May" answers "How many clips did Natalia sell altogether in April and May?", "24 clips in May" does not; and
it is made of more of the question's numbers. The weights are `relevance.npy`; `scripts/fit_relevance.py` made them.
"""

from __future__ import annotations

import zlib
from functools import cache
from importlib.resources import files

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


def relevance(asking: Asking, mention: Mention, subjects: frozenset[str], made_of: int) -> float:
    """Log-odds that such a result is the answer.

    Args:
        asking: The question.
        mention: The result, with the words around it.
        subjects: Names that the text speaks of there.
        made_of: Bits of the question's numbers that it was computed from.
    """
    weights = _weights()
    return float(weights[hashed(asking, mention, subjects, made_of)].sum() + weights[SIZE])


def hashed(asking: Asking, mention: Mention, subjects: frozenset[str], made_of: int) -> list[int]:
    """The features of a result: which of its words the question has, and where; what it was made of, and how."""
    asked = asking.asked_stems - _STOP
    before, after = _stems(mention.before, asking), _stems(mention.after, asking)
    names = []
    for side, stems in (("b", before), ("d", after)):
        for word in stems:
            where = "m" if word in asked else "r" if word in asking.all_stems else "n"
            names += [side + where, side + where + word, side + word]
    around = before | after
    for word in asked:
        there = "A" if word in around else "U"
        names += [there, there + word, *(f"{word}|{other}" for other in around if other != word)]
    speaks = bool(subjects & asking.asked_names), bool(subjects - asking.asked_names)
    others = len(asking.names) > len(asking.asked_names)
    names += [
        "names" + "".join(str(int(said)) for said in (bool(asking.asked_names), others, *speaks)),
        f"${mention.currency}{asking.money}",
        f"%{mention.percent}{asking.percent}",
        f"comp{mention.computed}",
        *(f"{mention.operation}|{word}" for word in asked if mention.operation),
        f"missing{min(3, len(asking.given) - made_of.bit_count())}",
        f"last{made_of & asking.last_given > 0}",
        f"given{min(6, len(asking.given))}|{min(4, made_of.bit_count())}",
    ]
    return sorted({_index(name) for name in names})


def _stems(words: list[str], asking: Asking) -> set[str]:
    return {stem(word) for word in words if word.lower() not in _STOP and word not in asking.names}


@cache
def _weights() -> NDArray[np.float32]:
    with files("bitcal_tts.halting.values").joinpath("relevance.npy").open("rb") as file:
        weights: NDArray[np.float32] = np.load(file, allow_pickle=False)
    return weights


_INDICES: dict[str, int] = {}


def _index(name: str) -> int:
    known = _INDICES.get(name)
    if known is None:
        known = zlib.crc32(name.encode()) & (SIZE - 1)
        if len(_INDICES) < 1 << 18:  # hostile texts have no end of words
            _INDICES[name] = known
    return known
