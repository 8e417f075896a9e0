"""The V8 core for GPUs without clusters: right for odd shapes, one small launch, every byte read once a tile."""

from typing import Any

import numpy as np
import pytest

from kernels import Problem, Unsupported, version
from kernels.checking.reference import reference_of
from kernels.constants import SHARED_LIMIT
from kernels.flash.cluster.portable import core as portable
from kernels.flash.cluster.portable.core import Shape, choose
from kernels.runtime.compile import blocks_per_sm, compile_ptx, require_target, resources
from kernels.runtime.emulator import run
from kernels.version import Launch
from tests.kernels.cluster.plans import plan_of, tried

MAIN = Problem("rope", heads=4, seq_q=64, hdim=2048, rotary_dim=128)


def ptx_for(target: str) -> Any:
    return lambda kernel: compile_ptx(kernel, target)


MANY = Problem("rope", batch=8, heads=16, seq_q=64, hdim=128, rotary_dim=64)
SMALL = Shape(4, 36, 8, 8, 1, 64)
# Shapes of which a small problem has several tiles: 4, 8 and 16 queries; all of them staged or slices; outputs in
# registers, of one thread or joined, or in global memory.
CASES = [
    (
        Problem("rope", batch=2, heads=2, kv_heads=1, seq_q=5, seq_k=70, hdim=2048, rotary_dim=38, causal=True),
        choose(MAIN),
    ),
    (Problem("rope", batch=2, heads=2, kv_heads=1, seq_q=5, seq_k=70, hdim=36, rotary_dim=34, causal=True), SMALL),
    (Problem("rope", seq_q=2, seq_k=65, hdim=36, rotary_dim=0), SMALL),
    (Problem("sinusoidal", heads=2, seq_q=7, seq_k=33, hdim=36, q_offset=0), SMALL),
    (Problem("rope", seq_q=9, seq_k=21, hdim=1100, rotary_dim=600, causal=True, q_offset=3), Shape(8, 1100, 4, 32, 2)),
    (Problem("rope", heads=2, seq_q=20, seq_k=140, hdim=128, rotary_dim=128), choose(MANY)),
]


QUICK = (1,)  # several tiles of grouped heads, under a mask
TARGETS = ("sm_75", "sm_75", "sm_75", "sm_89", "sm_89", "sm_75")
PARAMS = [pytest.param(*case, marks=() if case[0] in QUICK else pytest.mark.deep) for case in enumerate(TARGETS)]


@pytest.mark.parametrize("case, target", PARAMS)
def test_attention(case: int, target: str) -> None:
    """As near to the reference as float32 attention, with nothing found, whatever the order of the warps."""
    problem, shape = CASES[case]
    for verdict, findings in tried(plan_of(portable, problem, shape), ptx_of=ptx_for(target)):
        assert verdict.status == "ok", f"{problem}: {verdict}"
        assert not findings, [str(finding) for finding in findings]


def test_single_key_returns_its_value() -> None:
    problem = Problem("rope", heads=2, seq_q=3, seq_k=1, hdim=36, rotary_dim=36, q_offset=5)
    inputs = reference_of(problem, "sharp").inputs
    out = run(plan_of(portable, problem, SMALL), inputs, ptx_for("sm_75")).out
    assert np.array_equal(out, np.broadcast_to(inputs["v"], problem.q_shape))


@pytest.mark.deep
def test_a_tile_of_queries_reads_k_and_v_once() -> None:
    problem = Problem("attention", batch=2, heads=2, kv_heads=1, seq_q=8, seq_k=24, hdim=40, q_offset=0)
    (report,) = run(
        plan_of(portable, problem, Shape(4, 40, 8, 8, 1, 64)), reference_of(problem, "uniform").inputs
    ).launches
    tiles = problem.batch * problem.heads * 2
    for name in "kv":
        assert report.counts[f"global.read.sectors.{name}"] == tiles * problem.seq_k * problem.hdim * 4 // 32


@pytest.mark.deep
@pytest.mark.parametrize("problem", [MAIN, MANY], ids=str)
def test_the_launch_is_one_for_any_gpu(problem: Problem) -> None:
    (launch,) = version("rope_v8_portable")(problem).steps
    assert isinstance(launch, Launch)
    assert launch.cluster == 1 and launch.shared_bytes <= SHARED_LIMIT and launch.kernel.architecture is None
    require_target(launch, "sm_75")
    used = resources(launch.kernel, "sm_75")
    assert (used.spill_bytes, used.stack_bytes, used.static_shared_bytes) == (0, 0, 0)
    assert blocks_per_sm(launch, "sm_75") >= 1
    assert ".f64" not in compile_ptx(launch.kernel, "sm_75")


@pytest.mark.parametrize(
    "problem, message",
    [
        (Problem("rope", hdim=66, rotary_dim=64), "hdim is 66; it must be a multiple of 4"),
        (Problem("rope", seq_q=8, seq_k=4), "q_offset is -4; it must be 0 or more"),
        (
            Problem("rope", seq_q=2, seq_k=1, hdim=64, q_offset=2**20 - 1),
            "positions go up to 1,048,577; angles are exact up to 1,048,576",
        ),
    ],
)
def test_portable_core_names_what_it_refuses(problem: Problem, message: str) -> None:
    with pytest.raises(Unsupported, match=message):
        version("rope_v8_portable")(problem)
