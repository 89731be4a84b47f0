"""Slots that grow, are given up and taken again; rows that several processes look after."""

from __future__ import annotations

import gc
import itertools
import multiprocessing
import os
import signal
import warnings
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from short_task import short_task

from bitcal_tts import build_method
from bitcal_tts.engines import batch as batch_module
from bitcal_tts.engines import desks as desks_module
from bitcal_tts.engines import slots as slots_module
from bitcal_tts.engines import transformers as transformers_module
from bitcal_tts.engines.base import Completion, Decoding, EngineError, Request
from bitcal_tts.engines.checkpoint import load_checkpoint
from bitcal_tts.engines.desk import Desk, Lines
from bitcal_tts.engines.desks import Desks, host_for
from bitcal_tts.engines.memory import OutOfMemoryWarning
from bitcal_tts.engines.pace import Pace
from bitcal_tts.engines.slots import Slots, bucket, few_sizes
from bitcal_tts.engines.transformers import TransformersEngine
from bitcal_tts.halting.methods import to_the_end
from bitcal_tts.tiny import models


def requests(n: int, method: Any) -> list[Request]:
    task = short_task()
    return [Request(str(i), task.prompt(item), method, seed=i) for i, item in enumerate(task.items(n, 5))]


def told(completion: Completion) -> tuple[Any, ...]:
    why = completion.decision and (completion.decision.reason, completion.decision.tokens)
    return (
        completion.token_ids, completion.text, completion.answer, completion.finish, why, completion.landing_tokens,
        len(completion.entropies),
    )  # fmt: skip


@given(st.integers(1, 100_000))
def test_widths_are_few_and_never_much_too_wide(width: int) -> None:
    assert width <= bucket(width) <= max(256, 1.25 * width + 256)
    assert bucket(bucket(width)) == bucket(width)


@given(st.integers(1, 5000))
def test_numbers_of_rows_are_few(count: int) -> None:
    assert count <= few_sizes(count) < 4 * count or few_sizes(count) == 1


def test_a_cache_that_must_grow_and_rows_that_must_wait_again_change_nothing(
    thinking_engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = requests(6, to_the_end(400))
    plenty = {c.id: c for c in thinking_engine.decode(asked, batch_size=6)}
    engine = TransformersEngine(thinking_engine.checkpoint)
    taken: list[tuple[int, int]] = []
    resize = Slots._resize

    def resized(self: Slots, width: int) -> None:
        resize(self, width)
        taken.append((self.size, width))

    monkeypatch.setattr(Slots, "_resize", resized)
    per_token = engine._forward.bytes_per_token
    held = {"most": 256 * 6 * per_token}

    def room(_: Any) -> int:
        slots = next((s for s in alive if s._cache is not None), None)
        used = 0 if slots is None or slots._cache is None else slots._cache.size * slots._cache.capacity
        return max(0, held["most"] - used * per_token)

    alive: list[Slots] = []
    begin = Slots.__init__

    def begun(self: Slots, *args: Any, **kwargs: Any) -> None:
        alive.append(self)
        begin(self, *args, **kwargs)

    monkeypatch.setattr(Slots, "__init__", begun)
    monkeypatch.setattr(slots_module, "room", room)
    tight = {c.id: c for c in engine.decode(asked, batch_size=6)}
    assert any(size < 6 and width > 256 for size, width in taken), taken  # wider, and so fewer
    assert {name: c.token_ids for name, c in tight.items()} == {name: c.token_ids for name, c in plenty.items()}
    for name, c in tight.items():
        assert c.hidden_similarities == pytest.approx(plenty[name].hidden_similarities, abs=1e-4)


@pytest.mark.parametrize("name", ["landed", "truncate", "complete"])
def test_processes_change_nothing(thinking_engine: Any, name: str) -> None:
    opening, close = thinking_engine.thinking
    options = {"threshold": 64.0} if name == "truncate" else {}
    method = build_method(name, bits=32, budget=160, answers="gsm8k", opening=opening, close=close, **options)
    asked = requests(5, method)
    done = [
        {c.id: told(c) for c in TransformersEngine(thinking_engine.checkpoint, processes=n).decode(
            asked, Decoding(0.7, seed=3), batch_size=3
        )}
        for n in (1, 2)
    ]  # fmt: skip
    assert done[0] == done[1]
    if name == "truncate":
        assert all(landing > 0 for *_, landing, _ in done[0].values())


class Ahead(Slots):
    """Slots of a CPU that are driven as a GPU's are: the next chunk is under way while the host looks at the last."""

    readings: ClassVar[list[int]] = []
    left: ClassVar[list[int]] = []

    @property
    def works_ahead(self) -> bool:
        return True

    def run(self, steps: int, *, stop: Any = None) -> int:
        return super().run(steps)

    def read(self, texts: Any, draws: Any = None) -> Any:
        self.readings.append(len(texts))
        return super().read(texts, draws)

    def keep(self, order: Any) -> None:
        self.left.append(len(order))
        super().keep(order)


@pytest.mark.parametrize("slow", [False, True])
@pytest.mark.parametrize("name", ["landed", "truncate", "complete", "deer"])
def test_working_ahead_and_reading_ahead_change_nothing(
    thinking_engine: Any, name: str, slow: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does a process that answers only when the device has gone on: what was decoded meanwhile is cut off."""
    opening, close = thinking_engine.thinking
    options = {"truncate": {"threshold": 40.0}, "deer": {"threshold": 0.5}}.get(name, {})
    method = build_method(name, bits=32, budget=100, answers="gsm8k", opening=opening, close=close, **options)
    asked = requests(9, method)
    plain = {c.id: told(c) for c in thinking_engine.decode(asked, Decoding(0.7, seed=3), batch_size=3)}
    engine = TransformersEngine(thinking_engine.checkpoint, processes=2)
    monkeypatch.setattr(transformers_module, "Slots", Ahead)
    monkeypatch.setattr(Ahead, "readings", [])
    monkeypatch.setattr(Ahead, "left", [])
    monkeypatch.setattr(batch_module, "_AHEAD", 500 * engine._forward.bytes_per_token)
    far_behind = multiprocessing.get_context("fork").Event()
    if slow:
        take = Desk.take

        def slowly(self: Desk, lines: Any) -> None:
            if lines.rows[0] % 2:  # one of the two has the odd rows
                far_behind.wait(120)
            take(self, lines)

        monkeypatch.setattr(Desk, "take", slowly)
    hand_over, behind = Desks.take, list[int]()

    def handed_over(self: Desks, lines: Any) -> None:
        hand_over(self, lines)
        behind.append(max(self._unanswered))
        if behind[-1] > desks_module._BEHIND:
            far_behind.set()

    monkeypatch.setattr(Desks, "take", handed_over)
    completions = list(engine.decode(asked, Decoding(0.7, seed=3), batch_size=3))
    done = {c.id: told(c) for c in completions}
    engine.close()
    assert done == plain
    assert min(c.decoded - len(c.token_ids) for c in completions) > 0  # and counted
    assert not slow or max(behind) == 1 + desks_module._BEHIND
    assert sum(Ahead.readings) == 9  # every request once,
    assert len(Ahead.readings) < 5 < 1 + len(asked)  # and the later ones together, before there was a slot for them
    assert max(Ahead.left) < 3  # as long as others wait they take the slots of those that leave, and nobody moves


@pytest.mark.parametrize(("dtype", "few"), [("bfloat16", True), ("float32", False)])
def test_in_half_precision_a_processor_multiplies_few_shapes(
    dtype: str, few: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every shape costs megabytes there: a text of 1,500 tokens came to take eight gigabytes."""
    checkpoint = load_checkpoint(models.resolve("tiny-1m"), bits=16, compute_dtype=dtype, device="cpu")
    widths, read = set[int](), Slots._read

    def noted(self: Slots, n: int, width: int) -> None:
        widths.add(width)
        read(self, n, width)

    monkeypatch.setattr(Slots, "_read", noted)
    done = list(TransformersEngine(checkpoint).decode(requests(2, to_the_end(96)), batch_size=2))
    assert max(len(c.token_ids) for c in done) > 32
    assert len(widths) <= 3 if few else len(widths) > 32


class Uneven:
    """A pace that changes all the time."""

    def __init__(self, most: int) -> None:
        self._steps = itertools.cycle((3, 1, most, 2))

    @property
    def steps(self) -> int:
        return next(self._steps)

    def patience(self, steps: int) -> float:
        return 0.0


@pytest.mark.parametrize("name", ["landed", "bitcal_tts"])
def test_a_pace_changes_nothing(thinking_engine: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hidden states are compared at the same tokens of a request, whenever it joined and however it is fed."""
    opening, close = thinking_engine.thinking
    think = {"opening": opening, "close": close, "answers": "gsm8k"} if name == "landed" else {}
    method = build_method(name, bits=32, budget=100, chunk_size=8, **think)
    asked = requests(9, method)
    options: dict[str, Any] = {"batch_size": 4, "chunk_size": 8, "keep_hidden": True}
    plain = {c.id: c for c in thinking_engine.decode(asked, Decoding(0.7, seed=3), **options)}
    monkeypatch.setattr(transformers_module, "Slots", Ahead)
    monkeypatch.setattr(batch_module, "Pace", Uneven)
    engine = TransformersEngine(thinking_engine.checkpoint, processes=1)
    paced = {c.id: c for c in engine.decode(asked, Decoding(0.7, seed=3), **options)}
    engine.close()
    assert {i: told(c) for i, c in paced.items()} == {i: told(c) for i, c in plain.items()}
    for i, c in plain.items():
        assert len(c.hidden) == (len(c.token_ids) - c.landing_tokens) // 8 == 1 + len(c.hidden_similarities)
        assert paced[i].hidden_similarities == pytest.approx(c.hidden_similarities, abs=1e-4)
        assert np.stack(paced[i].hidden) == pytest.approx(np.stack(c.hidden), abs=1e-3)


def test_the_longer_a_step_takes_the_fewer_there_are_between_looks() -> None:
    pace = Pace(16)
    assert pace.steps == 16
    pace.note(16, 16 * 0.0009, 1)
    assert pace.steps == 16
    for _ in range(4):
        pace.note(16, 16 * 0.004, 1)
    assert pace.steps == 4  # not quite 15 ms would not be enough
    for _ in range(4):
        pace.note(4, 4 * 0.008, 1)
    assert pace.steps == 2
    pace.note(2, 2 * 0.5, 1)  # captured, or somebody else was on the device
    assert pace.steps == 2
    for _ in range(4):
        pace.note(2, 2 * 0.5, 1)
    assert pace.steps == 1
    pace.note(1, 0.0, 1)
    assert pace.steps == 16


def test_the_more_rows_there_are_the_more_steps_there_are_between_looks() -> None:
    few, many = Pace(16), Pace(16)
    few.note(16, 16 * 0.003, 32)
    many.note(16, 16 * 0.003, 1024)
    assert (few.steps, many.steps) == (5, 14)


def test_a_device_is_given_more_a_little_before_it_is_done() -> None:
    pace = Pace(16)
    assert pace.patience(16) < 0  # nobody knows yet how long it takes
    pace.note(16, 16 * 0.002, 1)
    assert pace.patience(16) == pytest.approx(0.032 - 0.004, abs=1e-4)
    pace.note(16, 16 * 0.002, 1000)
    assert pace.patience(16) == pytest.approx(0.032 - 0.012)  # for each of the many there is something to be done


def test_garbage_is_looked_for_among_what_is_new_while_requests_are_decoded(thinking_engine: Any) -> None:
    done = thinking_engine.decode(requests(3, to_the_end(16)), batch_size=2)
    next(done)
    assert gc.get_freeze_count() > 0
    done.close()
    assert gc.get_freeze_count() == 0


def test_each_process_has_as_many_rows_as_the_others(thinking_engine: Any) -> None:
    rows = thinking_engine._rows(requests(8, to_the_end(64)), Decoding(), 16)
    host = host_for(rows, frozenset({2}), in_flight=8, processes=2)
    assert isinstance(host, Desks)
    in_flight = [0, 2, 4, 6]  # as others have ended that lay between
    ids, signals = np.full((4, 1), 5), np.zeros((4, 1, 4), dtype=np.float32)
    for rows_of in (in_flight, [*in_flight[:2], 1, 3]):
        host.take(Lines(rows_of, [False] * 4, ids, signals, np.full(4, np.nan, dtype=np.float32), None, 0))
        host.replies(lambda: True)
    assert [host._whose[row] for row in (0, 2, 4, 6, 1, 3)] == [0, 1, 0, 1, 0, 1]
    host.close()


def test_what_is_kept_of_a_hidden_state_stays_when_the_next_is_written_over_it(thinking_engine: Any) -> None:
    desk = Desk(thinking_engine._rows(requests(1, to_the_end(64)), Decoding(), 2), frozenset())
    hidden = np.ones((1, 3), dtype=np.float32)
    no_cosine = np.full(1, np.nan, dtype=np.float32)
    desk.take(Lines([0], [False], np.full((1, 2), 5), np.zeros((1, 2, 4), dtype=np.float32), no_cosine, hidden, 0))
    hidden[:] = 7
    assert [state.tolist() for state in desk._rows[0].done.hidden] == [[1, 1, 1]]


def test_a_process_that_dies_is_an_error_in_one_line(thinking_engine: Any) -> None:
    rows = thinking_engine._rows(requests(4, to_the_end(64)), Decoding(), 16)
    host = host_for(rows, frozenset({2}), in_flight=4, processes=2)
    assert isinstance(host, Desks)
    os.kill(host._first.pid or 0, signal.SIGKILL)
    host._first.join()
    with pytest.raises(EngineError, match="a process that looks after rows has died"):
        host.tell({0: None, 1: None})  # type: ignore[dict-item]
        host.replies(lambda: True)
    host.close()


def test_what_goes_wrong_in_a_process_comes_out_here(thinking_engine: Any) -> None:
    rows = thinking_engine._rows(requests(4, to_the_end(64)), Decoding(), 16)
    host = host_for(rows, frozenset({2}), in_flight=4, processes=2)
    host.tell({0: None})  # type: ignore[dict-item]
    with pytest.raises(ValueError, match="no probe was asked for"):
        host.replies(lambda: True)
    host.close()


# While rows decode, and while some of them are in the midst of landing; while they are read, ahead of their time; while
# they join.
@pytest.mark.parametrize(("fault", "at"), [("run", 1), ("run", 12), ("run", 13), ("run", 14), ("read", 1), ("join", 1)])
@pytest.mark.parametrize("name", ["landed", "truncate"])
def test_a_device_whose_memory_is_full_goes_on_with_fewer_requests(
    thinking_engine: Any, name: str, fault: str, at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    opening, close = thinking_engine.thinking
    options = {"threshold": 40.0} if name == "truncate" else {}
    method = build_method(name, bits=32, budget=100, answers="gsm8k", opening=opening, close=close, **options)
    asked = requests(7, method)
    decoding = Decoding(0.7, seed=3)
    plain = {c.id: told(c) for c in thinking_engine.decode(asked, decoding, batch_size=4, chunk_size=4)}
    engine = TransformersEngine(thinking_engine.checkpoint)
    monkeypatch.setattr(transformers_module, "Slots", Ahead)
    whole, calls, sizes = getattr(Ahead, fault), itertools.count(), []

    def failing(self: Slots, *args: Any, **kwargs: Any) -> Any:
        sizes.append(self.size)
        if next(calls) == at:
            raise torch.OutOfMemoryError("no memory")
        return whole(self, *args, **kwargs)

    monkeypatch.setattr(Ahead, fault, failing)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always", OutOfMemoryWarning)
        done = {c.id: told(c) for c in engine.decode(asked, decoding, batch_size=4, chunk_size=4)}
    engine.close()
    assert done == plain
    if fault == "read":
        assert not warned  # it was ahead of its time, and is done later
    else:
        assert min(sizes) < 4 and "with 4 requests at a time: going on with 2" in str(warned[0].message)


def test_one_request_that_does_not_fit_is_an_error_in_one_line(
    thinking_engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Slots, *args: Any, **kwargs: Any) -> Any:
        raise torch.OutOfMemoryError("no memory")

    monkeypatch.setattr(transformers_module, "Slots", Ahead)
    monkeypatch.setattr(Ahead, "run", full)
    with (
        warnings.catch_warnings(),
        pytest.raises(EngineError, match="there is no memory for a request of .* a smaller --batch or --budget"),
    ):
        warnings.simplefilter("ignore", OutOfMemoryWarning)
        list(TransformersEngine(thinking_engine.checkpoint).decode(requests(3, to_the_end(64)), batch_size=2))
