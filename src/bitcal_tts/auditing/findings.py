"""Walked texts -> rows and sentences: what was written, what stopping would have saved, what can be promised."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bitcal_tts.auditing.crossfit import FoldScorers, candidates_of, crossed
from bitcal_tts.auditing.walking import FOLDS, Walked
from bitcal_tts.calibration.risk import certify
from bitcal_tts.evaluation.promises import seen
from bitcal_tts.evaluation.statistics import wilson
from bitcal_tts.evaluation.verdict import WORTH
from bitcal_tts.halting.profile import Profile
from bitcal_tts.traces.cut import Cut
from bitcal_tts.traces.looks import LookTable

Row = dict[str, Any]
CONFIDENCE = 0.9
USUAL_RISK = 0.01
_AGREEING = (1, 2, 3)
_EXAMPLES = 4


class Served(NamedTuple):
    """A profile that judges texts, its threshold, the evidence for it, and the precision that they are for."""

    profile: Profile
    threshold: float
    evidence: Mapping[str, Any]
    bits: float

    @property
    def risk(self) -> float:
        """That it was certified for."""
        return float(self.evidence["risk"])


@dataclass(frozen=True)
class Audited:
    """A file, audited.

    Attributes:
        file: Its name.
        model: What wrote the texts, as far as the log says.
        answers: The answer format.
        close: What ends the thinking, or None.
        label: `gold` or `final`.
        walked: Its texts, with scored looks.
        faults: Records that could not be used.
        texts: In the file; None where all of them were audited.
        certifying: Share of the texts that `bitcal fit` would certify with; its scorer takes the others.
    """

    file: str
    model: str | None
    answers: str
    close: str | None
    label: str
    walked: Walked
    faults: int
    texts: int | None = None
    certifying: float = 1.0

    def rows(self, risks: Sequence[float], served: Served | None = None) -> list[Row]:
        """A row a method and risk; methods without a setting come once, their risk is null.

        With a profile that judges, `settled` comes once, at its threshold; nothing is certified by these texts then.
        """
        walked = self.walked
        rows = [
            self._row("full", None, walked.settled.full()),
            self._row("complete", None, walked.complete.cut(0.5)),
            *(self._row(f"stated_{k}", None, walked.stated.cut(float(k))) for k in _AGREEING),
        ]
        rows += [self._crossed("stated", walked.stated, risk) for risk in risks]
        if served is None:
            rows += [self._crossed("settled", walked.settled, risk, self.certifying) for risk in risks]
        else:
            stops = math.isfinite(served.threshold)
            cut = walked.settled.cut(served.threshold) if stops else walked.settled.full()
            met = set().union(*served.profile.met.values())
            new = np.array([mark not in met for mark in walked.marks])
            among = new & cut.full_correct if served.evidence.get("among") == "right" else new
            promise = seen(served.evidence, int(cut.losses(self.label)[among].sum()), int(among.sum()))["line"]
            rows.append({**self._row("settled", served.risk, cut), "promise": promise})
        return [*rows, self._row("oracle", None, self._oracle())]

    def _crossed(self, name: str, table: LookTable, risk: float, certifying: float = 1.0) -> Row:
        """A method whose setting comes from the other folds, and what a share of the texts could certify of it."""
        table = table.rising()
        done = crossed(table, self.walked.folds, risk, self.label)
        marks = self.walked.marks
        first = {mark: i for i, mark in reversed(list(enumerate(marks)))}  # samples of one question are not independent
        n = max(1, round(certifying * len(first)))
        rest = table.of(np.sort([first[mark] for mark in sorted(first, key=lambda mark: mark[::-1])[:n]]))
        certificate = certify(
            lambda t: int(rest.cut(t).losses(self.label).sum()), n, candidates_of(table, 100),
            risk=risk, confidence=CONFIDENCE, cost_at=lambda t: float(rest.cut(t).cost.mean()),
        )  # fmt: skip
        row = self._row(name, risk, done.cut)
        certified = math.isfinite(certificate.threshold)
        promised = table.cut(certificate.threshold) if certified else table.full()
        row |= {
            "certified": certified,
            "certified_share": promised.share,
            "confidence": CONFIDENCE,
            "more_items_needed": certificate.more and math.ceil(certificate.more * len(first) / n),
        }
        return row

    def _row(self, method: str, risk: float | None, cut: Cut) -> Row:
        n, gold = len(cut.tokens), self.label == "gold"
        losses = cut.losses(self.label)
        lost = int(losses.sum())
        questions = self.walked.questions  # as if all samples of a question went the same way
        interval = wilson(lost * questions / n, questions)
        return {
            "file": self.file,
            "model": self.model,
            "method": method,
            "risk": risk,
            "n": n,
            "accuracy": float(cut.correct.mean()) if gold else None,
            "full_accuracy": float(cut.full_correct.mean()) if gold else None,
            "share": cut.share,
            "thinking_share": self.walked.shape.thinking_share(cut),
            "lost_correct_rate": lost / n,
            "lost_low": interval.low,
            "lost_high": interval.high,
            "certified": None,
            "label": self.label,
            "stopped": float(cut.halted.mean()),
        }

    def _oracle(self) -> Cut:
        """Stops at the first look at which what the text stands for is as good as what it ends with."""
        table = self.walked.settled
        good = table.stops.right if self.label == "gold" else table.stops.same
        return replace(table, scores=good.astype(np.float64)).cut(0.5)

    def marks(self, risk: float, served: Served | None = None) -> dict[str, tuple[NDArray[np.int64], Cut]]:
        """Where rules would have stopped each text, in tokens, and what came of it."""
        walked = self.walked
        if served is None:
            done = crossed(walked.settled, walked.folds, risk, self.label)
            gate, ours = done.table, done.at
        else:
            risk, gate, ours = served.risk, walked.settled, np.full(walked.n, served.threshold)
        settings = {
            f"settled at {100 * risk:g} %": (gate, ours),
            "stated_1": (walked.stated, np.ones(walked.n)),
            "complete": (walked.complete, np.full(walked.n, 0.5)),
        }
        return {name: (table.places(at), table.cut(at)) for name, (table, at) in settings.items()}

    def shape(self) -> Row:
        """Where the tokens went, as shares of all of them; and how many texts loop or have no answer."""
        shape = self.walked.shape
        total = max(1, int(shape.tokens.sum()))
        stood = np.where(shape.standing > 0, np.minimum(shape.standing, shape.thinking), shape.thinking)
        lengths = np.quantile(shape.tokens, (0.1, 0.5, 0.9)) if len(shape.tokens) else np.zeros(3)
        loops = shape.looping > 0
        return {
            "file": self.file,
            "model": self.model,
            "n": self.walked.n,
            "questions": self.walked.questions,
            "texts": self.texts or self.walked.n,
            "skipped": self.faults,
            "answers": self.answers,
            "thinking_ends_at": self.close,
            "tokens_mean": float(shape.tokens.mean()),
            "tokens_p10_p50_p90": [float(value) for value in lengths],
            "reaching": float(stood.sum() / total),
            "checking": float((shape.thinking - stood).sum() / total),
            "writing": float((shape.tokens - shape.thinking).sum() / total),
            "standing": float(np.mean(shape.standing[shape.standing > 0] / shape.tokens[shape.standing > 0]))
            if (shape.standing > 0).any()
            else None,
            "never_stands": float((shape.standing == 0).mean()),
            "loops": float(loops.mean()),
            "loop_tokens": float((shape.tokens - shape.looping)[loops].sum() / total),
            "unanswered": float((~shape.answered).mean()),
            "truncated": float(shape.truncated.mean()),
            "full_accuracy": float(self.walked.settled.full_right.mean()) if self.label == "gold" else None,
        }


def scored(walked: Walked, scorers: FoldScorers) -> Walked:
    """The same texts with the scores of the scorers of their folds."""
    folds = walked.folds
    order, tables = [], []
    for fold in range(FOLDS):
        mine = np.nonzero(folds == fold)[0]
        if len(mine):
            order.append(mine)
            tables.append(scorers(walked.settled.of(mine), fold))
    table = LookTable.joined(tables)
    back = np.argsort(np.concatenate(order), kind="stable")
    return replace(walked, settled=table.of(back))


HEADINGS = ("method", "risk %", "tokens %", "lost %", "provable", "right %", "thinking %")
"""What matters most first, so that a telephone shows it, and so that a terminal can leave the last two out."""
LEGEND = (
    "tokens: the share of all that is written; lost: the full text was right (with --label final: whatever it ends "
    "with is) and the stop is wrong, with the 95 % interval; provable: at what share of the tokens bitcal fit, as "
    "bitcal import suggests it, could promise so small a risk with these texts, or how many more that would take, as "
    "far as scorers fitted on the other texts can tell (no: none of its settings loses so little). stated_2 stops when "
    "the same answer was stated twice in a row; oracle knows the answer."
)


def cells(row: Row) -> tuple[str, ...]:
    """A row as people read it, under `HEADINGS`."""
    return (
        row["method"],
        "" if row["risk"] is None else f"{100 * row['risk']:g}",
        f"{100 * row['share']:.1f}",
        f"{100 * row['lost_correct_rate']:.1f} [{100 * row['lost_low']:.1f}, {100 * row['lost_high']:.1f}]",
        _provable(row),
        "-" if row["accuracy"] is None else f"{100 * row['accuracy']:.1f}",
        f"{100 * row['thinking_share']:.1f}",
    )


def _provable(row: Row) -> str:
    if row["certified"] is None:
        return ""
    if row["certified"]:
        return f"at {100 * row['certified_share']:.1f}"
    return f"+{row['more_items_needed']:,} texts" if row["more_items_needed"] else "no"


def worth_showing(cut: Cut, label: str) -> dict[int, str]:
    """A few texts by what `settled` does on them: what it loses first, then where it saves most, then never stops."""
    by_saving = np.argsort(cut.cost - cut.full_tokens, kind="stable")
    found = {
        "settled loses": np.nonzero(cut.losses(label))[0],
        "settled saves most": by_saving[cut.halted[by_saving]],
        "settled never stops": np.nonzero(~cut.halted)[0],
    }
    chosen: dict[int, str] = {}
    for title, which in found.items():
        for i in which[:_EXAMPLES].tolist():
            chosen.setdefault(i, title)
    return chosen


def verdict(rows: Sequence[Row]) -> str:
    """What could be saved of a file, in a sentence: by the gate at the usual risk, or by what is simpler and better."""
    gates = [row for row in rows if row["method"] == "settled"]
    for row in rows:
        simpler = row["method"] == "complete" and 1 - row["share"] >= WORTH
        if simpler and all(_no_worse(row, gate) for gate in gates):
            return f"complete, which stops when the answer is written out, {_saves(row)}: here it is the better rule."
    row = min(gates, key=lambda gate: abs(gate["risk"] - USUAL_RISK))
    risk = f"{100 * row['risk']:g} %"
    if 1 - row["share"] < WORTH:
        could = "".join(
            f"; an oracle would save {_pc(1 - one['share'])} %" for one in rows if one["method"] == "oracle"
        )
        return f"settled, aimed at {risk} lost, would have saved nothing to speak of here{could}."
    if row["certified"] is None:
        return f"settled, with the profile's threshold, {_saves(row)}."
    promise = f"{risk} cannot be promised here"
    if row["certified"]:
        promise = f"{risk} could be promised with so many texts, saving {_pc(1 - row['certified_share'])} %"
    elif row["more_items_needed"]:
        promise = f"to promise {risk} takes about {row['more_items_needed']:,} more texts, and saves less"
    return f"settled, aimed at {risk} lost, {_saves(row)}; {promise}."


def counted(n: int) -> str:
    """How many texts."""
    return f"{n:,} text{'' if n == 1 else 's'}"


def sentences(shape: Row, rows: Sequence[Row]) -> list[str]:
    """What a file says, a sentence a finding."""
    found = [
        f"{counted(shape['n'])}{_drawn(shape)} of {shape['tokens_mean']:,.0f} tokens on average (a tenth is longer "
        f"than {shape['tokens_p10_p50_p90'][2]:,.0f})."
    ]
    if shape["questions"] < shape["n"]:
        found.append(
            f"They are about {shape['questions']:,} questions: for intervals and promises several texts about one "
            "question count once."
        )
    if shape["full_accuracy"] is not None:
        found.append(f"{_pc(shape['full_accuracy'])} % of them end with the right answer.")
    if shape["standing"] is not None:
        found.append(
            f"What a text ends with first stands after {_pc(shape['standing'])} % of it, on average: "
            f"{_pc(shape['reaching'])} % of all tokens reach the answer, {_pc(shape['checking'])} % go on "
            f"after it, {_pc(shape['writing'])} % write it up."
        )
    if shape["loops"] > 0:
        found.append(
            f"{_pc(shape['loops'])} % repeat themselves to the end, in {_pc(shape['loop_tokens'])} % of all tokens: "
            "a loop guard saves those without any confidence."
        )
    if shape["unanswered"] > 0:
        found.append(f"{_pc(shape['unanswered'])} % give no answer at all.")
    found += [
        f"The threshold of settled is the profile's; {row['promise']}."
        for row in rows
        if row["method"] == "settled" and row["certified"] is None
    ]
    return found


def _saves(row: Row) -> str:
    lost = f"{_pc(row['lost_correct_rate'])} % [{_pc(row['lost_low'])}, {_pc(row['lost_high'])}]"
    what = "right answers" if row["label"] == "gold" else "answers"
    return f"would have saved {_pc(1 - row['share'])} % of the tokens and lost {what} in {lost} of the texts"


def _no_worse(row: Row, other: Row) -> bool:
    return all(row[measure] <= other[measure] for measure in ("share", "lost_correct_rate"))


def _drawn(shape: Row) -> str:
    return f", drawn at random from {shape['texts']:,}," if shape["texts"] > shape["n"] else ""


def _pc(share: float | None) -> str:
    return "-" if share is None else f"{round(100 * share, 1) + 0.0:g}"  # which makes -0 a 0
