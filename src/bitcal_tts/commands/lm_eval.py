"""bitcal lm-eval: tasks of lm-evaluation-harness under any method, live."""

from __future__ import annotations

import argparse
import json
import logging
import math
import os
from contextlib import closing
from pathlib import Path
from typing import Any

from bitcal_tts.commands import build, options
from bitcal_tts.commands.places import refuse_existing
from bitcal_tts.commands.progress import progress
from bitcal_tts.files import write_json

EXAMPLE = """example:
  bitcal lm-eval --data problems.jsonl --model tiny-15m --bits 4 --methods landed,complete
  bitcal lm-eval --tasks gsm8k_cot_zeroshot --model Qwen/Qwen2.5-7B-Instruct --bits 4 --limit 200
  bitcal lm-eval --tasks my_task --include-path tasks/ --url http://127.0.0.1:8080 --methods settled --profile p.json

--data is a file in GSM8K's format (question, and a solution that ends in #### and the answer): no network is used.
The harness's two filters for GSM8K are reported, and beside them what bitcal replay would say. The engine renders the
model's chat template itself; the harness's own switch for that is left alone. Tasks that compare the likelihood of
given answers are refused: nothing is written there that could be stopped."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of `bitcal lm-eval`."""
    parser.add_argument("--tasks", help="comma-separated names of the harness's tasks")
    parser.add_argument("--data", type=Path, metavar="FILE", help="a local JSONL file in GSM8K's format")
    parser.add_argument("--include-path", metavar="DIR", help="a folder with tasks of your own, as YAML")
    parser.add_argument("--limit", type=options.positive, metavar="N", help="the first problems of each task (all)")
    parser.add_argument("--fewshot", type=int, metavar="K", help="examples before each problem (the task's own number)")
    parser.add_argument("--budget", type=options.positive, default=512, help="hard cap on new tokens (%(default)s)")
    parser.add_argument("--out", type=options.file, metavar="FILE", help="write everything the harness reports as JSON")
    options.add_engine_options(parser.add_argument_group("model"))
    options.add_method_options(parser, "landed")
    options.add_answers(parser, "gsm8k")
    options.add_overwrite(parser)
    options.add_json(parser)


def run(args: argparse.Namespace) -> None:
    """Evaluate under each method; accuracy by filter, tokens a problem."""
    if (args.tasks is None) == (args.data is None):
        raise ValueError("give --tasks NAME for tasks of the harness, or --data FILE for a local file")
    if args.data is not None and not args.data.is_file():
        raise ValueError(f"cannot read {args.data}: there is no such file")
    if args.out:
        refuse_existing(args.out, overwrite=args.overwrite)
    os.environ.setdefault("TQDM_DISABLE", "1")  # its bars would stand between ours
    logging.getLogger("lm_eval").setLevel(logging.ERROR)
    args.style = build.style_of(args)
    engine = build.engine_of(args)
    with closing(engine):
        reports = [_evaluate(args, engine, method) for method in build.live_methods(args, engine)]
    if args.out:
        write_json(args.out, {"schema": 1, "model": engine.describe(), "methods": reports})
    if args.json:
        print(json.dumps({"schema": 1, "methods": [_short(report) for report in reports]}))
        return
    for report in reports:
        print(f"{report['method']}: {report['tokens']:.0f} tokens a problem")
        for row in _rows(report):
            error = "" if row["error"] is None else f" +- {row['error']:.4f}"
            print(f"  {row['task']:24} {row['filter']:18} {row['metric']:14} {row['value']:.4f}{error}")


def _evaluate(args: argparse.Namespace, engine: Any, method: Any) -> dict[str, Any]:
    """One method over all tasks: what the harness says, and what it cost."""
    import lm_eval
    from lm_eval.tasks import TaskManager

    from bitcal_tts.evaluation.harness import HarnessModel, local_gsm8k

    name = method.parameters.name
    tasks = [local_gsm8k(args.data, args.answers or "gsm8k")] if args.data else args.tasks.split(",")
    with progress(f"{name} at {engine.bits:g} bits", None, quiet=args.json) as advance:
        model = HarnessModel(engine, method, build.decoding_of(args), batch_size=args.batch, advance=advance)
        found = lm_eval.simple_evaluate(
            model,
            tasks=tasks,
            num_fewshot=args.fewshot,
            limit=args.limit,
            log_samples=False,
            random_seed=args.seed,
            task_manager=TaskManager(include_path=args.include_path),
        )
    return {"method": name, "tokens": sum(model.tokens) / max(len(model.tokens), 1), "results": found["results"]}


def _short(report: dict[str, Any]) -> dict[str, Any]:
    return {"method": report["method"], "tokens": report["tokens"], "rows": _rows(report)}


def _rows(report: dict[str, Any]) -> list[dict[str, Any]]:
    """The harness's results, a row a task, metric and filter."""
    rows = []
    for task, values in report["results"].items():
        for key, value in values.items():
            metric, comma, filtered = key.partition(",")
            if comma and not metric.endswith("_stderr"):
                error = values.get(f"{metric}_stderr,{filtered}")
                error = error if isinstance(error, float) and math.isfinite(error) else None
                rows.append({"task": task, "metric": metric, "filter": filtered, "value": value, "error": error})
    return rows
