"""Calls of the op at the same time: on two streams, beside a replayed graph, on two GPUs; bitwise as one by one."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from multiprocessing.connection import Connection
from typing import Any

import torch

from kernels import Problem

from ..runs import Run
from ..workers import watched
from .calls import Call, Tensors, tensors
from .check import PATIENCE, Functions, Row, call_columns, functions
from .judge import judge
from .planned import compile_all, launched

CALLS = 1000  # a stream
VALUES = 4  # sets of values that the calls of a stream take in turn
PER_GRAPH = 10

# Small problems that leave room beside them, and keys that many blocks share: some embed them together first.
PROBLEMS = (
    Problem("rope", 1, 8, 1, seq_q=64, seq_k=256, hdim=128, rotary_dim=128),
    Problem("rope", 1, 8, 1, seq_q=512, seq_k=512, hdim=128, rotary_dim=128),
    Problem("rope", 1, 1, 1, seq_q=1024, seq_k=1024, hdim=256, rotary_dim=256, causal=True),
    Problem("rope", 2, 16, 2, seq_q=1, seq_k=2048, hdim=128, rotary_dim=128),
    Problem("rope", 1, 4, 4, seq_q=64, hdim=2048, rotary_dim=128),
    Problem("attention", 1, 8, 2, seq_q=64, seq_k=512, hdim=64),
    Problem("alibi", 1, 8, 2, seq_q=64, seq_k=512, hdim=64, causal=True),
)
KINDS = ("two_streams", "graph_and_eager", "two_devices")

Lane = Callable[[], AbstractContextManager[Any]]  # where the calls of one of two go: a stream, a device


def differing(call: Callable[[Tensors], torch.Tensor], given: Sequence[Sequence[Tensors]], lanes: Sequence[Lane],
              calls: int, wait: Callable[[], None]) -> int:  # fmt: skip
    """How many of `calls` on each lane, in turns, give other bits than a call alone does."""
    alone = []
    for lane, sets in zip(lanes, given, strict=True):
        with lane():
            alone.append([call(each) for each in sets])
            wait()
    results: list[list[torch.Tensor]] = [[] for _ in lanes]
    for number in range(calls):
        for lane, sets, out in zip(lanes, given, results, strict=True):
            with lane():
                out.append(call(sets[number % len(sets)]))
    wait()
    return sum(
        not same_bits(out, expected[number % len(expected)])
        for expected, outs in zip(alone, results, strict=True)
        for number, out in enumerate(outs)
    )


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    return torch.equal(a.contiguous().view(torch.int32), b.contiguous().view(torch.int32))


def _values(problem: Problem, device: str, first: int) -> list[Tensors]:
    return [tensors(Call(problem, inputs="sharp", seed=first + number), device) for number in range(VALUES)]


def _wait_for_all() -> None:
    for device in range(torch.cuda.device_count()):
        torch.cuda.synchronize(device)


def graph_and_eager(call: Callable[[Tensors], torch.Tensor], problem: Problem) -> int:
    """How many of CALLS on one stream differ while a graph of PER_GRAPH calls is replayed on another, and of its own.

    What the graph wrote is compared after its last replay.
    """
    own, eager = _values(problem, "cuda", 0), _values(problem, "cuda", VALUES)
    alone = [[call(each) for each in sets] for sets in (own, eager)]
    torch.cuda.synchronize()
    streams = torch.cuda.Stream(), torch.cuda.Stream()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=streams[0]):
        written = [call(own[number % VALUES]) for number in range(PER_GRAPH)]
    results = []
    for number in range(CALLS):
        if number % PER_GRAPH == 0:
            with torch.cuda.stream(streams[0]):
                graph.replay()
        with torch.cuda.stream(streams[1]):
            results.append(call(eager[number % VALUES]))
    torch.cuda.synchronize()
    pairs = [(out, alone[0][number % VALUES]) for number, out in enumerate(written)]
    pairs += [(out, alone[1][number % VALUES]) for number, out in enumerate(results)]
    return sum(not same_bits(*pair) for pair in pairs)


def stressed(kind: str, problem: Problem, op: Functions) -> int | None:
    """How many calls gave other bits than alone; None where the machine has no second GPU."""

    def call(given: Tensors) -> torch.Tensor:
        return op[Call(problem).function](given.q, given.k, given.v, **given.options)

    if kind == "graph_and_eager":
        return graph_and_eager(call, problem)
    if kind == "two_streams":
        streams = torch.cuda.Stream(), torch.cuda.Stream()
        lanes: list[Lane] = [functools.partial(torch.cuda.stream, stream) for stream in streams]
        given = [_values(problem, "cuda", first) for first in (0, VALUES)]
        torch.cuda.synchronize()
    else:
        if torch.cuda.device_count() < 2:
            return None
        lanes = [functools.partial(torch.cuda.device, device) for device in (0, 1)]
        given = [_values(problem, f"cuda:{device}", 0) for device in (0, 1)]
        _wait_for_all()
        with torch.cuda.device(1):
            wrong = sum(bool(judge(Call(problem), each, call(each)).broken) for each in given[1])
        if wrong:
            return wrong
    return differing(call, given, lanes, CALLS, _wait_for_all)


def _stress_all(todo: Sequence[tuple[str, Problem]], send: Connection) -> None:
    """Body of a measuring process."""
    op = functions()
    for place, (kind, problem) in enumerate(todo):
        send.send(("begun", place))
        send.send(("row", ((kind, problem), outcome(stressed(kind, problem, op)))))


def outcome(differ: int | None) -> Row:
    if differ is None:
        return {"status": "unavailable", "reason": "one GPU"}
    reason = f"{differ} of the calls gave other bits than alone" if differ else None
    return {"status": "wrong" if differ else "ok", "reason": reason}


def stress(run: Run, target: str) -> None:
    compile_all([Call(problem) for problem in PROBLEMS], target)
    todo = [(kind, problem) for kind in KINDS for problem in PROBLEMS]
    for kind, content in watched(_stress_all, todo, PATIENCE):
        if kind == "lost":
            (what, problem), status, reason = content
            found: Row = {"status": status, "reason": reason}
        else:
            (what, problem), found = content
        call = Call(problem)
        row = {"what": what, "n": 2 * CALLS, **launched(call, target), **found}
        run.append("op", {"study": run.study.name, **call_columns(call), **row})
