"""bitcal compare: every method and rule of the field on the same traces, each swept over its own threshold."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import hashlib
import itertools
import json
import math
import warnings
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from bitcal_tts import __version__
from bitcal_tts.commands import build, options
from bitcal_tts.commands.compared import show
from bitcal_tts.commands.progress import note, progress, say, suggest
from bitcal_tts.commands.recordings import Opened, open_recording
from bitcal_tts.commands.replay import ended, title_of
from bitcal_tts.evaluation.comparison import BASELINES, compare
from bitcal_tts.evaluation.frontier import TARGETS, Point, Walk, certified_row, choose, points_of, rows_of, walk_along
from bitcal_tts.evaluation.promises import kept
from bitcal_tts.evaluation.statistics import savings
from bitcal_tts.files import write_json
from bitcal_tts.halting.gate import Rule
from bitcal_tts.halting.methods import METHODS, describe_parameters
from bitcal_tts.halting.parameters import UnreachableStopWarning
from bitcal_tts.halting.rules import RULES
from bitcal_tts.halting.settled import Settled
from bitcal_tts.halting.signals import Signal
from bitcal_tts.installing import can_draw, install_command
from bitcal_tts.traces.outcome import Outcome
from bitcal_tts.traces.parallel import Tick, in_shares
from bitcal_tts.traces.trace import Trace, TraceError

EXAMPLE = """example:
  bitcal record --task stories --style thinking --temperature 0.6 --budget 1536 --n 1319 --probes --out traces/test
  bitcal compare traces/test --profile profile.json --out compared

For each method the point is shown that it would choose for a lost-correct rate (--target; what the profile promises,
else 1 %) on these very traces, with --full those for 0.5, 1, 2 and 5 %: the same favour to all. Tokens include those
of probes, which are short answers that a rule asks the model for, and of landings; "probes free" is what would be saved
if asking cost nothing."""

_TARGET = 0.01
_LEFT_OUT = ("guard", "marker")  # the guard has no threshold; the marker rule is `complete`
_ORACLES = ("oracle", "oracle_final")
OUR_LOOKS = ", our looks"
"""Behind the name of a rule that looks where `settled` does."""
Variant = tuple[Any, dict[str, Any]]
"""A method, and what of it was varied."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of `bitcal compare`."""
    parser.add_argument("traces", type=Path, help="a folder that bitcal record --probes wrote")
    options.add_method_options(parser, "all that these traces can be replayed with; settled with --profile")
    parser.add_argument("--budget", type=options.positive, help="hard cap on new tokens (the recorded one)")
    parser.add_argument(
        "--target", type=float, help=f"lost-correct rate of the tests (what the profile promises, else {_TARGET:g})"
    )
    options.add_answers(parser, "as recorded")
    parser.add_argument("--out", type=options.folder, help="a folder for compare.json and the figure")
    options.add_overwrite(parser)
    options.add_full(parser)
    options.add_json(parser)


def run(args: argparse.Namespace) -> None:
    """Sweep, choose, test, print."""
    if args.target not in (None, *TARGETS):
        raise ValueError(f"target must be one of {', '.join(map(str, TARGETS))}, got {args.target}")
    asked = _ask(args)
    drawn = can_draw()
    there = None if args.out is None or args.overwrite else _found_before(args.out / "compare.json", asked)
    result = there or _compared(asked, args)
    if args.out and there is None:
        args.out.mkdir(parents=True, exist_ok=True)
        write_json(args.out / "compare.json", {"schema": 1, "key": asked.key, **result})
        if drawn:
            from bitcal_tts.evaluation.drawing import draw_to
            from bitcal_tts.evaluation.evidence import frontier_figure

            draw_to(args.out / "frontier", lambda: frontier_figure(result))
    if args.json:
        print(json.dumps({"schema": 1, **result}))
        return
    show(result, full=args.full)
    if args.out:
        word = "written" if there is None else "as before, from"
        figure = f" and {args.out / 'frontier.png'}" if drawn else f"; for the figure: {install_command('report')}"
        say(f"{word}: {args.out / 'compare.json'}{figure}")
    else:
        suggest("the same with --out FOLDER for compare.json and the figure: nothing was written")


def compare_store(args: argparse.Namespace) -> dict[str, Any]:
    """Rows, paired tests and curves of all methods on a recording."""
    return _compared(_ask(args), args)


@dataclasses.dataclass(frozen=True)
class _Asked:
    """What is to be compared, on what."""

    opened: Opened
    methods: list[Any]
    key: str
    """Of all that the result follows from."""


def _ask(args: argparse.Namespace) -> _Asked:
    opened = open_recording(args.traces, answers=args.answers, declare=options.declared(args))
    budgets = None if args.budget is None else [args.budget]
    budget = build.budgets_of(budgets, args.profile, opened)[0]
    every_method = args.methods is None
    if every_method:
        rules = [name for name in RULES if name not in _LEFT_OUT]
        args.methods = [name for name in (*METHODS, *rules) if name != "settled" or args.profile]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnreachableStopWarning)
        methods = build.methods_of(args, opened, [budget], swept=True)
    if every_method:
        methods = _that_can_be_told(methods, opened.traces[0])
    if args.target is None:
        args.target = _promised(methods)
    follows_from = {
        "version": __version__,
        "recording": opened.store.manifest.sha256,
        "n": len(opened.traces),
        "answers": opened.description["answers"],
        "declared": sorted(opened.identity.declared),
        "methods": [describe_parameters(method) for method in methods],
        "set": args.overrides,
        "target": args.target,
    }
    return _Asked(opened, methods, hashlib.sha256(json.dumps(follows_from, sort_keys=True).encode()).hexdigest())


def _promised(methods: list[Any]) -> float:
    """The risk that a profile promises here, where it is one of the targets."""
    for p in (method.parameters for method in methods if method.promises):
        evidence = p.profile.evidence.get(f"{p.bits:g}", {"certified": False})
        if evidence["certified"] and evidence["risk"] in TARGETS:
            return float(evidence["risk"])
    return _TARGET


def _found_before(path: Path, asked: _Asked) -> dict[str, Any] | None:
    """The same comparison where it was made before; another one that is there is not replaced."""
    if not path.exists():
        return None
    with contextlib.suppress(OSError, ValueError):
        there = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(there, dict) and there.pop("key", None) == asked.key and there.pop("schema", None) == 1:
            return there
    raise ValueError(f"{path} holds another comparison: choose another --out, or say --overwrite")


def _compared(asked: _Asked, args: argparse.Namespace) -> dict[str, Any]:
    opened, methods = asked.opened, asked.methods
    description, traces = opened.description, opened.traces
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnreachableStopWarning)
        overridden = {key.rpartition(".")[2] for key, _ in map(options.parse_override, args.overrides)}
        groups = {
            label: settings
            for method in methods
            for label, settings in _variants(method, traces, description, overridden).items()
        }
        points = _swept(groups, opened, quiet=args.json)
        certified, promises = [], []
        for method in (one for one in methods if isinstance(one, Settled)):
            found = points[method.parameters.name]
            done = next(one.outcomes for one in found if one.threshold == method.parameters.threshold)
            certified.append(certified_row(done, description, method.parameters.threshold))
            promises.append(kept(method, done, build.known_items(method, traces)))
    rows = certified + rows_of(points, description)
    return {
        "title": title_of(description, [{**row, "min_tokens": None} for row in rows]) + ended(description),
        "promises": [promise for promise in promises if promise is not None],
        "rows": rows,
        "tests": _tests(points, args.target),
        "curves": {name: _curve(found) for name, found in points.items()},
        "manifest": opened.store.manifest.to_dict(),
    }


def _swept(groups: Mapping[str, Sequence[Variant]], opened: Opened, *, quiet: bool) -> dict[str, list[Point]]:
    """All points of all settings, by label."""

    def walked(traces: Sequence[Trace], tick: Tick) -> dict[str, list[Walk] | TraceError]:
        """All settings along a share of the traces: what is found of a trace for one of them serves the others."""
        found: dict[str, list[Walk] | TraceError] = {}
        for label, settings in groups.items():
            try:
                found[label] = [
                    walk_along(traces, method, opened.task, identity=opened.identity, tick=tick)
                    for method, _ in settings
                ]
            except TraceError as error:
                if not label.endswith(OUR_LOOKS):
                    raise
                found[label] = error
        return found

    passes = sum(map(len, groups.values()))
    with progress("comparing", passes * len(opened.traces), quiet=quiet) as advance:
        shares = in_shares(opened.traces, walked, tick=lambda: advance(1))
    points: dict[str, list[Point]] = {}
    for label, settings in groups.items():
        walks = [share[label] for share in shares]
        error = next((one for one in walks if isinstance(one, TraceError)), None)
        if error is not None:
            note(f"note: {label} cannot be told: {error}")
            continue
        by_setting = zip(settings, zip(*walks, strict=True), strict=True)
        points[label] = [
            point
            for (method, setting), parts in by_setting
            for point in points_of(parts, opened.traces, method, setting)
        ]
    return points


def _that_can_be_told(methods: list[Any], like: Trace) -> list[Any]:
    """The methods that see what they need on such traces; of the others it is said what they lack."""
    lacking: dict[str, list[str]] = {}
    log = like.is_logged
    for method in methods:
        missing = [signal.words for signal in like.signals.lacks(method.needs)]
        read_off = log and method.reads_answers
        if not missing and method.lands and like.probes is None and not read_off:
            missing = [Signal.PROBE.words]
        if missing:
            lacking.setdefault(" and ".join(missing), []).append(method.parameters.name)
    for what, names in lacking.items():
        how = ": the same record with --probes adds them" if what == Signal.PROBE.words and not log else ""
        if "settled" in names:  # a profile was given
            raise ValueError(
                f"without {what} nothing can be known of what --profile does here{how or ': leave it out'}"
            )
        note(f"note: without {what} nothing can be known of {', '.join(names)}: left out{how}")
    left = {name for names in lacking.values() for name in names}
    return [method for method in methods if method.parameters.name not in left]


def _variants(
    method: Any, traces: Any, description: Mapping[str, Any], overridden: Collection[str]
) -> dict[str, list[Variant]]:
    """A method at its own looks, and a rule that looks at boundaries at ours too: by label, with what is varied.

    Of its settings besides the threshold a rule has those that it would choose for these traces, unless they are told:
    probing rules may look every 16, 32 or 64 tokens, DEER as often as there are looks; EAT may warm up for longer or
    less; CUSUM's usual level is the mean entropy of these traces; a statement may count from some token on.
    """
    p = method.parameters
    name = p.name
    grids: list[tuple[str, Sequence[Any]]] = []
    if name == "cusum":
        grids.append(("mu0", [sum(float(t.entropies.sum()) for t in traces) / max(1, sum(map(len, traces)))]))
    if name == "deer":
        grids.append(("max_probes", [p.budget]))
    if name == "eat":
        grids.append(("warm_up", [2, 4, 8]))
    if name == "stated":
        grids += [("after", [0, 16, 32, 64, 128, 256]), ("weak", [False, True])]
    own = list(grids)
    if getattr(method, "question", None) is not None:
        step = description.get("probes") or p.every
        own.append(("every", [step, 2 * step, 4 * step]))
    found = {name: _settings(method, own, overridden)}
    if isinstance(method, Rule) and method.at_boundaries and not {"looks", "every"} & set(overridden):
        ours = [("looks", [look for look in ("statements", "sentences") if look != "sentences" or p.format.values])]
        found[f"{name}{OUR_LOOKS}"] = _settings(method, [*grids, *ours], overridden)
    return found


def _settings(method: Any, grids: Sequence[tuple[str, Sequence[Any]]], overridden: Collection[str]) -> list[Variant]:
    """The method at every combination of what may be varied."""
    varied = [(name, values) for name, values in grids if name not in overridden]
    names = [name for name, _ in varied]
    settings = [dict(zip(names, one, strict=True)) for one in itertools.product(*(values for _, values in varied))]
    return [(type(method)(dataclasses.replace(method.parameters, **one)) if one else method, one) for one in settings]


def _curve(points: list[Point]) -> list[dict[str, Any]]:
    """Points as numbers, those left out that another undercuts at the same or a higher accuracy."""
    told = sorted(points, key=lambda point: (point.cost, -point.accuracy))
    curve: list[dict[str, Any]] = []
    best = -1.0
    for point in told:
        if point.accuracy > best:
            best = point.accuracy
            shown = point.threshold if point.threshold is None or math.isfinite(point.threshold) else None
            curve.append({"threshold": shown, "tokens": point.cost, "accuracy": best, "lost": point.lost})
    return curve


def _tests(points: dict[str, list[Point]], target: float) -> dict[str, Any]:
    """Ours against the baseline, `complete` and, at the same lost-correct rate, the other rule that saves most."""
    chosen = {name: found[0] if found[0].threshold is None else choose(found, target) for name, found in points.items()}
    there = {name: point for name, point in chosen.items() if point is not None}
    mine = "settled" if "settled" in there else "complete"
    if mine not in there:
        return {}
    apart = (mine, *BASELINES, *(f"{name}{looks}" for name in _ORACLES for looks in ("", OUR_LOOKS)))
    baseline = next((name for name in BASELINES if name in there), None)
    full = math.inf if baseline is None else there[baseline].cost
    others = {
        name: point.cost
        for name, point in there.items()
        if name not in apart and point.lost <= target and point.cost < full
    }
    best = min(others, key=others.__getitem__, default=None)
    against = [name for name in dict.fromkeys((baseline, "complete", best)) if name in there and name != mine]
    found: list[Outcome] = [
        dataclasses.replace(o, method=name) for name in (mine, *against) if name for o in there[name].outcomes
    ]
    told = []
    for name in against:
        assert name is not None
        cost = [o.cost for o in there[mine].outcomes]
        other = [o.cost for o in there[name].outcomes]
        told.append({"method": mine, "against": name, "fewer_tokens": savings(cost, other)._asdict()})
    return {"target": target, "best_other": best, "accuracy": compare(found, base=mine), "tokens": told}
