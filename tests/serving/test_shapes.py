"""The thinking is told apart wherever the text is cut into pieces."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitcal_tts.engines.thinking import ThinkMarkers
from bitcal_tts.serving.shapes import Apart

TEXT = "<think>\nFirst 1 < 2. </thin is no end.\n</think>\n\nThe answer: <think> 7"


def split(markers: ThinkMarkers | None, pieces: list[str]) -> dict[str, str]:
    apart = Apart(markers)
    told = {"thought": "", "said": ""}
    for piece in pieces:
        for kind, text in apart.feed(piece):
            told[kind] += text
    for kind, text in apart.rest():
        told[kind] += text
    return told


@given(st.lists(st.integers(0, len(TEXT)), max_size=12))
def test_pieces_do_not_matter(cuts: list[int]) -> None:
    places = [0, *sorted(cuts), len(TEXT)]
    pieces = [TEXT[a:b] for a, b in itertools.pairwise(places)]
    told = split(ThinkMarkers("<think>", "</think>"), pieces)
    assert told == {"thought": "First 1 < 2. </thin is no end.\n", "said": "The answer: <think> 7"}
    assert split(None, pieces) == {"thought": "", "said": TEXT}


def test_a_prompt_that_opens_the_thinking() -> None:
    assert split(ThinkMarkers(None, "</think>"), ["a </", "think>", "\n\nb"]) == {"thought": "a ", "said": "b"}


@pytest.mark.parametrize("pieces", [["a </", "think>", "\n\nb"], ["a </think>\n\nb"]])
def test_a_thinking_that_ends_and_never_began_was_said(pieces: list[str]) -> None:
    """In a stream it has been told by then; the marker is not."""
    assert split(ThinkMarkers("<think>", "</think>"), pieces) == {"thought": "", "said": "a b"}
