"""Thousands of random calls of the op, each against float64 and fp32 math, one row each."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection
from typing import Any

import torch

from kernels import Unsupported

from ...records.current import today
from ...records.files import problem_columns
from ..machine import now
from ..progress import tqdm
from ..runs import Run
from ..workers import watched
from .calls import FUNCTIONS, Call, Tensors, drawn, tensors
from .judge import judge
from .planned import VERSIONS_OF, columns, compile_all, kernel_of

PROBLEMS, SEED, MOST_KERNELS = 2000, 16, 180
PATIENCE = 90.0  # seconds: a kernel that is not compiled yet takes 10
Row = dict[str, Any]
Functions = Mapping[str, Callable[..., torch.Tensor]]


def functions() -> Functions:
    from kernels import ops

    return {name: getattr(ops, name) for name in FUNCTIONS.values()}


def _called(call: Call, given: Tensors, op: Functions) -> tuple[str, str, torch.Tensor | None]:
    """Status and reason of a call before its result is compared, and the result."""
    function, arguments = op[call.function], (given.q, given.k, given.v)
    try:
        return "ok", "", function(*arguments, **given.options, fallback=False)
    except Unsupported as refusal:
        reason = str(refusal)
    except (TypeError, ValueError) as error:
        return "refused", str(error), None
    try:
        return "fell_back", reason, function(*arguments, **given.options)
    except (Unsupported, TypeError, ValueError) as error:
        return "refused", str(error), None


def check(call: Call, device: Any, op: Functions) -> Row:
    """The columns of a call that was made: what became of it and how it compares.

    Raises: RuntimeError, where a launch failed; the device is then in no state to go on.
    """
    began = time.monotonic()
    given = tensors(call, device)
    status, reason, out = _called(call, given, op)
    positions = given.options.get("positions")
    row: Row = {"largest_position": call.places - 1 if positions is None else int(positions.max())}
    if out is not None:
        found = judge(call, given, out)
        if found.broken:
            status, reason = "wrong", "+".join(found.broken)
        row |= {name: getattr(found, name) for name in ("max_abs_err", "fp32_abs_err", "allowed_abs_err", "ratio")}
    return {**row, "status": status, "reason": reason or None, "seconds": round(time.monotonic() - began, 3)}


def call_columns(call: Call) -> Row:
    """The columns that both tables have of a call, and those that say when its row is made, of which code."""
    version = VERSIONS_OF[call.problem.family]
    return {
        "version": version,
        **problem_columns(call.problem),
        "interleaved": call.interleaved,
        "mode": call.mode,
        "layout": call.layout,
        "source_hash": today(version),
        "measured_at": now(),
    }


def check_calls(calls: Sequence[tuple[int, Call]], send: Connection) -> None:
    """Body of the measuring process: a row for each call."""
    op = functions()
    for place, (index, call) in enumerate(calls):
        send.send(("begun", place))
        send.send(("row", (index, check(call, "cuda", op))))


def check_problems(run: Run, target: str, count: int, seed: int, most_kernels: int = MOST_KERNELS) -> None:
    """Bring a run to its end: what it has not of `count` calls. Raises: MeasureError, DataError."""
    calls = drawn(count, seed, lambda call: kernel_of(call, target), most_kernels)
    todo = missing(run, count, seed)
    compile_all([calls[index] for index in todo], target)

    def keep(index: int, found: Row) -> None:
        call = calls[index]
        own = {
            "study": run.study.name,
            "seed": seed,
            "call": index,
            "function": call.function,
            "base": call.base,
            "scale": call.softmax_scale,
            "inputs": call.inputs,
            "largest_position": call.places - 1,
        }
        run.append("op_problems", {**call_columns(call), **own, **columns(call, target), **found})

    with tqdm(total=len(todo), desc="check", unit="call") as bar:
        for kind, content in watched(check_calls, [(index, calls[index]) for index in todo], PATIENCE):
            if kind == "lost":
                (index, _), status, reason = content
                keep(index, {"status": status, "reason": reason, "seconds": PATIENCE if status == "hang" else 0.0})
            else:
                keep(*content)
            bar.update()


def missing(run: Run, count: int, seed: int) -> list[int]:
    """The calls of a draw that a run has no row of."""
    done = {row["call"] for row in run.rows("op_problems") if row["seed"] == seed}
    return [index for index in range(count) if index not in done]
