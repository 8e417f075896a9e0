"""What a measuring process does on the GPU: say which it is, check versions, time them. Each result is sent at once."""

from __future__ import annotations

import dataclasses
import functools
import random
from multiprocessing.connection import Connection
from typing import Any

import torch

from kernels import VERSIONS, Problem, Unsupported
from kernels.checking.reference import INPUTS, make_inputs, reference_of
from kernels.runtime.compile import CompileError
from kernels.runtime.gpu import GpuError, Program, device_target

from ..records.current import today
from ..records.files import problem_columns
from .machine import ceilings, environment, identity, now, sm_mhz, throttle, warm_up
from .timing import measure

TIMED_INPUTS = "uniform"

Pair = tuple[str, Problem]
Task = tuple[str, Pair]  # a study and what it measures
Row = dict[str, Any]


def row_of(study_name: str, pair: Pair, **values: Any) -> Row:
    name, problem = pair
    return {
        "study": study_name,
        "version": name,
        **problem_columns(problem),
        "source_hash": today(name),
        "measured_at": now(),
        **values,
    }


def outcome(check: Row) -> Row:
    """The columns that a timing row takes over from the check that decides."""
    return {column: check[column] for column in ("status", "reason", "max_abs_err")}


def check(pair: Pair, kind: str) -> dict[str, Any]:
    """Columns of a check: run the version once on inputs of that kind and compare with float64."""
    name, problem = pair
    try:
        plan = VERSIONS[name](problem, device_target())
        case = reference_of(problem, kind, "cuda")
        verdict = case.compare(Program(plan, case.inputs).output())
    except Unsupported as refusal:
        return {"status": refusal.status, "reason": str(refusal)}
    except (CompileError, GpuError, torch.OutOfMemoryError) as error:
        return {"status": "error", "reason": str(error).splitlines()[0]}
    except RuntimeError as error:
        if not VERSIONS[name].is_peer:
            raise
        torch.cuda.synchronize()
        return {"status": "unsupported", "reason": str(error).splitlines()[0]}
    status, reason = verdict.status, plan.defect if verdict.status == "wrong" else ""
    races = [hazard.why for hazard in plan.hazards if hazard.kind == "race"]
    if status == "wrong" and plan.expected == "ok" and races:
        reason = f"a race shows: {'; '.join(races)}"
    elif status != plan.expected and not plan.unspecified:
        status = "error"
        reason = (
            f"declared {plan.expected}, found {verdict.status}: max_abs_err {verdict.max_abs_err:.3g}, "
            f"allowed {verdict.allowed_abs_err:.3g}, NaN share {verdict.nan_share:.3g}"
        )
    return {
        "status": status,
        "reason": reason,
        "max_abs_err": verdict.max_abs_err,
        "allowed_abs_err": verdict.allowed_abs_err,
        "nan_share": verdict.nan_share,
        "core": plan.core,
    }


def check_all(tasks: list[Task], send: Connection) -> None:
    studies: dict[Pair, list[str]] = {}
    for name, pair in tasks:
        studies.setdefault(pair, []).append(name)
    for pair in sorted(studies, key=lambda pair: dataclasses.astuple(pair[1])):  # one reference after the other
        for kind in INPUTS:
            found = check(pair, kind)
            for name in studies[pair]:
                send.send(("checks", row_of(name, pair, inputs=kind, **found)))
    warm_up()
    send.send(("gpu", {**identity(), "ceilings": ceilings()}))


@functools.cache
def _inputs(plain: Problem) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(x).cuda() for name, x in make_inputs(plain, TIMED_INPUTS).items()}


def _timed_inputs(problem: Problem) -> dict[str, torch.Tensor]:
    """The inputs that a problem is timed on; those of one shape are the same in every family."""
    shape = ("batch", "heads", "kv_heads", "seq_q", "seq_k", "hdim", "dtype")
    return _inputs(Problem("attention", **{name: getattr(problem, name) for name in shape}))


def time_all(process: int, tasks: list[tuple[Task, str, Row]], send: Connection) -> None:
    """Time the tasks in an order of this process's own."""
    random.Random(process).shuffle(tasks)
    warm_up()
    for (study_name, pair), timer, checked in tasks:
        name, problem = pair
        plan = VERSIONS[name](problem, device_target())
        timing = measure(plan, _timed_inputs(problem), timer, VERSIONS[name].iterations)
        row = row_of(
            study_name, pair, process=process, timer=timer, sm_mhz=sm_mhz(), **outcome(checked), **vars(timing)
        )
        send.send(("timings", row))
    send.send(("throttle", throttle()))


def identify(send: Connection) -> None:
    send.send(("identity", {**identity(), "target": device_target(), **environment()}))
