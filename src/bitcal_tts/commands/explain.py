"""bitcal explain: one item: its trace, signals, decisions, and what each method would have done."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
from pathlib import Path
from textwrap import fill, shorten
from typing import Any

from bitcal_tts.commands import build, options
from bitcal_tts.commands.places import summary_in
from bitcal_tts.commands.progress import note
from bitcal_tts.commands.recordings import open_recording
from bitcal_tts.commands.table import NARROW, WORDS, print_table
from bitcal_tts.halting.controller import Controller, Decision
from bitcal_tts.halting.identity import Identity
from bitcal_tts.halting.paper import PaperRule
from bitcal_tts.halting.policy import Reason
from bitcal_tts.halting.session import Session
from bitcal_tts.tasks import Task
from bitcal_tts.traces.chunks import chunked_for
from bitcal_tts.traces.oracle import informed
from bitcal_tts.traces.replay import outcomes, replay
from bitcal_tts.traces.trace import Trace

EXAMPLE = """example:
  bitcal explain runs/tiny-15m-4bit-gsm_symbolic-instruct-t0-s0-n200/traces 7
  bitcal explain traces/tiny test-0-00007 --methods adaptive,bitcal_tts --json"""
_ROOM = 40  # letters of an answer in a table


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of `bitcal explain`."""
    parser.add_argument("traces", type=Path, help="a folder that bitcal record wrote, or one of results from it")
    parser.add_argument("item", help="an item's id, or its number")
    options.add_method_options(parser)
    options.add_budgets(parser, None)
    options.add_answers(parser, "as recorded")
    options.add_json(parser)


def run(args: argparse.Namespace) -> None:
    """Explain, for people or as JSON."""
    opened = open_recording(args.traces, answers=args.answers, declare=options.declared(args), complete=False)
    trace = find(opened.traces, args.item, args.traces, opened.store.manifest.n)
    if args.budgets and len(args.budgets) > 1:
        raise ValueError("one item is explained at one budget: give --budgets one number")
    budget = build.budgets_of(args.budgets, args.profile, opened)[0]
    if args.methods is None:
        args.methods = _of_results(args.traces, profile=args.profile)
    methods = build.methods_of(args, opened, [budget])
    found = explain(trace, methods, opened.task, opened.identity)
    found["gold"] = trace.index not in opened.without_gold
    if args.json:
        print(json.dumps({"schema": 1, **found}))
    else:
        _print(trace, found)


def _of_results(folder: Path, *, profile: Path | None) -> list[str] | None:
    """The methods of a folder of results, `settled` only with its profile; None where it is another folder."""
    told = summary_in(folder).get("parameters", ())
    names = list(dict.fromkeys(one["name"] for one in told))
    if "settled" in names and profile is None:
        note("note: settled is among these results: --profile FILE shows where it looked and why it stopped")
        names.remove("settled")
    return names or None


def find(traces: Sequence[Trace], name: str, folder: Path, n: int) -> Trace:
    """A trace by its item's id or number, of a recording that has `n` when it is finished."""
    named = {str(trace.index): trace for trace in traces} | {trace.item.id: trace for trace in traces}
    if name in named:
        return named[name]
    if not traces:
        raise ValueError(f"{folder} holds no traces")
    if len(traces) < n:
        raise ValueError(
            f"{folder} has no item {name!r} yet: {len(traces):,} of {n:,} are recorded, and not in their order; the "
            "same bitcal record goes on"
        )
    first, last = traces[0], traces[-1]
    ids, numbers = f"{first.item.id} to {last.item.id}", f"{first.index} to {last.index}"
    raise ValueError(f"{folder} has no item {name!r}; its items are {ids}, by number {numbers}")


def explain(
    trace: Trace, methods: Sequence[Controller], task: Task, identity: Identity | None = None
) -> dict[str, Any]:
    """What each method did on a trace, and its decision at every boundary, those after it halted included."""
    told = []
    for method in methods:
        p = method.parameters
        (outcome,) = outcomes([trace], method, task, identity=identity)
        decisions, session = _decisions(trace, method, task, identity)
        last = session.outcome.decision
        lands = session.outcome.landing_tokens > 0
        told.append({
            "method": p.name,
            "threshold": _threshold(p),
            "tokens": outcome.tokens,
            "left_at": last.tokens if lands and last else outcome.tokens,
            "landing": session.outcome.text[len(trace.text_at(last.tokens)) :] if lands and last else "",
            "finish": outcome.finish,
            "reason": outcome.reason,
            "answer": outcome.answer,
            "correct": outcome.correct,
            "full_correct": outcome.full_correct,
            "lost": outcome.lost,
            "rescued": outcome.rescued,
            "decisions": [
                {
                    "tokens": d.tokens,
                    "action": str(d.action),
                    "reason": str(d.reason),
                    "confidence": d.confidence,
                    "score": d.score,
                    "stands_for": d.answer,
                    "entropy": d.entropy,
                    "trace_stability": d.trace_stability,
                    "hidden_stability": d.hidden_stability,
                }
                for d in decisions
            ],
        })  # fmt: skip
    return {
        "item": trace.item.id,
        "question": trace.item.question,
        "answer": trace.item.answer,
        "text": trace.text,
        "tokens": len(trace),
        "finish": trace.finish,
        "budget": methods[0].parameters.budget,
        "full_correct": told[0]["full_correct"],
        "methods": told,
    }


def _decisions(
    trace: Trace, method: Controller, task: Task, identity: Identity | None
) -> tuple[list[Decision], Session]:
    """Decisions along a trace where the method judged anything, and its session; the paper's past their halt too."""
    told: list[Decision] = []

    def note(_: Session, decision: Decision) -> None:
        if decision.looked or decision.halts:
            told.append(decision)

    (trace,) = chunked_for([trace], method)
    knowing = informed(method, trace, task)
    all_signals = trace.signals.present
    session = replay(trace, knowing, identity=identity, watch=note, fed=all_signals)
    if isinstance(method, PaperRule):
        told.clear()
        replay(trace, knowing, identity=identity, watch=note, heed=False, fed=all_signals)
    return told, session


def _print(trace: Trace, found: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console()
    kind = "gold answer" if found["gold"] else "no gold answer; its text ends with"
    console.print(Text.assemble((found["item"], "bold"), f", {kind} {found['answer']}"))  # no text is markup
    console.print(Text(found["question"], style="italic"))
    text = Text()
    stops: dict[int, list[str]] = {}
    for told in found["methods"]:
        stops.setdefault(told["left_at"], []).append(told["method"])
    shaded = trace.shaded()
    for i, (piece, entropy) in enumerate(shaded, 1):
        text.append(piece, style=_shade(entropy))
        if i in stops:
            text.append(f" ◀ {', '.join(stops[i])} ", style="reverse")
    console.print()
    console.print(text)
    if console.color_system is not None and any(entropy is not None for _, entropy in shaded):
        scale = "below 0.1  [yellow]to 0.5[/yellow]  [dark_orange]to 1.5[/dark_orange]  [red]above[/red]"
        console.print(f"\n[dim]entropy:[/dim] {scale}")
    print()
    ends = [
        (told["method"], str(told["tokens"]), told["reason"], _short(told["answer"] or "(none)"), told["correct"])
        for told in found["methods"]
    ]
    names = ("method", "tokens", "reason", "answer", "right")
    cells = [(*end, "yes" if right else "no") for *end, right in ends]
    print_table("Where each method ends", names, cells, sections=False, words=names[2:] + WORDS)
    for told in found["methods"]:
        if told["threshold"] is not None:
            print()
            _print_looks(told)
    # One that never halts has nothing to decide.
    others = [
        told
        for told in found["methods"]
        if told["threshold"] is None and any(d["reason"] != Reason.FIXED for d in told["decisions"])
    ]
    if others:
        print()
        _print_boundaries(others)


def _print_boundaries(methods: Sequence[dict[str, Any]]) -> None:
    """What methods that judge by signals saw and decided, up to their end: what comes after it is for machines."""
    by_tokens = [{d["tokens"]: d for d in told["decisions"] if d["tokens"] <= told["left_at"]} for told in methods]
    cells = []
    for tokens in sorted(set().union(*by_tokens)):
        here = [told.get(tokens) for told in by_tokens]
        # The paper's methods know the stabilities; others tell their own score.
        first = max((d for d in here if d), key=lambda d: d["hidden_stability"] is not None)
        signals = (first["entropy"], first["trace_stability"], first["hidden_stability"])
        shown = ("" if signal is None else f"{signal:.3f}" for signal in signals)
        cells.append((str(tokens), *shown, *(_told(d) if d else "" for d in here)))
    title = "Signals at every boundary, and what each method decides there up to its end (its confidence or score)"
    decide = [told["method"] for told in methods]
    print_table(title, ("tokens", "entropy", "trace", "hidden", *decide), cells, sections=False, words=decide)


def _threshold(p: Any) -> float | None:
    """From which score on a method stops; None where it judges by none."""
    threshold = getattr(p, "threshold", None)
    return threshold if threshold is not None and math.isfinite(threshold) else None


def _print_looks(told: dict[str, Any]) -> None:
    """Where a gate looked: the score, beside its threshold, and the value that the text stood for."""
    title = f"Looks of {told['method']}: it stops where the score reaches {told['threshold']:.4g}"
    reads = any(d["stands_for"] for d in told["decisions"])  # a rule that asks the model reads no value of the text
    names = ("tokens", "score", *(["stands for"] if reads else []), "decision")
    cells = []
    for d in told["decisions"]:
        value = [_short(d["stands_for"] or "")] if reads else []
        cells.append((str(d["tokens"]), "" if d["score"] is None else f"{d['score']:.4f}", *value, d["reason"]))
    if cells:
        print_table(title, names, cells, sections=False, words=names[2:])
    else:
        print(fill(f"{title}; there were none: nothing in the text is one for this rule", NARROW))


def _short(text: str) -> str:
    """What stands for a text in a cell: its beginning, in one line."""
    return shorten(text, _ROOM, placeholder=" …") if len(text.split()) > 1 else text[:_ROOM]


def _told(decision: dict[str, Any]) -> str:
    """A reason, in words that a narrow column breaks between, and the number that it rests on."""
    number = decision["score"] if decision["confidence"] is None else decision["confidence"]
    reason = str(decision["reason"]).replace("_", " ")
    return reason if number is None else f"{reason} ({number:.2f})"


def _shade(entropy: float | None) -> str:
    if entropy is None or entropy < 0.1:
        return ""
    if entropy < 0.5:
        return "yellow"
    return "dark_orange" if entropy < 1.5 else "red"
