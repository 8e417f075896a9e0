"""Which kernel a call of an op launches: planned, which needs no GPU, and compiled ahead."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Sequence
from typing import Any

from kernels import Unsupported
from kernels.runtime.compile import CompileError, assembled, compile_ptx
from kernels.runtime.tensors import plan_launch, planned_keys
from kernels.version import Kernel, Launch

from ..workers import compile_each
from .calls import Call

VERSIONS_OF = {"rope": "rope_v8", "attention": "attention_v8", "alibi": "alibi_v1"}  # whose kernels a family has


def launch_of(call: Call, target: str) -> Launch:
    """The launch of a call, planned as the op plans it: for a length of few. Raises: Unsupported."""
    problem = call.problem
    seq_k = planned_keys(problem.seq_k)
    problem = dataclasses.replace(problem, seq_k=seq_k, q_offset=max(seq_k - problem.seq_q, 0))
    return plan_launch(problem, target, call.interleaved, "tables" in call.mode, "positions" in call.mode).launch


def kernel_of(call: Call, target: str) -> Kernel | None:
    """The kernel of a call, one object for all calls that share it; None where no core takes the call."""
    with contextlib.suppress(Unsupported):
        return launch_of(call, target).kernel
    return None


def columns(call: Call, target: str) -> dict[str, Any]:
    """The columns `core` and `kernel`, empty where no core takes the call."""
    try:
        launch = launch_of(call, target)
    except Unsupported:
        return {"core": None, "kernel": None}
    return {"core": launch.shape.core, "kernel": launch.kernel.name}


def launched(call: Call, target: str) -> dict[str, Any]:
    """The columns `core` and `once`. Raises: Unsupported where no core takes the call."""
    shape = launch_of(call, target).shape
    return {"core": shape.core, "once": getattr(shape, "once", False)}


def _compile(call: Call, target: str) -> None:
    with contextlib.suppress(Unsupported, CompileError):  # the call says so
        assembled(compile_ptx(launch_of(call, target).kernel, target), target)


def compile_all(calls: Sequence[Call], target: str) -> None:
    """Fill the cache of compiled kernels, several at a time; each kernel once, those of many dims first."""
    kernels: dict[Any, Call] = {}
    for call in calls:
        kernels.setdefault(kernel_of(call, target), call)
    kernels.pop(None, None)
    if kernels:
        compile_each(_compile, sorted(kernels.values(), key=lambda call: -call.problem.hdim), target)
