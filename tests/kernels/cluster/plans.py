"""Helpers of the tests of the three V8 cores: plans of a core in a shape or a mode of RoPE, and their verdicts."""

from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np
import torch

from kernels import Problem
from kernels.checking.reference import INPUTS, Verdict, reference_of
from kernels.flash.cluster import PLAIN, hybrid, plan
from kernels.flash.cluster.mma import core as mma
from kernels.flash.cluster.portable import core as portable
from kernels.flash.cluster.rope import ROPE, mode, rates_buffer
from kernels.flash.cluster.sinusoidal import SINUSOIDAL
from kernels.flash.cluster.wgmma import core as wgmma
from kernels.runtime.emulator import Finding, run
from kernels.version import Buffer, Plan

CORES = {"wgmma": wgmma, "mma": mma, "portable": portable}
EMBEDDINGS = {"rope": ROPE, "sinusoidal": SINUSOIDAL, "attention": PLAIN}


# Two tiles of keys, grouped heads under a mask; of 136 dims 40 turn, so that slices end at odd places.
RAGGED = Problem("rope", 2, 4, 2, 9, 70, hdim=136, rotary_dim=40, causal=True)
ROWS = 500  # of tables


def tables_of(problem: Problem, rows: int = ROWS) -> tuple[np.ndarray, np.ndarray]:
    pairs = problem.rotary_dim // 2
    angles = np.arange(rows)[:, None] * 10_000.0 ** (-np.arange(pairs) / pairs)
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


def plan_of(core: ModuleType, problem: Problem, shape: Any) -> Plan:
    """Attention by a core, a module of kernels.flash.cluster, in one of its shapes."""
    dims = problem.rotary_dim if problem.family == "rope" else problem.hdim
    launch = core.attend(problem, EMBEDDINGS[problem.family], "rates", dims, shape=shape)
    return plan(problem, launch, rates=rates_buffer(dims))


def plan_in_mode(
    core: ModuleType,
    problem: Problem,
    half_split: bool = False,
    tables: tuple[np.ndarray, np.ndarray] | None = None,
    positions: np.ndarray | None = None,
    shape: Any = None,
    before: bool = False,
) -> Plan:
    """RoPE by a core, of K by a launch before it. `tables`: cos and sin, float32[rows, pairs]; positions: int32."""
    embedding, table_type = mode(tables is not None, positions is not None, half_split, problem.rotary_dim)
    buffers, table = {"rates": rates_buffer(problem.rotary_dim)}, ("rates",)
    if tables is not None:
        rows, pairs = tables[0].shape
        buffers = {name: Buffer(x.shape, init=lambda x=x: x) for name, x in zip(("cos", "sin"), tables, strict=True)}
        table = ("cos", "sin", pairs, rows)
    if positions is not None:
        buffers["positions"] = Buffer(positions.shape, "int32", init=lambda: positions)
        table += ("positions", positions.shape[1])
    how = problem, embedding, table, problem.rotary_dim
    options = {"table_type": table_type, "shape": shape}
    return plan(problem, *(hybrid(*how, **options) if before else (core.attend(*how, **options),)), **buffers)


def inputs_of(problem: Problem, seed: int = 0) -> dict[str, np.ndarray]:
    """Normal q, k and v, float32."""
    rng = np.random.default_rng(seed)
    shapes = (problem.q_shape, problem.kv_shape, problem.kv_shape)
    return {name: rng.standard_normal(shape, np.float32) for name, shape in zip("qkv", shapes, strict=True)}


def tried(plan: Plan, **options: Any) -> Iterator[tuple[Verdict, list[Finding]]]:
    """Verdict and findings of a plan on both inputs, with warps in step and in any order; see `run` for options."""
    for kind, schedule in zip(INPUTS, ("in step", "random"), strict=True):
        case = reference_of(plan.problem, kind)
        report = run(plan, case.inputs, schedule=schedule, **options)
        yield case.compare(torch.from_numpy(report.out)), report.findings
