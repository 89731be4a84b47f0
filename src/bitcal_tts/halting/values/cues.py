"""Words by which a text shows what it is doing: checking, hesitating, concluding.

They are looked for in sentences in small letters: an expression that need not heed case is found three times faster.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from bitcal_tts.halting.values.asking import content_words

_CUES = {
    "check": r"check|verif|confirm|make sure|go over|re-?read|review",
    "wait": r"\bwait\b|hmm|hold on",
    "but": r"\bbut\b|however|actually|although|though",
    "other": r"alternativ|another way|other way|different(?:ly)?\b|another approach|instead",
    "redo": r"mistake|wrong|error|incorrect|not right|redo|recalculat",
    "confirm": r"correct|makes sense|consistent|match|same (?:answer|result|thing)|(?:seems|looks|sounds) right"
    r"|that's right|\byes\b|\byeah\b|adds? up|checks? out|straightforward|confident",
    "conclude": r"final answer|boxed|the answer|conclusion|answer (?:is|should|would)",
    "next": r"\bnow\b|\bnext\b|\bthen\b|\bfirst\b|\bsecond\b|\bstep\b",
    "plan": r"let me|let's|i need|we need|i should|need to",
    "so": r"\bso\b|therefore|thus|hence|altogether|in total|finally",
    "problem": r"the problem|the question|question (?:is|asks|says)|problem says|it says|asks|asking",
    "suppose": r"\bif\b|maybe|perhaps|suppose|assum|would be|could|might|unless|either|whether",
    "answer": r"\banswer\b|\bfinal\b",
}
CUES = tuple(_CUES)
_PATTERNS = tuple(map(re.compile, _CUES.values()))
_ANSWER = re.compile(r"\banswer\b|####")
_CONCLUSION = re.compile(r"answer|boxed|final|therefore|thus|hence|in total|altogether|\bso\b")
_PER = re.compile(r"\b(?:each|per|every|apiece)\b")
_ENUMERATION = re.compile(r"^\W*(?:step\s*)?\d+\s*[.):]\W*$")


class Words(NamedTuple):
    """What the words of a sentence show.

    Attributes:
        cues: How often each cue stands in it, in the order of `CUES`.
        content: Stems of the words that are not in every sentence.
        answers: Whether it speaks of an answer.
        concludes: Whether it concludes something.
        per: Whether it speaks of one of several.
        asks: Whether it asks.
    """

    cues: tuple[int, ...]
    content: frozenset[str]
    answers: bool
    concludes: bool
    per: bool
    asks: bool


@lru_cache(maxsize=1 << 12)  # a third of the sentences come again, in this text or in another
def words_in(sentence: str) -> Words | None:
    """What a sentence shows; None where it says nothing: no words at all, or the number of a list."""
    low = sentence.lower()
    if not any(map(str.isalnum, sentence)) or _ENUMERATION.match(low):
        return None
    return Words(
        cues=tuple(len(pattern.findall(low)) for pattern in _PATTERNS),
        content=frozenset(content_words(sentence)),
        answers=_ANSWER.search(low) is not None,
        concludes=_CONCLUSION.search(low) is not None,
        per=_PER.search(low) is not None,
        asks="?" in sentence,
    )
