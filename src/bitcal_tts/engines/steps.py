"""What rows wrote in a number of steps, on its way from the device to the host."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

Tensor = torch.Tensor


class Steps(NamedTuple):
    """What the rows wrote in a number of steps: ids [rows, steps], signals [rows, steps, 4].

    Cosines, and hidden states where they are kept, are of the rows that have come to a boundary.
    """

    ids: Tensor
    signals: Tensor
    cosines: Tensor
    hidden: Tensor | None
    begun: Any = None
    """An event before the first of the steps; None where nobody works ahead, as all events."""
    ready: Any = None
    """An event that the copies to the host wait for."""

    @property
    def tensors(self) -> tuple[Tensor | None, ...]:
        """Ids, signals, cosines and hidden states."""
        return self[:4]

    def wait(self) -> None:
        """Until the host may read."""
        if self.ready is not None:
            self.ready.synchronize()

    @property
    def seconds(self) -> float | None:
        """What the device took for them, when it is done; None where nobody works ahead."""
        return None if self.begun is None else float(self.begun.elapsed_time(self.ready)) / 1e3


class HostCopies:
    """Copies of what a device writes, in memory that it writes to by itself.

    That memory is dear to come by, and taken again: what was copied is there until the time after the next.
    """

    def __init__(self) -> None:
        self._memory: list[dict[str, Tensor]] = [{}, {}]

    def turn(self) -> None:
        """From now on the other half is written to."""
        self._memory.reverse()

    def of(self, name: str, column: Tensor) -> Tensor:
        """A copy of what goes by that name, of any size."""
        if column.device.type != "cuda":
            return column.clone()
        memory, size = self._memory[0], column.numel()
        if name not in memory or len(memory[name]) < size:
            memory[name] = torch.empty(2 * size, dtype=column.dtype, pin_memory=True)
        return memory[name][:size].view(column.shape).copy_(column, non_blocking=True)


def event_now() -> Any:
    """What the device has been given so far, to be asked when it is done with it."""
    event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    event.record()
    return event
