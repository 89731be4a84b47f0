"""Recording and replaying in two calls, for programs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from bitcal_tts.tasks import Task, load_task
from bitcal_tts.traces.outcome import Outcome
from bitcal_tts.traces.replay import outcomes
from bitcal_tts.traces.store import TraceStore

if TYPE_CHECKING:
    from bitcal_tts.halting.controller import Controller


def record(
    model: Any, folder: str | Path, *, n: int, budget: int, task: Task | str = "gsm_symbolic", **options: Any
) -> TraceStore:
    """Decode problems once, to the full budget, into a trace folder; what is there already is kept.

    Args:
        model: An engine; or the name of a model in the box, a folder or a hub id, loaded with the weights as they are.
        folder: Where the traces go.
        n: How many problems.
        budget: Hard cap on new tokens.
        task: A task or its name.
        **options: As `bitcal_tts.traces.record.record` takes them: `decoding`, `probes`, `batch_size`, ...
    """
    from bitcal_tts.traces import record as recorder

    if isinstance(model, str):
        from bitcal_tts.engines.checkpoint import load_checkpoint
        from bitcal_tts.engines.transformers import TransformersEngine
        from bitcal_tts.tiny import models

        model = TransformersEngine(load_checkpoint(models.resolve(model), name=model))
    chosen = load_task(task) if isinstance(task, str) else task
    return recorder.record(model, chosen, Path(folder), n=n, budget=budget, **options)


def replay(traces: str | Path | TraceStore, method: Controller) -> list[Outcome]:
    """What a method would have done on every trace of a folder, as `bitcal replay` finds it out.

    A promise that does not hold there is refused.
    """
    from bitcal_tts.commands.recordings import open_recording

    folder = traces.folder if isinstance(traces, TraceStore) else Path(traces)
    opened = open_recording(folder, answers=method.parameters.answers, quiet=True)
    return outcomes(opened.traces, method, opened.task, identity=opened.identity)
