"""One self-contained HTML page of an audit: tables, sentences, and texts marked where each rule would have stopped."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from textwrap import shorten

from bitcal_tts.auditing.findings import HEADINGS, LEGEND, Row, cells, counted

_HEAD = 1200
"""Characters of a text that are shown before its first stop and behind its last."""
_ANSWER = 60
"""Characters of an answer that are shown."""
_LEGEND = (
    "Texts, marked where each rule would have stopped and what it takes the text to answer there, in red where the "
    "answer is lost by it. A rule may misread a text: what is lost by that is counted as lost. "
    "Pale is what <code>settled</code> would not have written."
)


@dataclass(frozen=True)
class Stop:
    """Where a rule would have stopped a text, what it would have answered, and whether the rule is ours."""

    rule: str
    at: int
    answer: str | None
    verdict: str
    lost: bool
    ours: bool


@dataclass(frozen=True)
class Example:
    """A text with the places where rules would have stopped it, as characters."""

    title: str
    question: str
    text: str
    stops: Sequence[Stop]


@dataclass(frozen=True)
class FilePart:
    """What a page tells of one file."""

    shape: Row
    rows: Sequence[Row]
    verdict: str
    sentences: Sequence[str]
    examples: Sequence[Example]


def render(parts: Sequence[FilePart], subtitle: str) -> str:
    """The page as text. Everything from outside is escaped; nothing is loaded from anywhere."""
    template = files("bitcal_tts.auditing").joinpath("page.html").read_text(encoding="utf-8")
    names = ", ".join(part.shape["file"] for part in parts[:3]) + (" ..." if len(parts) > 3 else "")
    told = {
        "TITLE": html.escape(f"Audit of {names}"),
        "SUBTITLE": html.escape(subtitle),
        "FILES": "\n".join(_file(part, legend=part is parts[0]) for part in parts),
    }
    return re.sub(r"@([A-Z]+)@", lambda match: told[match[1]], template)


def _file(part: FilePart, *, legend: bool) -> str:
    shape = part.shape
    who = html.escape(f"{shape['file']}: {shape['model'] or 'unknown model'}, {counted(shape['n'])}")
    sentences = "".join(f"<li>{html.escape(sentence)}</li>" for sentence in part.sentences)
    examples = "".join(map(_example, part.examples))
    if examples:
        examples = f'<p class="soft">{_LEGEND}</p>{examples}'
    told = f'<p class="soft">{html.escape(LEGEND)}</p>' if legend else ""
    verdict = f"<p><strong>{html.escape(part.verdict)}</strong></p>"
    return f"<h2>{who}</h2>{verdict}{_table(part.rows)}{told}{_bar(shape)}<ul>{sentences}</ul>{examples}"


def _bar(shape: Row) -> str:
    parts = [("reach", "reaching", "until the answer stands")]
    if shape["thinking_ends_at"] is None:  # it is one text: nobody knows where it begins to be written up
        parts += [("check", "checking", "going on")]
    else:
        parts += [("check", "checking", "thinking on"), ("write", "writing", "writing it up")]
    spans = "".join(f'<span class="{kind}" style="width:{100 * shape[key]:.1f}%"></span>' for kind, key, _ in parts)
    legend = " ".join(
        f'<span><i class="{kind}"></i>{words} {100 * shape[key]:.1f} %</span>' for kind, key, words in parts
    )
    return f'<div class="bar">{spans}</div><p class="soft key">{legend}</p>'


def _table(rows: Sequence[Row]) -> str:
    head = "".join(f"<th>{name}</th>" for name in HEADINGS)
    body = []
    for row in rows:
        ours = ' class="ours"' if row["method"] == "settled" else ""
        body.append(f"<tr{ours}>{''.join(f'<td>{html.escape(cell)}</td>' for cell in cells(row))}</tr>")
    return f'<div class="wide"><table><tr>{head}</tr>{"".join(body)}</table></div>'


def _example(example: Example) -> str:
    stops = sorted(example.stops, key=lambda stop: stop.at)
    text, shown = example.text, []
    at, saved = 0, False
    for i, stop in enumerate(stops):
        piece = text[at : stop.at]
        shown.append(_piece(piece if i else _shortened(piece), saved=saved))
        kind = "stop lost" if stop.lost else "stop"
        reads = "no answer" if stop.answer is None else shorten(stop.answer, _ANSWER, placeholder=" ...")
        what = f"{stop.rule} reads {reads}: {stop.verdict}{', which is lost' if stop.lost else ''}"
        shown.append(f' <span class="{kind}">{html.escape(what)}</span> ')
        at, saved = stop.at, saved or stop.ours
    rest = text[at:]
    tail = rest if len(rest) <= _HEAD else f"{rest[: _HEAD // 2]}\n[...]\n{rest[-_HEAD // 2 :]}"
    body = "".join(shown) + _piece(tail, saved=saved)
    question = html.escape(example.question[-_HEAD:])
    return (
        f'<details><summary>{html.escape(example.title)}</summary><p>{question}</p><p class="text">{body}</p></details>'
    )


def _piece(text: str, *, saved: bool) -> str:
    """A piece of a text: pale where it would not have been written."""
    return f'<span class="rest">{html.escape(text)}</span>' if saved else html.escape(text)


def _shortened(piece: str) -> str:
    return piece if len(piece) <= 2 * _HEAD else f"{piece[:_HEAD]}\n[...]\n{piece[-_HEAD:]}"
