"""What the tests of the three V8 cores share: plans of a core in a shape, and how these do in the emulator."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import Any

import torch

from kernels import Problem
from kernels.checking.reference import INPUTS, Verdict, reference_of
from kernels.rope.v8 import ROPE, rates_buffer
from kernels.runtime.emulator import Finding, run
from kernels.sinusoidal.v6_cluster import SINUSOIDAL
from kernels.v8 import PLAIN, plan
from kernels.version import Plan

EMBEDDINGS = {"rope": ROPE, "sinusoidal": SINUSOIDAL, "attention": PLAIN}


def plan_of(core: ModuleType, problem: Problem, shape: Any) -> Plan:
    """Attention by a core, a module of kernels.v8, in one of its shapes."""
    dims = problem.rotary_dim if problem.family == "rope" else problem.hdim
    launch = core.attend(problem, EMBEDDINGS[problem.family], "rates", dims, shape=shape)
    return plan(problem, launch, rates=rates_buffer(dims))


def tried(plan: Plan, **options: Any) -> Iterator[tuple[Verdict, list[Finding]]]:
    """What is said of a plan on both inputs, with warps in step and in any order; options are those of `run`."""
    for kind, schedule in zip(INPUTS, ("in step", "random"), strict=True):
        case = reference_of(plan.problem, kind)
        report = run(plan, case.inputs, schedule=schedule, **options)
        yield case.compare(torch.from_numpy(report.out)), report.findings
