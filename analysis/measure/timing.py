"""Three ways to time one call of a program on the GPU: `analysis/record/timers.py` has their names."""

import contextlib
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from kernels.runtime.gpu import Program
from kernels.version import Plan, Unsupported

from ..record.timers import timer_of
from .slices import in_slice

SAMPLE_US = 300.0  # of device time in a sample; the start of a graph, about 1 us, is then noise
CLEARLY_ENOUGH = 2  # times that, in the first replay, which the start of a graph makes longer
SAMPLES = 15
COLD_SAMPLES = 6  # each calls every set of buffers, 60 and more, once
HARNESS_SAMPLES = 6
ENOUGH_US = 60_000.0  # of samples: where one is long there are fewer, but of a graph
LEAST_SAMPLES = 3
COLD_L2_MULTIPLE = 2.0
MAX_COPIES = 512
US_PER_MS = 1000.0


def summarise(samples_us: list[float]) -> dict[str, float]:
    """Columns of the time of one call: percentiles over `n` samples, in microseconds."""
    p20, median, p80 = np.percentile(samples_us, (20, 50, 80))
    return {"n": len(samples_us), "p20_us": float(p20), "median_us": float(median), "p80_us": float(p80)}


def elapsed_us(work: Callable[[], Any], samples: int = 1) -> list[float]:
    """The device's time of each of some calls, one behind the other, in microseconds."""
    events = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(samples)]
    for start, end in events:
        start.record()
        work()
        end.record()
    torch.cuda.synchronize()
    return [start.elapsed_time(end) * US_PER_MS for start, end in events]


def capture(work: Callable[[], Any], stream: torch.cuda.Stream | None = None) -> Callable[[], None]:
    """The replay of a graph of `work`, captured on a stream of the whole card, or on that of a slice: its kernels run
    where they were captured.

    `torch.cuda.graph` without its collecting of garbage and emptying of caches, which take longer than timing.
    """
    graph, stream = torch.cuda.CUDAGraph(), stream or _capture_stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        graph.capture_begin()
        try:
            work()
        finally:
            graph.capture_end()
    torch.cuda.current_stream().wait_stream(stream)
    return graph.replay


@functools.cache
def _capture_stream() -> torch.cuda.Stream:
    return torch.cuda.Stream()


def _time_graph(
    program: Program, order: list[int], samples: int, stream: torch.cuda.Stream | None = None
) -> list[float]:
    """Samples of a graph that calls the copies in `order`, as often as fills a sample."""

    def captured(rounds: int) -> Callable[[], None]:
        def calls() -> None:
            for copy in order * rounds:
                program.launch(copy)

        return capture(calls, stream)

    for copy in dict.fromkeys(order):  # what a peer makes of a copy's inputs once is no part of the graph
        program.launch(copy)
    torch.cuda.synchronize()
    replay, rounds = captured(1), 1
    (once_us,) = elapsed_us(replay)
    if once_us < CLEARLY_ENOUGH * SAMPLE_US:
        once_us = min(elapsed_us(replay, 2))
        rounds = math.ceil(SAMPLE_US / once_us)
        replay = captured(rounds) if rounds > 1 else replay
        replay()
    samples = min(samples, max(LEAST_SAMPLES, math.ceil(ENOUGH_US / (rounds * once_us))))
    return [total / (rounds * len(order)) for total in elapsed_us(replay, samples)]


def cold_copies(plan: Plan, inputs: Mapping[str, Any], l2_bytes: int) -> int:
    """How many sets of buffers together exceed twice the L2.

    Raises: Unsupported where the card does not say how large its L2 is, as some virtual ones.
    """
    if not l2_bytes:
        template = "device_cold needs {needed}, of which this GPU says {allowed}"
        raise Unsupported("capability", "the size of the L2", "nothing", template)
    touched = sum(b.size * np.dtype(b.dtype).itemsize for b in plan.buffers.values())
    touched = touched or sum(values.nbytes for values in inputs.values()) * 4 // 3
    return min(MAX_COPIES, math.ceil(COLD_L2_MULTIPLE * l2_bytes / touched) + 1)


def _time_harness(program: Program, iterations: int) -> list[float]:
    """One sample, which is of many calls."""

    def calls() -> None:
        for _ in range(iterations):
            program.call()

    program.call()
    torch.cuda.synchronize()
    return [total / iterations for total in elapsed_us(calls)]


def is_enough(samples_us: Sequence[float], iterations: int) -> bool:
    """Whether these are all the samples of launched that a program needs: where one is long it is enough."""
    return len(samples_us) >= HARNESS_SAMPLES or sum(samples_us) * iterations >= ENOUGH_US


def measure(program: Program, timer: str, iterations: int = 1, probed: bool = False) -> list[float]:
    """Samples of the timer of that name, in microseconds a call: of launched one, of the others all.

    device_cold is over all copies of the program's buffers; `iterations` are the calls of a sample of launched.
    `probed`: the slice was counted for a sample of this timing before.

    Raises: Unsupported where the card makes no slice of so many SMs, MeasureError where it is not one.
    """
    how = timer_of(timer)
    with in_slice(how.sms, capture, probed) if how.sms else contextlib.nullcontext() as stream:
        if how.base == "launched":
            return _time_harness(program, iterations)
        if how.base == "device_cold":
            return _time_graph(program, list(range(len(program.buffers))), COLD_SAMPLES, stream)
        return _time_graph(program, [0], SAMPLES, stream)
