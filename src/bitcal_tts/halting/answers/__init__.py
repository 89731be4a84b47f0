"""Answer formats: where an answer starts, whether it is complete, its value, equality. One small class each."""

from bitcal_tts.halting.answers.announced import Expression, Number, Option
from bitcal_tts.halting.answers.base import MARKER, AnswerFormat, MarkedText, behind_marker
from bitcal_tts.halting.answers.boxed import Boxed
from bitcal_tts.halting.answers.choice import Choice
from bitcal_tts.halting.answers.code import CodeBlock
from bitcal_tts.halting.answers.numbers import Gsm8k, Released, as_number

FORMATS: dict[str, AnswerFormat] = {
    f.name: f
    for f in (Gsm8k(), Released(), MarkedText(), Boxed(), Choice(), CodeBlock(), Number(), Expression(), Option())
}

__all__ = [
    "FORMATS",
    "MARKER",
    "AnswerFormat",
    "Boxed",
    "Choice",
    "CodeBlock",
    "Expression",
    "Gsm8k",
    "MarkedText",
    "Number",
    "Option",
    "Released",
    "as_number",
    "behind_marker",
]
