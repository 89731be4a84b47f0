"""The words of the corpus: a grammar, so that no phrase gives away what it stands for.

A conclusion, an intermediate total and a value that turns out wrong are said by the same rule. Every `{name}` in a form
is either a value that the writer gives or another rule; alternatives are equally likely.
"""

from __future__ import annotations

import random
import re

RULES: dict[str, tuple[str, ...]] = {
    # What a value is announced with. The first group says that it is the answer, the second that it follows.
    "states": (
        "{so} {noun} {is} {n}.", "{so} {noun} {is} {n}.", "{so} {noun} {is} {n}.", "{so} {we} {get} {n}.",
        "{so} {that} {makes} {n}.", "{that} {makes} {n}.", "{that} {makes} {n}.", "{so} {noun} {is} {n}, {hedge}.",
        "{noun} {is} {n}.", "{noun} {is} {n}, {hedge}.",
    ),
    "follows": (
        "{so} it's {n}.", "{so} {n} then.", "{so} there should be {n} of them.", "{n}, {hedge}.", "{so} {n} it is.",
        "{that} would leave us with {n}.", "{so} I have {n} here.", "{so} {n} seems to be what is wanted.",
        "{n} is what I have now.", "{so} this is about {n}.",
    ),
    "so": (
        "so", "so", "so", "thus", "therefore", "then", "okay, so", "hence", "alright, so", "now", "and so", "ok, so",
    ),
    "noun": (
        "the answer", "the answer", "the total", "the total", "the result", "the value", "the sum", "my result",
        "the final number, the answer,", "the answer to this", "the total for this", "the result here",
    ),
    "is": ("is", "is", "is", "should be", "must be", "would be", "comes to", "is then", "is just"),
    "we": ("we", "I"),
    "get": ("get", "have", "find", "obtain", "end up with", "get", "arrive at"),
    "that": ("that", "this", "it"),
    "makes": ("gives", "makes", "is", "comes to", "leaves", "yields", "equals"),
    "hedge": (
        "I think", "if I am not wrong", "right", "it seems", "as far as I see", "unless I made a mistake", "I believe",
        "if that is right",
    ),
    # The beginning, and what it says again.
    "begins": (
        "{okay}, {let} see.", "{okay}, so I need to work this out.", "{okay}, {let} think about this step by step.",
        "{okay}, so the problem is this.", "{let} read the problem first.", "{okay}, what do we know?",
        "Alright. {let} break it down.", "{let} start with what is given.",
    ),
    "okay": ("okay", "alright", "hmm", "ok", "well"),
    "let": ("let me", "let's", "let me just", "let us"),
    "given": (
        "The problem says: {quote}", "It says: {quote}", "{quote}", "First, {quote}", "We are told: {quote}",
        "So, {quote}", "What is given: {quote}",
    ),
    "asked": (
        "And the question is: {quote}", "What is asked: {quote}", "{quote}", "I need to find out: {quote}",
        "The question: {quote}", "So what they want is this: {quote}",
    ),
    "plans": (
        "{let} do that.", "{let} compute it.", "I have to take it one step at a time.", "{let} calculate.",
        "That should not be hard.", "{let} go through it in order.", "{okay}.",
    ),
    # Steps in words, by operator.
    "+": (
        "{a} + {b} = {r}.", "{a} plus {b} is {r}.", "adding {b} to {a} gives {r}.", "{a} and {b} make {r}.",
        "I add {a} and {b}: {a} + {b} = {r}.", "{let} add: {a} + {b} = {r}.", "{a} + {b} is {r}.",
    ),
    "-": (
        "{a} - {b} = {r}.", "{a} minus {b} is {r}.", "taking {b} from {a} leaves {r}.", "{a} less {b} is {r}.",
        "I subtract {b} from {a}: {a} - {b} = {r}.", "{let} subtract: {a} - {b} = {r}.", "{a} - {b} is {r}.",
    ),
    "*": (
        "{a} * {b} = {r}.", "{a} times {b} is {r}.", "{a} multiplied by {b} gives {r}.", "{b} times {a} makes {r}.",
        "I multiply {a} by {b}: {a} * {b} = {r}.", "{let} multiply: {a} * {b} = {r}.", "{a} * {b} is {r}.",
    ),
    "/": (
        "{a} / {b} = {r}.", "{a} divided by {b} is {r}.", "dividing {a} by {b} gives {r}.", "{a} over {b} is {r}.",
        "I divide {a} by {b}: {a} / {b} = {r}.", "{let} divide: {a} / {b} = {r}.", "{a} / {b} is {r}.",
    ),
    "links": (
        "first,", "then,", "next,", "now,", "after that,", "and", "so", "well,", "okay,", "moving on,", "again,",
    ),
    "nods": (
        "Yes.", "Right.", "That is right.", "Good.", "Okay.", "Yes, that holds.", "Fine.", "That works.", "Correct.",
        "Yep.", "Sure.",
    ),
    # Rounds after the first conclusion.
    "checks": (
        "{wait}, {let} check that.", "{let} verify this.", "{wait}, {let} go over it again.", "I should double-check.",
        "{let} make sure that I made no mistake.", "Just to be sure, {let} check each step.", "{wait}, is that right?",
        "But did I get that right?", "{let} confirm it.", "To be safe, I go through the steps once more.",
    ),
    "wait": ("wait", "hmm", "hold on", "but wait", "wait a moment", "actually"),
    "again": (
        "{let} do it again from the start.", "Another way to see it: step by step once more.",
        "{let} work through it anew.", "Alternatively, {let} redo all of it and compare.", "Starting over.",
        "{let} solve it a second time.", "Maybe I should write it down again.",
    ),
    "chains": (
        "In short:", "Only the numbers:", "Alternatively, just the arithmetic:", "Briefly:", "The steps in one line:",
        "Putting it together:",
    ),
    "inverts": (
        "{let} check backwards. If it is {n}, then {e}, which is what we had.", "Another way: going back, {e}. {nods}",
        "Conversely, {e}, so that fits.", "Alternatively, starting from {n}: {e}. {nods}",
        "If {n} is right, then {e} must hold. It does.",
    ),
    "rereads": (
        "{wait}, {let} read it again. {quote} {used}", "{let} look at the problem once more. {quote} {used}",
        "Did I use everything? {quote} {used}", "{wait}, it says: {quote} {used}",
    ),
    "used": (
        "I used that.", "{nods}", "That is in there.", "So that is counted.", "I have that.", "{nods} I did that.",
    ),
    "doubts": (
        "{wait}, should {n} be counted twice? No, once.",
        "Could it be that {n} is meant in another way? I don't think so.",
        "{wait}, maybe {n} is not needed? No, it is.", "Is {n} really what the problem says? {nods}",
        "Hmm, perhaps {n} stands for something else. But no, the problem is clear.",
    ),
    "confirms": (
        "All steps hold.", "Everything checks out.", "That is consistent.", "I see no mistake.", "{nods}",
        "So it holds.", "The steps are right.", "That agrees.", "{nods} It works.", "Both ways agree.",
    ),
    "repeats": (
        "{nods} {n} again.", "It is the same, {n}.", "The same {n} as before.", "{n}, as before.", "So I keep {n}.",
        "{confirms} {states}", "{states}",
    ),
    # Thinking aloud.
    "muses": (
        "{wait}, {muse}.", "I wonder whether {muse}.", "{okay}, {muse}.", "Maybe {muse}.", "{wait}, maybe {muse}.",
        "Let me think about whether {muse}. {muse2}", "It could be that {muse}. {muse2}",
    ),
    "muse": (
        "there is some trick here", "I overlooked something", "the wording is meant in a different way",
        "I should think about the order of the steps", "there is a simpler way to see this",
        "I mixed up two of the numbers", "the problem has more parts than I used", "the units are all the same",
        "I should not rush this", "something about it is easy to get wrong",
        "one of the numbers is only there to mislead",
        "it is worth looking at from another side", "this is one of those where people go wrong",
    ),
    "muse2": (
        "But I don't see how.", "The problem does not say so.", "I don't think so, though.",
        "It seems straightforward.",
        "Still, it is better to look.", "That would change everything.", "{let} see.", "No, the wording is plain.",
    ),
    # A mistake that is found.
    "not_done": (
        "{wait}, that is not yet what is asked. {quote} So I am not done.", "{wait}, {quote} There is more to do.",
        "But the question is: {quote} So I have to go on.", "{wait}, I stopped too early. {quote}",
        "{let} compare with the question. {quote} No, something is missing.",
    ),
    "goes_on": (
        "{let} go on.", "So, what is left:", "The rest:", "{let} continue.", "Next:", "Then I still need this.",
    ),
    "wrong": (
        "{wait}, that is off.", "No, that step is wrong.", "{wait}, I made a mistake there.", "That can't be right.",
        "Actually, that was not right.", "{wait}, no.", "An error.",
    ),
    "misread": (
        "It should be {good}, not {bad}.", "I took {bad} where it has to be {good}.", "Not {bad} but {good}.",
        "{bad} is the wrong way, it is {good}.",
    ),
    "redoes": (
        "{let} redo it.", "{let} fix that.", "So once more.", "Again from there.", "{let} correct this.", "Back to it.",
    ),
    # A right conclusion that is spoilt.
    "spoils": (
        "{wait}, did I take the right step? Maybe it should be {bad}.", "Hmm, perhaps {bad} is meant.",
        "{wait}, maybe I should use {bad} instead.", "But could it be {bad} here?",
        "Alternatively, one could read it as {bad}.",
    ),
    "returns": (
        "No, {good} was right.", "{wait}, that reading is wrong, {good} is what it says.",
        "No, I was right the first time: {good}.", "That makes no sense. It is {good}.",
    ),
    "ends": (
        "I am confident about {n}.", "{states}", "{states}", "That settles it.", "I am done.", "So I will answer {n}.",
        "{confirms} {states}", "Okay, that is it.",
    ),
}  # fmt: skip
_SLOT = re.compile(r"\{([^{}]+)\}")
_SENTENCE = re.compile(r"(^|[.!?:] )([a-z])")
_PARTS = {name: tuple(_SLOT.split(form) for form in forms) for name, forms in RULES.items()}


def say(rng: random.Random, rule: str, **values: object) -> str:
    """A sentence or two by a rule, with a capital after every full stop."""
    text = "".join(_expand(rng, rule, values))
    return _SENTENCE.sub(lambda m: m[1] + m[2].upper(), text)


def _expand(rng: random.Random, rule: str, values: dict[str, object]) -> list[str]:
    pieces: list[str] = []
    for i, part in enumerate(rng.choice(_PARTS[rule])):
        if i % 2 == 0:
            pieces.append(part)
        elif part in values:
            pieces.append(str(values[part]))
        else:
            pieces += _expand(rng, part, values)
    return pieces
