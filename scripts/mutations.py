"""Break the code by hand, one line at a time, and see whether a test notices.

    python scripts/mutations.py --out results/mutations.md

Each mutation is applied to a copy of the sources, the tests named beside it are run against the copy, and it counts as
caught where one fails. The first eleven are those that a review of version 0.1 found unnoticed. Not part of `make
test`: it takes some minutes.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from bitcal_tts.files import write_text

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "bitcal_tts"


class Mutation(NamedTuple):
    """A line that is made wrong."""

    what: str
    file: str
    right: str
    wrong: str
    tests: str


FEATURES = "tests/halting/test_features.py"
SESSION = "tests/halting/test_session.py"
RULES = "tests/halting/test_rules.py"
DRIFT = "tests/halting/test_loops_and_drift.py"
FIT = "tests/calibration/test_fit.py"
BATCH = "tests/engines/test_sessions_in_a_batch.py"
PROBES = "tests/engines/test_score_and_probe.py"
GROWTH = "tests/traces/test_growth.py"
REPLAY = "tests/traces/test_replay.py"
VALUES = "tests/halting/test_values.py"
AUDIT = "tests/auditing/test_audit.py"
TEXTS = "tests/traces/test_texts.py"
FRONTIER = "tests/evaluation/test_frontier.py"
STATISTICS = "tests/evaluation/test_statistics.py"
AUTOPILOT = "tests/serving/test_autopilot.py"

MUTATIONS = (
    Mutation(
        "agreement of statements inverted", "halting/features.py",
        "self._agreeing + 1 if statement.value == self.value else 1",
        "self._agreeing + 1 if statement.value != self.value else 1", FEATURES,
    ),
    Mutation(
        "a redo never resets what came before it", "halting/trail.py", "self._since_redo = _Stretch()\n\n", "pass\n\n",
        FEATURES,
    ),
    Mutation(
        "the smallest margin made the largest", "halting/trail.py",
        "stretch.margin_min = min(stretch.margin_min, margin_min)",
        "stretch.margin_min = max(stretch.margin_min, margin_min)", FEATURES,
    ),
    Mutation(
        "s1 counts outside the thinking", "halting/rules/s1.py",
        "step.stage is not Stage.THINKING", "step.stage is Stage.OVER", RULES,
    ),
    Mutation(
        "a loop is called after one period", "halting/loops.py",
        "max(self.least, 2 * self._period)", "max(self.least, self._period)", DRIFT,
    ),
    Mutation(
        "the fallback to boundaries ignored", "halting/settled.py",
        "(self.looked_at or self.tokens < p.fallback_after)", "True", FIT,
    ),
    Mutation(
        "the drift monitor never fed", "halting/settled.py", "if score is not None and self._turn is not None:",
        "if score is not None and self._turn is None:", BATCH,
    ),
    Mutation(
        "the drift monitor fed a wrong reference", "calibration/fit.py",
        "rest.first_scores()[:_REFERENCES]", "rest.scores[:_REFERENCES]", FIT,
    ),
    Mutation(
        "thresholds looked for among the items that certify them", "calibration/fit.py",
        "grid(seen.judged(profile.scores).scores)", "grid(rest.scores)", FIT,
    ),
    Mutation(
        "the entropy after the closing one token late", "engines/row.py",
        "if self.seen == written.closed > 0:", "if self.seen == written.closed + 1 > 0:", PROBES,
    ),
    Mutation("the top 20 made the top 3", "halting/signals.py", "TOP = 20", "TOP = 3", PROBES),
    Mutation(
        "the budget is one token longer", "halting/session.py",
        "left = budget - self.tokens", "left = budget - self.tokens + 1", SESSION,
    ),
    Mutation(
        "a chunk that exhausts the budget is decided on", "halting/session.py",
        "if left <= chunk and waiting - at >= left:", "if left < chunk and waiting - at >= left:", REPLAY,
    ),
    Mutation(
        "the reserve never lands", "halting/session.py",
        "at_boundary = self.tokens // p.every > (self.tokens - p.chunk_size) // p.every", "at_boundary = False", RULES,
    ),
    Mutation(
        "tokens decoded past the end are kept", "engines/base.py", "            del column[at:]\n", "            pass\n", BATCH,
    ),
    Mutation(
        "a probe for the closing alone is charged in full", "halting/session.py",
        "probe.close_tokens if self._asking is Question.CLOSING else probe.n_tokens", "probe.n_tokens", RULES,
    ),
    Mutation(
        "a look past the one that ends a text counts", "halting/session.py",
        "taken = decision.tokens - self.tokens", "taken = len(self._waiting) - at", SESSION,
    ),
    Mutation(
        "a sentence that ends behind a quote is read past", "halting/ahead.py", "_BEGUN = 4", "_BEGUN = 1",
        "tests/halting/test_skipping.py",
    ),
    Mutation(
        "what is absent counts as certain", "halting/trail.py",
        "told[column] = math.nan", "pass", FEATURES,
    ),
    Mutation(
        "what is unknown counts as the same", "halting/identity.py",
        'told[key] = f"fitted for {key} {_short(mine)}, which is unknown', '_ = f"fitted for {key}',
        "tests/halting/test_identity.py",
    ),
    Mutation(
        "another scheme of the same bits is taken", "halting/profile.py",
        'scheme = self.evidence[f"{bits:g}"].get("scheme", UNKNOWN)', 'scheme = served["scheme"]', FIT,
    ),
    Mutation(
        "certified settings may be changed", "halting/settled.py",
        "if name in kwargs and name in certified and kwargs[name] != certified[name]", "if False", FIT,
    ),
    Mutation(
        "drift is ranked as requests finish", "halting/drift.py",
        "self._reported[number] = score", "self._reported[self._next] = score", DRIFT,
    ),
    Mutation(
        "sessions are made in the caller's order", "engines/base.py",
        "np.random.default_rng(0).permutation(len(requests)).tolist()", "range(len(requests))", BATCH,
    ),
    Mutation(
        "a threshold that must be exceeded may be met", "traces/looks.py",
        "self.scores > bar if self.strict else self.scores >= bar", "self.scores >= bar", "tests/traces/test_looks.py",
    ),
    Mutation(
        "without gold, a changed answer is no loss", "traces/cut.py",
        "changed: Bools = self.halted & ~self.same", "changed: Bools = self.halted & ~self.correct & ~self.same", "tests/traces/test_looks.py",
    ),
    Mutation(
        "questions the scorer was fitted on certify it", "calibration/fit.py",
        "held = [i for i in others if marks[i] not in used]", "held = list(others)", FIT,
    ),
    Mutation(
        "testing goes on past the first threshold that fails", "calibration/risk.py",
        "            break\n        passed.append", "            continue\n        passed.append", "tests/calibration/test_risk.py",
    ),
    Mutation(
        "a part of another recording is read", "traces/store.py",
        'meta.get("identity_sha256") not in self.manifest.accepted_sha256', "False", "tests/traces/test_store.py",
    ),
    Mutation(
        "a grown recording decodes everything again", "traces/store.py",
        "segment = Segment(there, n - there,", "segment = Segment(0, n,", GROWTH,
    ),
    Mutation(
        "probes belong to the recording before all are made", "traces/record.py",
        "    finished = set(store.blocks())\n",
        "    finished = set(store.blocks())\n    store.probed(probing) if probing else None\n", GROWTH,
    ),
    Mutation(
        "a replayed landing costs nothing", "halting/landing.py",
        "return min(probe.n_tokens, room), probe.text", "return 0, probe.text", SESSION,
    ),
    Mutation(
        "mixed formats land in the first one's", "engines/base.py",
        "AnswerWriting(self.format, self.landing.cue, limit)",
        'AnswerWriting(__import__("bitcal_tts.halting.answers", fromlist=["x"]).FORMATS["gsm8k"], self.landing.cue, limit)',
        PROBES,
    ),
    Mutation(
        "a check taken for a step on", "halting/values/candidates.py", "if key in parent.ancestors:", "if False:", VALUES,
    ),
    Mutation(
        "a percentage worth its face value", "halting/values/numbers.py",
        "self.percent, self.worth = True, exact(Fraction(self.value) / 100)",
        "self.percent, self.worth = True, self.value", VALUES,
    ),
    Mutation(
        "many tokens at once are taken past a change of stage", "halting/waiting.py",
        "return next(i for i, other in enumerate(stages) if other is not stage)", "return most", SESSION,
    ),
    Mutation(
        "a marker that ends among many tokens is seen one late", "halting/reading.py",
        "found + len(self._close) - len(self._tail))", "found + len(self._close) - len(self._tail) + 1)", SESSION,
    ),
    Mutation(
        "rules at our looks never look", "halting/gate.py",
        "return stated or (self.parameters.looks ==", "return False and (self.parameters.looks ==", FRONTIER,
    ),
    Mutation(
        "not being worse shown against no margin", "evaluation/statistics.py",
        "only_first - only_second + n * margin", "only_first - only_second + 2 * n * margin", STATISTICS,
    ),
    Mutation(
        "the best candidate made the worst", "halting/profile.py", "best = int(own.argmax())",
        "best = int(own.argmin())", FIT,
    ),
    Mutation(
        "a fold scored by what saw its questions", "auditing/crossfit.py", "others = folds != fold\n",
        "others = folds >= 0\n", AUDIT,
    ),
    Mutation(
        "thresholds from the fold that they cut", "auditing/crossfit.py", "table.of(np.nonzero(folds != fold)[0])",
        "table.of(np.nonzero(folds == fold)[0])", AUDIT,
    ),
    Mutation(
        "a stop in a text costs nothing", "traces/replay.py", "LANDING_TOKENS = 20", "LANDING_TOKENS = 8", TEXTS,
    ),
    Mutation(
        "a value that a text looped on is forgotten", "traces/looks.py",
        'ends["right"][at], ends["same"][at] = right[look], same[look]', "pass", AUDIT,
    ),
    Mutation(
        "names at one place are taken in any order", "halting/values/candidates.py",
        "(sentence.rfind(word), len(word))", "sentence.rfind(word)", "tests/halting/test_values.py",
    ),
    Mutation(
        "what a text weighs in its thinking counts as its answer", "halting/stopping.py",
        "format.unfinished(text) if thinking.inside else format.value(text)", "format.value(text)",
        "tests/halting/test_answers.py",
    ),
    Mutation(
        "what is streamed forgets the first right look", "traces/looks.py",
        "for good in (self.stops.right, self.stops.same):", "for good in ():", AUDIT,
    ),
    Mutation(
        "queries and keys keep Transformers' order in a GGUF", "engines/gguf.py",
        "values = _permuted(values, count)", "pass", "tests/http/test_server.py",
    ),
    Mutation(
        "the token that ends a sequence is counted", "engines/dialects.py",
        'return event.get("stop_type") == "eos"', "return False", "tests/http/test_server.py",
    ),
    Mutation(
        "a landing over HTTP leaves out the closing", "engines/http.py",
        "landed = _with(before, written.forced, place.landing.closing + place.landing.cue)",
        "landed = _with(before, cue, place.landing.cue)", "tests/http/test_server.py",
    ),
    Mutation(
        "another model than expected is served", "engines/wire.py",
        "if asked in _names_of(name)), None)", "if asked in _names_of(name)), models[0])",
        "tests/http/test_several.py",
    ),
    Mutation(
        "a server without log-probabilities is taken", "engines/flight.py",
        "if not piece.likeliest or piece.logprob is None:", "if False:", "tests/http/test_faults.py",
    ),
    Mutation(
        "a server that begins anew after a partial message is taken", "engines/dialects.py",
        "        self._check_that_it_continues()\n", "", "tests/http/test_chat.py",
    ),
    Mutation(
        "a lane keeps the landing of the place before", "engines/gguf_engine.py",
        "            lane.cut(end)\n", "", "tests/llamacpp",
    ),
    Mutation(
        "a sequence that ends keeps its memory", "engines/lanes.py",
        "                    lane.cut(0)\n", "", "tests/llamacpp",
    ),
    Mutation(
        "simple rules go on looking in the write-up of an audited text", "auditing/walking.py",
        "reasoning = thinking - 1 if", "reasoning = len(trace) if", "tests/auditing/test_audit.py",
    ),
    Mutation(
        "a sample of a log is not said to be one", "auditing/findings.py",
        'if shape["texts"] > shape["n"] else ""', 'if False else ""', "tests/auditing/test_audit.py",
    ),
    Mutation(
        "a landing begins anew where memory was full", "engines/batch.py",
        "left = [row.landing[len(row.written) - row.landed_at :] for row in rows]", "left = [row.landing for row in rows]",
        "tests/engines/test_slots.py",
    ),
    Mutation(
        "what is promised gives way to what saves less", "serving/pilot.py", "else of.saved > self._stands_for",
        "else True", AUTOPILOT,
    ),
    Mutation(
        "what stands is measured by the scorer that is tried", "serving/pilot.py",
        "        if state.standing is None:\n            kept", "        if True:\n            kept", AUTOPILOT,
    ),
    Mutation(
        "a scorer is kept before what is known of the last one", "serving/pilot.py",
        "self.remember()  # that there is none", "pass  # that there is none", AUTOPILOT,
    ),
    Mutation(
        "what is not settled is landed at the first server", "serving/generation.py",
        "(self.course.cap is not None and is_handed_over(directive.decision))", "False", "tests/serving/test_sidecar.py",
    ),
    Mutation(
        "tokens are saved of another baseline's", "evaluation/verdict.py",
        '1 - row["avg_tokens"] / max(1.0, full["avg_tokens"])', 'row.get("savings", 0.0)', "tests/test_cli.py",
    ),
    Mutation(
        "energy of a method is that of the whole", "commands/replay.py",
        'took["joules"] / took["tokens"] * row["avg_tokens"]', 'took["joules"] / took["items"]', "tests/test_report.py",
    ),
    Mutation(
        "a device waits for whoever reads slowly", "engines/desks.py",
        "max(self._unanswered) > _BEHIND", "max(self._unanswered) > 1", "tests/engines/test_slots.py",
    ),
    Mutation(
        "a thinking that ends and never began leaves its marker", "serving/shapes.py",
        "(self._opening, self._close) if self._stage", "(self._opening,) if self._stage", "tests/serving/test_shapes.py",
    ),
)  # fmt: skip


def caught(mutation: Mutation, folder: Path) -> tuple[bool, str, float]:
    """Whether a test notices, which one, and how long that took."""
    target = folder / "src" / "bitcal_tts" / mutation.file
    text = target.read_text(encoding="utf-8")
    if text.count(mutation.right) != 1:
        raise SystemExit(
            f"{mutation.what}: {mutation.file} holds the line {text.count(mutation.right)} times, not once"
        )
    target.write_text(text.replace(mutation.right, mutation.wrong), encoding="utf-8")
    began = time.perf_counter()
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "-p", "no:cacheprovider", *mutation.tests.split()],
            cwd=ROOT, env={**os.environ, "PYTHONPATH": str(folder / "src")}, capture_output=True, text=True, check=False,
        )  # fmt: skip
    finally:
        target.write_text(text, encoding="utf-8")
    failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    by = failed[0].split(" - ")[0].partition("::")[2].partition("[")[0] if failed else ""
    return done.returncode == 1, by, time.perf_counter() - began


def main() -> None:
    """Apply them one by one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="a Markdown table of what was caught by which test")
    parser.add_argument("--only", default="", help="only mutations whose description holds this")
    args = parser.parse_args()
    rows, survived = [], 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        shutil.copytree(PACKAGE, folder / "src" / "bitcal_tts", ignore=shutil.ignore_patterns("weights", "__pycache__"))
        (folder / "src" / "bitcal_tts" / "tiny" / "weights").symlink_to(PACKAGE / "tiny" / "weights")
        for mutation in MUTATIONS:
            if args.only in mutation.what:
                noticed, by, seconds = caught(mutation, folder)
                survived += not noticed
                rows.append(f"| {mutation.what} | `{mutation.file}` | {f'`{by}`' if noticed else '**nobody**'} |")
                print(f"{'caught' if noticed else 'SURVIVED'}: {mutation.what} ({by}, {seconds:.0f} s)", flush=True)
    head = [
        "# Mutations", "", f"{len(rows)} lines made wrong one at a time, {len(rows) - survived} noticed by a test "
        "(`python scripts/mutations.py --out results/mutations.md`). The first eleven went unnoticed in version 0.1.",
        "", "| what is made wrong | where | noticed by |", "|---|---|---|",
    ]  # fmt: skip
    if args.out:
        write_text(args.out, "\n".join([*head, *rows]) + "\n")
    sys.exit(1 if survived else 0)


if __name__ == "__main__":
    main()
