"""What NVML says of the card at hand, each thing on its own: WSL 2, MIG and virtual GPUs answer only some of it."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch

T = TypeVar("T")
# Why clocks are below what was asked, by NVML's names.
POWER_CAP = "power_cap"
REASONS = {
    "SwPowerCap": POWER_CAP,
    "SwThermalSlowdown": "thermal_slowdown",
    "HwThermalSlowdown": "hardware_thermal_slowdown",
    "HwPowerBrakeSlowdown": "power_brake",
    "HwSlowdown": "hardware_slowdown",
}
ATTEMPTS = 4  # at a timing, before it is given up
PAUSE_S = 2.0  # for the card to recover, and twice as long before each next attempt
MOST_PAUSES_S = 300.0  # in all, of a process


class Throttled(RuntimeError):
    """The card throttled in every attempt; `reasons` are why, `discarded` how many samples were thrown away."""

    def __init__(self, reasons: Collection[str], discarded: int) -> None:
        super().__init__(f"the card throttled in every attempt: {', '.join(sorted(reasons))}")
        self.reasons = reasons
        self.discarded = discarded


def uuid() -> str:
    """The UUID of torch's current GPU as NVIDIA's tools write it, "GPU-..." or "MIG-..."."""
    uuid = str(torch.cuda.get_device_properties(torch.cuda.current_device()).uuid)
    return uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"


@functools.cache
def _opened() -> tuple[Any, Any] | None:
    """NVML and its handle of torch's current GPU, opened once a process; None where NVML does not answer."""
    try:
        import pynvml

        pynvml.nvmlInit()
        return pynvml, pynvml.nvmlDeviceGetHandleByUUID(uuid())
    except Exception:  # of NVML, of torch, or there is no such library
        return None


def _ask(question: Callable[[Any, Any], T]) -> T | None:
    """The answer to `question(nvml, handle)`, or None where this card or this NVML has none."""
    opened = _opened()
    if opened is None:
        return None
    nvml, _ = opened
    try:
        return question(*opened)
    except (nvml.NVMLError, AttributeError):  # not of this card, or not of this version of NVML
        return None


def driver() -> str | None:
    return _ask(lambda nvml, handle: nvml.nvmlSystemGetDriverVersion())


def sm_mhz() -> int | None:
    """The SM clock now, MHz."""
    return _ask(lambda nvml, handle: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM))


def sm_mhz_max() -> int | None:
    return _ask(lambda nvml, handle: nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_SM))


def power_limit_w() -> int | None:
    return _ask(lambda nvml, handle: nvml.nvmlDeviceGetEnforcedPowerLimit(handle) // 1000)


def throttle() -> frozenset[str] | None:
    """Why the clocks are below what was asked now; empty where they are not."""
    mask = _ask(lambda nvml, handle: nvml.nvmlDeviceGetCurrentClocksEventReasons(handle))
    if mask is None:  # a driver that has only the older name
        mask = _ask(lambda nvml, handle: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))
    if mask is None:
        return None
    return frozenset(reason for name, reason in REASONS.items() if mask & (_bit(name) or 0))


def _bit(name: str) -> int | None:
    return _ask(lambda nvml, handle: getattr(nvml, f"nvmlClocksEventReason{name}"))


def others(ours: Collection[int]) -> int | None:
    """How many processes other than `ours`, by id, are on the card.

    Where the ids are those of another namespace, as in a container, our own are taken off the count.
    """
    computing = _ask(lambda nvml, handle: nvml.nvmlDeviceGetComputeRunningProcesses(handle))
    drawing = _ask(lambda nvml, handle: nvml.nvmlDeviceGetGraphicsRunningProcesses(handle))
    if computing is None and drawing is None:
        return None
    listed = {process.pid for process in (*(computing or ()), *(drawing or ()))}
    return len(listed - set(ours)) if os.getpid() in listed else max(0, len(listed) - len(ours))


@dataclass
class Watch:
    """What happens on the card while a process times: throttling, and processes other than `ours`.

    A power cap is recorded and kept: at full load it is how large matrix products run on most cards. Under any other
    reason the card is protecting itself, and a time says more of its cooling or supply than of the kernel: such
    samples are thrown away and taken again.
    """

    ours: Collection[int] = ()
    reasons: set[str] = field(default_factory=set)
    readable: bool = False
    others: int | None = None
    _paused_s: float = 0.0

    def look(self) -> frozenset[str]:
        """Notes what is seen, and returns why samples taken now are thrown away: nothing, as a rule."""
        seen = throttle()
        self.readable |= seen is not None
        self.reasons |= seen or frozenset()
        return (seen or frozenset()) - {POWER_CAP}

    def count(self) -> None:
        """Notes how many others there are, which takes NVML a millisecond or so."""
        found = others(self.ours)
        if found is not None:
            self.others = max(found, self.others or 0)

    def steady(self, take: Callable[[], list[float]]) -> tuple[list[float], int]:
        """What `take` gives without throttling before or after it, and how many samples were thrown away.

        Raises: Throttled after ATTEMPTS.
        """
        discarded, pause = 0, PAUSE_S
        before = self.look()
        for attempt in range(ATTEMPTS):
            taken = take()
            after = self.look()
            if not before | after:
                return taken, discarded
            discarded += len(taken)
            if attempt < ATTEMPTS - 1 and self._paused_s < MOST_PAUSES_S:
                time.sleep(pause)
                self._paused_s += pause
                pause *= 2
            before = self.look()
        raise Throttled(before | after, discarded)

    @property
    def seen(self) -> dict[str, Any]:
        return {"throttle": sorted(self.reasons), "readable": self.readable, "others": self.others}
