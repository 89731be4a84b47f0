"""bitcal signals: how far the confidence can be trusted, and how the weight precision shifts what it is made of."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bitcal_tts.commands import build, options
from bitcal_tts.commands.progress import progress
from bitcal_tts.commands.recordings import open_store, task_of
from bitcal_tts.commands.table import print_table
from bitcal_tts.evaluation.signal_card import SIGNALS, confidence_reliability, rescored, shifts
from bitcal_tts.files import write_json
from bitcal_tts.traces.trace import Trace

EXAMPLE = """example:
  bitcal signals traces/tiny-4m-16bit traces/tiny-4m-4bit traces/tiny-4m-2bit
  bitcal signals traces/tiny-4m-16bit --rescore 16,8,4,3,2 --out card

With --rescore, the text of the first folder is scored by its model at each of the precisions (teacher forcing), so
that nothing but the weights differs: the quantization signal card of a model."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of `bitcal signals`."""
    parser.add_argument("traces", type=Path, nargs="+", help="folders that bitcal record wrote")
    parser.add_argument(
        "--rescore", type=_bits, default=[], metavar="BITS", help="precisions for the text of the first folder"
    )
    parser.add_argument("--n", type=options.positive, help="score the first N items only (all)")
    parser.add_argument("--batch", type=options.positive, default=32, help="texts scored together (%(default)s)")
    parser.add_argument("--device", help="cpu or cuda (cuda where there is one)")
    parser.add_argument("--compute-dtype", help="float32, bfloat16 or float16 (as recorded)")
    parser.add_argument("--min-tokens", help="the floor: boundaries before it are not looked at (by model)")
    parser.add_argument("--out", type=options.folder, help="a folder for signals.json and the figures")
    options.add_json(parser)


def _bits(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"BITS must be numbers separated by commas, got {text!r}") from None


def run(args: argparse.Namespace) -> None:
    """Measure, print, and write."""
    stores = [open_store(folder) for folder in args.traces]
    recorded = []
    for store in stores:
        traces = store.read()[: args.n]
        where = {"traces": str(store.folder)}
        recorded.append({**_headline(store.description), **where, **_reliability(args, store.description, traces)})
    card = _card(args, stores[0]) if args.rescore else []
    result = {"schema": 1, "recorded": recorded, "rescored": card}
    if args.out:
        from bitcal_tts.evaluation.evidence import draw_signals

        args.out.mkdir(parents=True, exist_ok=True)
        write_json(args.out / "signals.json", {**result, "manifests": [store.manifest.to_dict() for store in stores]})
        draw_signals(result, args.out)
    if args.json:
        print(json.dumps(result))
        return
    if args.out:
        print(f"written: {args.out / 'signals.json'} and the figures beside it")
    _show(recorded, "Confidence as the probability that the answer now is right, each precision on its own text")
    if card:
        _show(card, f"The same, on the text of {args.traces[0]} scored at each precision")
        _show_shifts(card)


def _headline(description: dict[str, Any]) -> dict[str, Any]:
    row = {key: description.get(key) for key in ("model", "bits", "scheme", "task", "style")}
    return {**row, "temperature": description["decoding"]["temperature"]}


def _reliability(args: argparse.Namespace, description: dict[str, Any], traces: Sequence[Trace]) -> dict[str, Any]:
    return confidence_reliability(
        traces,
        task_of(description),
        bits=description["bits"],
        budget=description["budget"],
        chunk_size=description["chunk_size"],
        min_tokens=build.floor_of(args.min_tokens, description, traces),
    )


def _card(args: argparse.Namespace, store: Any) -> list[dict[str, Any]]:
    """The text of a store at each precision: reliability, and the shift of each signal from the first precision."""
    from bitcal_tts.engines.base import Score

    description = store.description
    traces = [trace for trace in store.read()[: args.n] if len(trace)]
    texts = [(description["prompt"].replace("{question}", t.item.question), t.token_ids.tolist()) for t in traces]
    reference: list[Score] = []
    card = []
    for bits in args.rescore:
        engine = build.engine_for(
            description["model"],
            bits,
            template_options=description["template_options"],
            device=args.device,
            system=description["system"],
            compute_dtype=args.compute_dtype or description["compute_dtype"],
        )
        if engine.checkpoint.sha256 != description["model_sha256"]:
            raise ValueError(f"{description['model']} here is not the model of {store.folder}: its files differ")
        scores = []
        with progress(f"scoring at {bits:g} bits", len(texts), quiet=args.json) as advance:
            for score in engine.score(texts, chunk_size=description["chunk_size"], batch_size=args.batch):
                scores.append(score)
                advance(1, len(score.entropies))
        reference = reference or scores
        told = {**description, "bits": bits, "scheme": engine.checkpoint.precision.scheme}
        again = [rescored(trace, score) for trace, score in zip(traces, scores, strict=True)]
        card.append({
            **_headline(told),
            "text_of_bits": description["bits"],
            "n": len(traces),
            **_reliability(args, told, again),
            "signals": shifts(reference, scores),
        })  # fmt: skip
    return card


def _show(rows: Sequence[dict[str, Any]], title: str) -> None:
    names = ("bits", "boundaries", "looks", "right %", "mean c", "AUROC", "ECE", "Brier")
    cells = []
    # Folders of one model at one precision are told apart by their names.
    first = "model" if len({(row["model"], row["bits"]) for row in rows}) == len(rows) else "traces"
    for row in rows:
        for key, label in (("all_boundaries", "all"), ("answered", "with an answer")):
            told = row[key]
            if told is None:
                continue
            area = "none" if told["auroc"] is None else f"{told['auroc']:.3f}"
            cells.append((
                row.get(first, row["model"]), f"{row['bits']:g}", label, f"{told['n']:,}",
                f"{100 * told['share_right']:.1f}", f"{told['mean_score']:.3f}", area,
                f"{told['ece']:.3f}", f"{told['brier']:.3f}",
            ))  # fmt: skip
    print_table(title, (first, *names), cells)


def _show_shifts(card: Sequence[dict[str, Any]]) -> None:
    cells = []
    for row in card:
        for name in SIGNALS:
            told = row["signals"].get(name)
            if told:
                cells.append((
                    f"{row['bits']:g}", name, f"{told['mean']:.4f}",
                    f"{told['shift']:+.4f} [{told['shift_low']:+.4f}, {told['shift_high']:+.4f}]",
                    f"{told['median']:.4f}", f"{told['p95']:.4f}", f"{100 * row['signals']['greedy_agreement']:.2f}",
                ))  # fmt: skip
    names = ("bits", "signal", "mean", "shift [95 % interval]", "median", "p95", "same choice %")
    legend = "same choice: tokens of the text that are the model's first choice at these bits"
    print_table(f"Signal card: shift from {card[0]['bits']:g} bits on the same text, N={card[0]['n']}", names, cells)
    print(legend)
