"""Timers by name: how a time was taken, on the whole card or in a slice of it.

    device_warm          CUDA-graph replays over one set of buffers: the device's own time, caches warm
    device_cold          the same over sets of buffers that are twice the L2: each call finds its inputs in DRAM
    launched             the documents' harness: launches in a loop, with the host syncs it makes; drifts with the host
    launched@48          the same in a slice of 48 SMs
    device_warm@48/5     in such a slice, with at most 5 blocks of each launch on an SM
    device_warm@48/sm_89 with at most as many blocks on an SM as an SM of sm_89 holds
"""

import functools
import re
from typing import NamedTuple

TIMERS = ("device_warm", "device_cold", "launched")
NAME = re.compile(rf"({'|'.join(TIMERS)})(?:@(\d+)(?:/(\d+|sm_\d+))?)?")


class Timer(NamedTuple):
    """`base` is one of `TIMERS`; `sms` of a slice, 0 for the whole card; `cap`: most blocks on an SM, or a target."""

    base: str
    sms: int = 0
    cap: str = ""

    @property
    def pool(self) -> str:
        """The timers whose ratios differ alike from run to run: those of all slices."""
        return f"{self.base}@" if self.sms else self.base


@functools.cache
def timer_of(name: str) -> Timer:
    """The timer of that name."""
    found = NAME.fullmatch(name)
    if not found:
        raise ValueError(f"no timer is called {name!r}; allowed: {', '.join(TIMERS)}, each also as in device_warm@48/6")
    return Timer(found[1], int(found[2] or 0), found[3] or "")
