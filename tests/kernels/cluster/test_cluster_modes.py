"""RoPE as programs ask for it, on the three V8 cores, against float64: pairs, tables, positions, and late ones."""

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from ops_reference import expected, rounding

from kernels import Problem
from kernels.constants import MOST_POSITIONS
from kernels.flash import cluster
from kernels.flash.call import request_of
from kernels.flash.cluster import call as planning
from kernels.flash.cluster.launch import strides
from kernels.flash.cluster.mma import core as mma
from kernels.flash.cluster.portable import core as portable
from kernels.flash.cluster.rope import rates_buffer
from kernels.flash.cluster.wgmma import core as wgmma
from kernels.runtime.emulator import run
from kernels.version import Buffer, Plan
from tests.kernels.cluster.plans import CORES, RAGGED, ROWS, inputs_of, plan_in_mode, tables_of
from tests.sampling import swept

# [batch, heads, seq, hdim] of each tensor, as the shape that memory has and the elements from one to the next of the
# first three: q as a model's [batch, seq, heads, hdim], k as the first rows of a cache, v packed with another tensor,
# out with gaps between its rows.
LAYOUTS: dict[str, Any] = {
    "q": lambda b, h, s, d: ((b, s, h, d), (s * h * d, d, h * d)),
    "k": lambda b, h, s, d: ((b, h, s + 7, d), (h * (s + 7) * d, (s + 7) * d, d)),
    "v": lambda b, h, s, d: ((b, s, h, 2 * d), (2 * s * h * d, 2 * d, 2 * h * d)),
    "out": lambda b, h, s, d: ((b, s, h, d + 4), (s * h * (d + 4), d + 4, h * (d + 4))),
}


def view_of(x: np.ndarray, shape: tuple[int, ...], strides: tuple[int, ...]) -> np.ndarray:
    return np.lib.stride_tricks.as_strided(x, shape, [4 * stride for stride in (*strides, 1)])


def run_apart(plan: Plan, inputs: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray, list[Any]]:
    """out as [batch, seq, heads, hdim], what lies between its rows, and the findings of a plan.

    Tensors lie as in LAYOUTS, with NaN elsewhere.
    """
    buffers, given, steps = dict(plan.buffers), {}, []
    for name, layout in LAYOUTS.items():
        shape = plan.buffers[name].shape
        held, strides = layout(*shape)
        buffers[name] = Buffer(held)
        if name in inputs:
            given[name] = np.full(held, np.nan, np.float32)
            view_of(given[name], shape, strides)[:] = inputs[name]
    for launch in plan.launches:
        args = list(launch.args)
        for name, layout in LAYOUTS.items():
            if name in args and isinstance(args[(at := args.index(name) + 1)], int):
                args[at : at + 3] = layout(*plan.buffers[name].shape)[1]
        steps.append(replace(launch, args=tuple(args)))
    report = run(replace(plan, buffers=buffers, steps=tuple(steps)), given)
    hdim = plan.problem.hdim
    return report.out[..., :hdim], report.out[..., hdim:], report.findings


def turned_nowhere(problem: Problem, positions: np.ndarray, rows: int) -> np.ndarray:
    """bool[batch, seq_q]: the queries that stand at no position, or see a key that does."""
    outside = (positions < 0) | (positions >= rows)
    queries = problem.q_offset + np.arange(problem.seq_q)
    visible = np.arange(problem.seq_k) <= (queries[:, None] if problem.causal else problem.seq_k)
    return outside[:, queries] | (outside[:, None, : problem.seq_k] & visible).any(-1)


def check_mode(
    core: Any, problem: Problem, half_split: bool, tabled: bool, placed: bool, shape: Any = None, before: bool = False
) -> None:
    """As near to float64 as float32 arithmetic is; NaN where a position takes part that is none, and nowhere else.

    Tensors have strides of their own, and nothing outside of them is read or written.
    """
    tables, rows = (tables_of(problem), ROWS) if tabled else (None, MOST_POSITIONS)
    positions = None
    places = max(problem.seq_k, problem.q_offset + problem.seq_q)
    nan = np.zeros((problem.batch, problem.seq_q), bool)
    if placed:
        positions = np.random.default_rng(1).integers(0, rows, (problem.batch, places), np.int32)
        positions[0, :2] = 0, rows - 1
        bad = problem.q_offset + problem.seq_q // 2  # queries behind it see it as a key, where it is one
        positions[0, bad], positions[1, bad + 2] = -1, rows
        nan = turned_nowhere(problem, positions, rows)
        assert 0 < nan[0].sum() < problem.seq_q and 0 < nan[1].sum() < problem.seq_q
    inputs = inputs_of(problem)
    plan = plan_in_mode(core, problem, half_split, tables, positions, shape, before)
    out, between, findings = run_apart(plan, inputs)
    assert not findings, [str(finding) for finding in findings]
    assert np.isnan(between).all()

    q, k, v = (torch.from_numpy(inputs[name]) for name in "qkv")
    exact = expected(
        q, k, v, rotary_dim=problem.rotary_dim, interleaved=not half_split, causal=problem.causal,
        cos=torch.from_numpy(tables[0]) if tables else None, sin=torch.from_numpy(tables[1]) if tables else None,
        positions=torch.from_numpy(positions.clip(0, rows - 1)) if placed else None, q_offset=problem.q_offset,
    )  # fmt: skip
    assert np.isnan(out[nan]).all()
    error = np.abs(out - exact.swapaxes(1, 2))[~nan].max()
    assert error <= rounding(q, k, v)


MODES = list(product(CORES, (False, True), (False, True), (False, True)))  # half-split, tables, positions


QUICK = [("wgmma", True, False, True)]  # the others: on the shape of their version, in test_versions
OTHER_MODES = swept([mode for mode in MODES if mode not in QUICK], 0, 8, by=lambda case: case[0])


@pytest.mark.parametrize("core, half_split, tabled, placed", [*QUICK, *OTHER_MODES])
def test_every_mode(core: str, half_split: bool, tabled: bool, placed: bool) -> None:
    check_mode(CORES[core], RAGGED, half_split, tabled, placed)


@pytest.mark.parametrize("half_split, tabled, placed", swept(product(*[(False, True)] * 3), 0, 3))
def test_keys_that_a_launch_before_embeds(half_split: bool, tabled: bool, placed: bool) -> None:
    check_mode(wgmma, RAGGED, half_split, tabled, placed, wgmma.Shape(2, 8, 128, 1), True)


@pytest.mark.parametrize("half_split, before", swept(product(*[(False, True)] * 2), 0, 1))
def test_keys_that_are_split(half_split: bool, before: bool) -> None:
    check_mode(wgmma, RAGGED, half_split, True, True, wgmma.Shape(2, 8, 128, 1, splits=True), before)


@pytest.mark.parametrize("half_split, tabled, placed", swept(product(*[(False, True)] * 3), 0, 2))
def test_head_dims_that_are_streamed(half_split: bool, tabled: bool, placed: bool) -> None:
    shape = wgmma.Shape(2, 16, 64, 1, 2, streams=True)
    check_mode(wgmma, replace(RAGGED, seq_k=60), half_split, tabled, placed, shape)


OTHERS = [
    # all dims turn; none behind them; a query that stands behind all keys stands at no position
    (wgmma, replace(RAGGED, hdim=64, rotary_dim=64, causal=False, q_offset=70), wgmma.Shape(1, 16, 64, 1)),
    # dims behind the pairs lie together in 32, and go through the slices of a cluster
    (wgmma, replace(RAGGED, hdim=256, rotary_dim=64), wgmma.Shape(2, 16, 128, 2)),
    (wgmma, replace(RAGGED, hdim=256, rotary_dim=40), wgmma.Shape(2, 8, 128, 1)),
    (wgmma, replace(RAGGED, hdim=192, rotary_dim=72), wgmma.Shape(3, 8, 64, 1)),
    (mma, replace(RAGGED, hdim=96, rotary_dim=64), mma.Shape(1, 16, 32, 96, 2, 4)),
    (mma, replace(RAGGED, hdim=264, rotary_dim=264, q_offset=70, causal=False), None),
    (portable, replace(RAGGED, hdim=40, rotary_dim=8), portable.Shape(4, 40, 8, 8, 1, 64)),
    (portable, replace(RAGGED, hdim=1104, rotary_dim=600), portable.Shape(8, 1104, 4, 32, 2)),
]


@pytest.mark.parametrize("core, problem, shape", swept(OTHERS, 0, 5, by=lambda case: case[0]))
def test_halves_in_other_shapes(core: Any, problem: Problem, shape: Any) -> None:
    check_mode(core, problem, True, False, True, shape)


@pytest.mark.deep
@pytest.mark.parametrize("half_split", [False, True])
def test_op_embeds_keys_at_their_own_positions(monkeypatch: pytest.MonkeyPatch, half_split: bool) -> None:
    """Wherever the queries are: by the kernels, with the arguments that the op gives them."""
    problem = Problem("rope", 2, 4, 2, 9, 70, hdim=64, rotary_dim=64)
    monkeypatch.setattr(planning, "fastest", lambda *_: (True, 0.0))
    call, inputs = planning.cluster_call(request_of(problem, "sm_90", half_split)), inputs_of(problem)
    values = {"seq_k": problem.seq_k, "q_offset": problem.q_offset, "scale": problem.softmax_scale}
    for name in ("q", "k", "v", "out"):
        values |= dict(zip((f"{name}_batch", f"{name}_head", f"{name}_row"), strides(problem, name), strict=True))
    launches = [replace(each, args=tuple(values.get(arg, arg) for arg in each.args)) for each in call.launches((), 70)]
    assert launches[0].kernel.name.startswith("embed_rows")
    report = run(cluster.plan(problem, *launches, rates=rates_buffer(64)), inputs)
    q, k, v = (torch.from_numpy(inputs[name]) for name in "qkv")
    exact = expected(q, k, v, rotary_dim=64, interleaved=not half_split, q_offset=problem.q_offset)
    assert np.abs(report.out.reshape(exact.shape) - exact).max() <= rounding(q, k, v)
