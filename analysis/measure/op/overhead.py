"""What a call of the op costs beside its launch: on the host, on the device, and the first time."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import torch

from kernels import VERSIONS, Problem
from kernels.limits import EMULATED_TARGET
from kernels.runtime.gpu import Program, device_target

from ..machine import warm_up
from ..runs import Run
from ..studies import MAIN, partial_rope
from ..timing import Timing, device_warm, summarise
from ..workers import Worker
from .calls import Call, tensors
from .check import PATIENCE, Functions, Row, call_columns, functions
from .planned import compile_all, launched

PREFILL = partial_rope(1, 8, 2048, 128)  # of the study `beyond`
PROBLEMS = (MAIN, PREFILL, dataclasses.replace(PREFILL, causal=True))
SMALL = Problem("rope", 1, 1, seq_q=8, hdim=64, rotary_dim=64)  # its launch is nearly all of its time
VARIANTS: tuple[dict[str, Any], ...] = (
    {},
    {"interleaved": False},
    {"layout": "transposed"},
    {"layout": "cache"},
    {"mode": "rates_positions"},
    {"mode": "tables"},
    {"mode": "tables", "interleaved": False},
)
REPETITIONS = 7
HOST_CALLS = 400  # fewer than the launches that queue up before the host has to wait
HOST_SAMPLES = 5
LONG = 2**32  # flops of a problem whose loops on the host would take minutes to run out


@dataclass(frozen=True)
class Timed:
    """What is timed; `launch` and `buffers` are what analysis.measure.timing asks of a program."""

    call: Call
    what: str
    run: Callable[[], Any]
    buffers: tuple[int, ...] = (0,)

    def launch(self, copy: int = 0) -> None:
        self.run()


def contestants(problem: Problem, op: Functions, target: str = EMULATED_TARGET) -> list[Timed]:
    """The version's own launch, and the op in every variant, on the same values, each with and without `out`."""
    chosen = []
    for variant in VARIANTS:
        call = Call(problem, **variant)
        given = tensors(call, "cuda")
        given.options.pop("out", None)
        if not variant:
            plan = VERSIONS["rope_v8"](problem, target)
            chosen.append(Timed(call, "launch", Program(plan, {"q": given.q, "k": given.k, "v": given.v}).launch))

        def called(function: Any = op[call.function], given: Any = given, **out: Any) -> None:
            function(given.q, given.k, given.v, **given.options, **out)

        out = torch.empty_like(given.q)
        chosen.append(Timed(call, "op", called))
        chosen.append(Timed(call, "op_out", functools.partial(called, out=out)))
    return chosen


def host_loop(run: Callable[[], Any]) -> Timing:
    """The host's time of one call, among so many that queue up that it never waits for the device."""
    samples = []
    for _ in range(HOST_SAMPLES):
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(HOST_CALLS):
            run()
        samples.append((time.perf_counter() - began) * 1e6 / HOST_CALLS)
    torch.cuda.synchronize()
    return summarise(samples)


def timings(chosen: list[Timed], repetitions: int = REPETITIONS) -> Iterator[Row]:
    """A row for each contestant, timer and repetition; each repetition in an order of its own."""
    dice = random.Random(0)
    for each in chosen:
        each.run()
    for repetition in range(1, repetitions + 1):
        for each in dice.sample(chosen, len(chosen)):
            timers: dict[str, Callable[[], Timing]] = {"device_warm": functools.partial(device_warm, each)}  # type: ignore[arg-type]
            if each.call.problem.flops < LONG:
                timers["host_loop"] = functools.partial(host_loop, each.run)
            for timer, measure in timers.items():
                yield {
                    **call_columns(each.call), "what": each.what, "timer": timer, "repetition": repetition,
                    "status": "ok", **vars(measure()),
                }  # fmt: skip


def _time_all(send: Connection) -> None:
    """Body of a measuring process."""
    warm_up()
    target = device_target()
    for problem in (SMALL, *PROBLEMS):
        for row in timings(contestants(problem, functions(), target)):
            call = Call(problem, mode=row["mode"], layout=row["layout"], interleaved=row["interleaved"])
            send.send(("row", {**row, **launched(call, target)}))


def time_op(run: Run, target: str) -> None:
    """Time the op beside the version's own launch on small, main and long problems. Raises: MeasureError."""
    compile_all([Call(problem, **variant) for problem in (SMALL, *PROBLEMS) for variant in VARIANTS], target)
    with contextlib.closing(Worker(_time_all, PATIENCE)) as worker:
        for _, row in worker.do():
            run.append("op", {"study": run.study.name, **row})


# ---------------------------------------------------------------- the first call


def _first_call(problem: Problem, send: Connection) -> None:
    """Body of a fresh process: import the ops, call one for the first and for a second time."""
    began = time.perf_counter()
    op = functions()
    seconds = {"import": time.perf_counter() - began}
    call = Call(problem)
    given = tensors(call, "cuda")
    torch.cuda.synchronize()
    for what in ("first_call", "second_call"):
        began = time.perf_counter()
        op[call.function](given.q, given.k, given.v, **given.options)
        torch.cuda.synchronize()
        seconds[what] = time.perf_counter() - began
    send.send(("seconds", seconds))


def first_calls(run: Run, target: str) -> None:
    """The first call with nothing on disk, then in another process with what that left there."""
    for problem in (MAIN, PREFILL):
        with tempfile.TemporaryDirectory() as folder, _environment("FUSED_PE_CACHE", folder):
            for cache in ("cold", "cached"):
                with contextlib.closing(Worker(_first_call, PATIENCE)) as worker:
                    ((_, seconds),) = worker.do(problem)
                for what, value in seconds.items():
                    if what == "first_call" or cache == "cached":
                        name = f"{what}_{cache}" if what == "first_call" else what
                        row = {"what": name, "seconds": round(value, 6), "status": "ok"}
                        run.append("op", {"study": run.study.name, **call_columns(Call(problem)), **row})


@contextlib.contextmanager
def _environment(name: str, value: str) -> Iterator[None]:
    """A variable that processes that start meanwhile inherit."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
