"""Energy counters, where the machine lets them be read: NVML for GPUs, RAPL for CPU packages."""

from __future__ import annotations

from pathlib import Path


class EnergyMeter:
    """Joules since the meter was made; None where nothing can be read."""

    def __init__(self) -> None:
        self._start = _counters()

    def joules(self) -> float | None:
        """Energy used so far by the devices whose counters could be read both times."""
        now = _counters()
        shared = self._start.keys() & now.keys()
        if any(now[key] < self._start[key] for key in shared):  # a counter wrapped around: how often is unknown
            return None
        return sum(now[key] - self._start[key] for key in shared) if shared else None

    @staticmethod
    def sources() -> list[str]:
        """Names of the counters that can be read here."""
        return sorted(_counters())


def _counters() -> dict[str, float]:
    return {**_rapl(), **_nvml()}


def _rapl() -> dict[str, float]:
    found = {}
    for path in Path("/sys/class/powercap").glob("intel-rapl:[0-9]/energy_uj"):
        try:
            if (path.parent / "name").read_text().startswith("package"):  # others, such as psys, hold it once more
                found[path.parent.name] = int(path.read_text()) / 1e6
        except (OSError, ValueError):  # readable by root only on most systems
            continue
    return found


def _nvml() -> dict[str, float]:
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:  # the library raises its own errors where there is no driver
        return {}
    found = {}
    for i in range(pynvml.nvmlDeviceGetCount()):
        try:
            handle = pynvml.nvmlDeviceGetHandleByIndex(i)
            found[f"nvml:{i}"] = pynvml.nvmlDeviceGetTotalEnergyConsumption(handle) / 1e3
        except pynvml.NVMLError:
            continue
    return found
