"""bitcal audit: texts a model has written -> what could have been saved, and what could be promised."""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from textwrap import fill
from typing import Any

from bitcal_tts.auditing.crossfit import FoldScorers, fit_folds
from bitcal_tts.auditing.findings import (
    HEADINGS,
    LEGEND,
    USUAL_RISK,
    Audited,
    Row,
    Served,
    cells,
    counted,
    scored,
    sentences,
    verdict,
    worth_showing,
)
from bitcal_tts.auditing.page import Example, FilePart, Stop, render
from bitcal_tts.auditing.reading import ReadText
from bitcal_tts.auditing.walking import FOLDS, Setting, Walked, walk_texts
from bitcal_tts.calibration.boosting import load_lightgbm
from bitcal_tts.calibration.fit import SHARE, SHARE_OF_KNOWN
from bitcal_tts.calibration.recording import mark_of_question
from bitcal_tts.calibration.starters import Starter, load_starter
from bitcal_tts.calibration.store import load_profile
from bitcal_tts.commands import options
from bitcal_tts.commands.logs import Log, add_columns, as_told, columns_of
from bitcal_tts.commands.progress import mention_met, note, progress, say, suggest
from bitcal_tts.commands.table import NARROW, print_table
from bitcal_tts.files import write_json, write_text
from bitcal_tts.halting.answers import FORMATS
from bitcal_tts.logs import LoggedText
from bitcal_tts.logs.counting import splitter
from bitcal_tts.logs.files import bare_name
from bitcal_tts.workers import end_with_parent

EXAMPLE = """example:
  bitcal audit logs.jsonl
  bitcal audit logs/*.jsonl.gz --tokenizer tokenizer.json --out audit
  bitcal audit chats.parquet --question prompt --response completion --label final --json

A file is JSONL, JSON, CSV or Parquet, plain or compressed, with a question, a response and a gold answer under any
names, or a chat log. Losses are measured against the text, not against what the model would have answered: no model is
asked, and what a stopped text stands for is read off it."""

RISKS = (0.005, 0.01, 0.02, 0.05)
_BATCH = 8
_OURS = "settled"
_BEHIND_FULL = 2
"""Columns that are left out of the terminal's table unless all are asked for."""
_FITTED = 4_000_000
"""Characters of texts whose looks are kept for fitting, in about 1 GiB; of more texts a random share is fitted on, and
the rest is scored in a second pass."""
_FEWEST = 100
SAMPLE = 5_000
"""Texts of a file that are audited where nothing else is asked for: the interval of a share is within 1.4 points."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of `bitcal audit`."""
    parser.add_argument("files", type=Path, nargs="+", metavar="FILE", help="logs; several are fitted together")
    add_columns(parser)
    parser.add_argument("--label", choices=("gold", "final"), default="gold",
                        help="what is lost: a right answer (gold), or any but the full text's (final)")  # fmt: skip
    parser.add_argument("--risks", type=_risks, default=list(RISKS), metavar="R,R",
                        help="shares of answers that may be lost (default: 0.005,0.01,0.02,0.05)")  # fmt: skip
    parser.add_argument("--profile", type=Path, help="judge by this profile, at its own threshold; nothing is fitted")
    parser.add_argument("--bits", type=float, help="which of the profile's thresholds, where it has several")
    parser.add_argument("--starter", choices=("auto", "none"), default="auto",
                        help="whether scorers start from those in the package (default: auto)")  # fmt: skip
    parser.add_argument("--sample", type=_sample, default=SAMPLE, metavar="N|all",
                        help=f"audit about N texts of each file, drawn at random (default: {SAMPLE})")  # fmt: skip
    parser.add_argument("--out", type=options.folder, help="a folder for audit.json and audit.html")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes (default: one a core)")
    options.add_full(parser, "print the accuracy, and the share of the thinking that is written, as well")
    options.add_json(parser)


def _sample(text: str) -> int | None:
    if text == "all":
        return None
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"a number of texts of at least 1, or all, got {text!r}")
    return int(text)


def _risks(text: str) -> list[float]:
    try:
        risks = [float(part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"risks are numbers such as 0.01,0.05, got {text!r}") from None
    if not all(0 < risk < 1 for risk in risks):
        raise argparse.ArgumentTypeError(f"risks lie above 0 and below 1, got {text!r}")
    return risks


def run(args: argparse.Namespace) -> None:
    """Audit files and print or write what was found."""
    if args.jobs is not None and args.jobs < 1:
        raise ValueError(f"--jobs must be at least 1, got {args.jobs}")
    served = _served(args)
    if served is None:
        load_lightgbm()  # where it is not to be had, that is said before the texts are read
    if len(set(args.files)) < len(args.files):
        raise ValueError("a file is named twice: each is audited once")
    named = Counter(path.name for path in args.files)
    audits = [_Audit(path, str(path) if named[path.name] > 1 else path.name, args, served) for path in args.files]
    kinds = {FORMATS[audit.setting.answers].values for audit in audits}
    if len(kinds) > 1:
        raise ValueError(f"files to be fitted together must have one kind of answers, not {', '.join(map(str, kinds))}")
    with ProcessPoolExecutor(args.jobs, get_context("spawn"), initializer=end_with_parent) as pool:
        walked = [audit.walk(pool, quiet=args.json) for audit in audits]
    kind = kinds.pop()
    starter = load_starter(kind) if kind and args.starter == "auto" else None
    if served is None:
        if not args.json:
            note("fitting")
        scorers = fit_folds(walked, args.label, starter)
    else:
        scorers = FoldScorers((served.profile,) * FOLDS)
    pairs = zip(audits, walked, strict=True)
    certifying = 1 - _fitting_share(starter, args.label, walked)
    audited = [audit.audited(args.jobs, part, scorers, certifying, quiet=args.json) for audit, part in pairs]
    if served is not None:
        marks = [mark for one in audited for mark in one.walked.marks]
        met = {done: sum(mark in questions for mark in marks) for done, questions in served.profile.met.items()}
        mention_met(met, len(marks), "texts")
    rows = [row for one in audited for row in one.rows(args.risks, served)]
    shapes = [one.shape() for one in audited]
    result = {"schema": 1, "rows": rows, "files": shapes, "tokenizer": args.tokenizer or "approximate"}
    if args.out:
        args.out.mkdir(parents=True, exist_ok=True)
        write_json(args.out / "audit.json", result)
        write_text(args.out / "audit.html", _page(audits, audited, rows, served, scorers, args))
    if args.json:
        print(json.dumps(result))
        return
    _show(shapes, rows, full=args.full)
    if args.out:
        say(f"written: {args.out / 'audit.json'} and {args.out / 'audit.html'}")
    first = args.files[0]
    folder = shlex.quote(f"traces/{bare_name(first)}")
    suggest(f"bitcal import {shlex.quote(str(first))}{as_told(args)} --out {folder}")


def _fitting_share(starter: Starter | None, label: str, walked: Sequence[Walked]) -> float:
    """Of the texts, what `bitcal fit` as `bitcal import` suggests it would leave to its scorer."""
    marks = [mark for part in walked for mark in part.marks]
    return SHARE_OF_KNOWN if starter is not None and label == "gold" and starter.is_new_to(marks) else SHARE


def _served(args: argparse.Namespace) -> Served | None:
    """The profile that is to judge, with the threshold that it has for the bits."""
    if args.profile is None:
        return None
    profile = load_profile(args.profile)
    if profile.needs:
        raise ValueError(f"{args.profile} needs {', '.join(s.words for s in profile.needs)}, which texts do not have")
    if args.bits is None and len(profile.thresholds) > 1:
        known = ", ".join(f"{bits:g}" for bits in profile.thresholds)
        raise ValueError(f"{args.profile} has thresholds for {known} bits: say which with --bits")
    bits = next(iter(profile.thresholds)) if args.bits is None else args.bits
    return Served(profile, profile.threshold(bits), profile.evidence[f"{bits:g}"], bits)


def _as_certified(setting: Setting, served: Served, path: Path) -> Setting:
    """How texts are looked at under a profile: as it was certified."""
    profile, settings = served.profile, served.profile.settings
    of = FORMATS[str(settings["answers"])]
    if of.values != FORMATS[setting.answers].values:
        raise ValueError(
            f"the profile was fitted on answers that are {of.values or 'any text'}, and those of {path} are "
            f"{FORMATS[setting.answers].values or 'any text'}: --answers reads them otherwise"
        )
    budget = profile.identity["budget"]
    return replace(
        setting,
        looks=str(settings["looks"]),
        every=int(settings["every"]),
        budget=budget if isinstance(budget, int) else setting.budget,
        bits=served.bits,
    )


class _Audit:
    """A file that is audited."""

    def __init__(self, path: Path, name: str, args: argparse.Namespace, served: Served | None) -> None:
        self._name = name
        gold = args.label == "gold"
        self.log = Log(path, columns_of(args), gold=gold, answers=args.answers, close=args.close)
        self.setting = Setting(self.log.answers, self.log.close, args.tokenizer, self.log.opening)
        if served is not None:
            self.setting = _as_certified(self.setting, served, path)
        self._label = args.label
        self._sampled = 1.0 if args.sample is None else min(1.0, args.sample / self.log.n)
        share = max(_FITTED / max(1, self.log.characters), _FEWEST / self.log.n)
        self._fitted = min(self._sampled, share)
        if self._sampled < 1:
            note(
                f"note: {path} holds {self.log.n:,} texts: about {args.sample:,} of them are audited, drawn at random; "
                "--sample all takes them all"
            )

    def _texts(self, low: float, high: float) -> Iterator[LoggedText]:
        """The texts whose questions' draws lie from one number to another; all draws lie from 0 to 1."""
        for text in self.log.texts():
            drawn = int(mark_of_question(text.question)[::-1], 16) / 16**10
            if low <= drawn < high:
                yield text

    def walk(self, pool: ProcessPoolExecutor, *, quiet: bool) -> Walked:
        """The texts that are fitted on."""
        title, n = f"reading {self.log.path.name}", round(self._fitted * self.log.n)
        return _walked(pool, walk_texts, self._texts(0.0, self._fitted), self.setting, n, title, quiet=quiet)

    def audited(self, jobs: int, walked: Walked, scorers: FoldScorers, certifying: float, *, quiet: bool) -> Audited:
        """The file, with all its texts scored."""
        whole = scored(walked, scorers)
        if self._fitted < self._sampled:
            title = f"scoring the rest of {self.log.path.name}"
            n = round(self._sampled * self.log.n) - walked.n
            rest_of_it = self._texts(self._fitted, self._sampled)
            context = get_context("spawn")
            with ProcessPoolExecutor(jobs, context, initializer=_hold, initargs=(scorers,)) as pool:
                rest = _walked(pool, _walk_and_score, rest_of_it, self.setting, n, title, quiet=quiet)
            whole = Walked.joined([replace(whole, settled=whole.settled.condensed()), rest])
        log, setting = self.log, self.setting
        return Audited(
            self._name, log.model, setting.answers, setting.close, self._label, whole, log.faults, log.n, certifying
        )

    def examples(
        self, one: Audited, risks: Sequence[float], served: Served | None, scorers: FoldScorers
    ) -> list[Example]:
        """A few texts with the places where rules would have stopped them."""
        marks = one.marks(min(risks, key=lambda risk: abs(risk - USUAL_RISK)), served)
        ours = next(cut for name, (_, cut) in marks.items() if name.startswith(_OURS))
        chosen = worth_showing(ours, one.label)
        lines = {one.walked.lines[i]: i for i in chosen}
        texts = {text.line: text for text in self.log.texts() if text.line in lines}
        folds = one.walked.folds
        return [
            self._example(
                ReadText(texts[line], self.setting, scorers.profiles[folds[i]]),
                texts[line],
                i,
                chosen[i],
                marks,
                one.label,
            )
            for line, i in lines.items()
        ]

    def _example(self, read: ReadText, text: LoggedText, i: int, title: str, marks: Any, label: str) -> Example:
        pieces = splitter(self.setting.tokenizer)(text.response)
        ends = list(itertools.accumulate(map(len, pieces), initial=0))
        stops = [
            Stop(
                name,
                ends[at[i]],
                read.by(name, int(at[i])),
                "right" if cut.correct[i] else "wrong",
                bool(cut.losses(label)[i]),
                name.startswith(_OURS),
            )
            for name, (at, cut) in marks.items()
            if at[i]
        ]
        gold = "" if text.answer is None else f", gold {text.answer}"
        return Example(f"{title}: {text.id}{gold}, {len(pieces):,} tokens", text.question, text.response, stops)


_AHEAD = 2 * (os.cpu_count() or 1)
"""Batches that are handed out before the first is taken back: no core waits for another's."""
_held: list[FoldScorers] = []
"""In a process that scores texts, what it scores them with: sent once, for it is larger than the texts."""


def _hold(scorers: FoldScorers) -> None:
    end_with_parent()
    _held[:] = [scorers]


def _walk_and_score(texts: Sequence[LoggedText], setting: Setting) -> Walked:
    return walk_texts(texts, setting, _held[0])


def walk_log(pool: ProcessPoolExecutor, log: Log, setting: Setting) -> Walked:
    """All texts of a log."""
    return _walked(pool, walk_texts, log.texts(), setting, log.n, f"reading {log.path.name}", quiet=False)


def _walked(
    pool: ProcessPoolExecutor,
    walk: Callable[[Sequence[LoggedText], Setting], Walked],
    texts: Iterator[LoggedText],
    setting: Setting,
    n: int,
    title: str,
    *,
    quiet: bool,
) -> Walked:
    """Walk along texts in other processes, a few batches ahead, and keep their order."""
    parts: list[Walked] = []
    waiting: list[Future[Walked]] = []
    with progress(title, n, quiet=quiet) as advance:
        while True:
            while len(waiting) < _AHEAD and (batch := list(itertools.islice(texts, _BATCH))):
                waiting.append(pool.submit(walk, batch, setting))
            if not waiting:
                break
            wait(waiting[:1], return_when=FIRST_COMPLETED)
            parts.append(waiting.pop(0).result())
            advance(parts[-1].n, int(parts[-1].shape.tokens.sum()))
    if not parts:
        raise ValueError(f"{title}: none of the texts was drawn; ask for more with --sample")
    return Walked.joined(parts)


def _page(
    audits: Sequence[_Audit],
    audited: Sequence[Audited],
    rows: Sequence[Row],
    served: Served | None,
    scorers: FoldScorers,
    args: argparse.Namespace,
) -> str:
    parts = []
    for audit, one in zip(audits, audited, strict=True):
        mine = [row for row in rows if row["file"] == one.file]
        shape = one.shape()
        parts.append(
            FilePart(
                shape, mine, verdict(mine), sentences(shape, mine), audit.examples(one, args.risks, served, scorers)
            )
        )
    counted = "counted by " + (args.tokenizer or "an approximation")
    against = "gold answers" if args.label == "gold" else "what the full texts end with"
    return render(
        parts,
        f"Tokens are {counted}. Losses are against {against}, and are read off the texts: no model was asked what it "
        "would have answered.",
    )


def _show(shapes: Sequence[Row], rows: Sequence[Row], *, full: bool) -> None:
    shown = len(HEADINGS) if full else len(HEADINGS) - _BEHIND_FULL
    for shape in shapes:
        mine = [row for row in rows if row["file"] == shape["file"]]
        print(f"{shape['file']}: {shape['model'] or 'unknown model'}, {counted(shape['n'])}")
        print(fill(verdict(mine), NARROW))
        for sentence in sentences(shape, mine):
            print(fill(f"- {sentence}", NARROW, subsequent_indent="  "))
        print_table("", HEADINGS[:shown], [cells(row)[:shown] for row in mine], sections=False, width=NARROW)
    print(fill(LEGEND, NARROW))
    if not full:
        print("accuracy, and the share of the thinking: --full, or the page that --out writes")
