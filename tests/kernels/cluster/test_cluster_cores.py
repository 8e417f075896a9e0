"""The V8 cores of warps, and for GPUs without clusters: right for odd shapes. That of warpgroups: see test_wgmma."""

import numpy as np
import pytest

from kernels import Problem, Unsupported, version
from kernels.checking.reference import reference_of
from kernels.constants import SHARED_LIMIT
from kernels.flash.cluster.mma.core import Shape as Warps
from kernels.flash.cluster.portable.core import Shape as Portable
from kernels.flash.cluster.portable.core import choose
from kernels.runtime.compile import blocks_per_sm, compile_ptx, require_target, resources
from kernels.runtime.emulator import run
from tests.kernels.cluster.plans import CORES, plan_of, tried

MAIN = Problem("rope", heads=4, seq_q=64, hdim=2048, rotary_dim=128)
MANY = Problem("rope", batch=8, heads=16, seq_q=64, hdim=128, rotary_dim=64)
SMALL = Portable(4, 36, 8, 8, 1, 64)
GROUPED = {"batch": 2, "heads": 2, "kv_heads": 1, "seq_q": 5, "seq_k": 70, "causal": True}
CASES = [
    # sets of threads that take turns at a row: 2, 2, 4, 1, 1
    ("mma", Problem("rope", seq_q=16, hdim=512, rotary_dim=512), Warps(4, 16, 16, 128, 2, 4)),
    ("mma", Problem("rope", seq_q=20, seq_k=21, hdim=256, rotary_dim=70), Warps(2, 16, 16, 128, 2, 4)),
    ("mma", Problem("rope", seq_q=9, seq_k=11, hdim=260, rotary_dim=200, causal=True), Warps(2, 16, 16, 256, 2, 8)),
    ("mma", Problem("rope", 1, 2, 1, seq_q=37, seq_k=70, hdim=128, rotary_dim=70), Warps(2, 32, 32, 64, 4, 1)),
    ("mma", Problem("sinusoidal", seq_q=20, seq_k=50, hdim=96, q_offset=0), Warps(1, 32, 64, 96, 4, 1)),
    # panels of a warp: 5, 11, 3; blocks that own no row of the scores; warps that have no dim
    ("mma", Problem("attention", seq_q=3, seq_k=19, hdim=316), Warps(2, 16, 16, 160, 1, 1)),
    ("mma", Problem("attention", seq_q=5, seq_k=7, hdim=352, q_offset=1, causal=True), Warps(1, 16, 16, 352, 1, 1)),
    ("mma", Problem("rope", seq_q=40, seq_k=70, hdim=120, rotary_dim=30), Warps(3, 48, 64, 64, 4, 2)),
    # several tiles of 8, 4 and 16 queries; all of them staged or slices; outputs in registers, of one thread or joined,
    # or in global memory
    ("portable", Problem("rope", **GROUPED, hdim=36, rotary_dim=34), SMALL),
    ("portable", Problem("rope", **GROUPED, hdim=2048, rotary_dim=38), choose(MAIN)),
    ("portable", Problem("rope", seq_q=2, seq_k=65, hdim=36, rotary_dim=0), SMALL),
    ("portable", Problem("sinusoidal", heads=2, seq_q=7, seq_k=33, hdim=36, q_offset=0), SMALL),
    ("portable", Problem("rope", 1, 1, 1, 9, 21, 1100, 600, causal=True, q_offset=3), Portable(8, 1100, 4, 32, 2)),
    ("portable", Problem("rope", heads=2, seq_q=20, seq_k=140, hdim=128, rotary_dim=128), choose(MANY)),
]


def ptx_of(kernel):
    return compile_ptx(kernel, "sm_75")


@pytest.mark.deep  # quick cases of the versions of both cores are in test_versions
@pytest.mark.parametrize(("core", "problem", "shape"), CASES)
def test_core_is_as_near_to_the_reference_as_float32(core: str, problem: Problem, shape: Warps | Portable) -> None:
    """With nothing found, whatever the order of the warps."""
    how = {"ptx_of": ptx_of} if core == "portable" else {}
    for verdict, findings in tried(plan_of(CORES[core], problem, shape), **how):
        assert verdict.status == "ok", f"{problem}: {verdict}"
        assert not findings, [str(finding) for finding in findings]


@pytest.mark.deep
def test_single_key_returns_its_value() -> None:
    problem = Problem("rope", heads=2, seq_q=3, seq_k=1, hdim=36, rotary_dim=36, q_offset=5)
    inputs = reference_of(problem, "sharp").inputs
    out = run(plan_of(CORES["portable"], problem, SMALL), inputs, ptx_of).out
    assert np.array_equal(out, np.broadcast_to(inputs["v"], problem.q_shape))


@pytest.mark.deep
@pytest.mark.parametrize("problem", [MAIN, MANY], ids=str)
def test_portable_launch_is_one_for_any_gpu(problem: Problem) -> None:
    (launch,) = version("rope_v8_portable")(problem).launches
    assert launch.cluster == 1 and launch.shared_bytes <= SHARED_LIMIT and launch.kernel.architecture is None
    require_target(launch, "sm_75")
    used = resources(launch.kernel, "sm_75")
    assert (used.spill_bytes, used.stack_bytes, used.static_shared_bytes) == (0, 0, 0)
    assert blocks_per_sm(launch, "sm_75") >= 1


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"hdim": 66, "rotary_dim": 64}, "hdim is 66; it must be a multiple of 4"),
        ({"seq_q": 8, "seq_k": 4}, "q_offset is -4; it must be 0 or more"),
        ({"seq_q": 2, "seq_k": 1, "hdim": 64, "q_offset": 2**20 - 1}, "angles are exact up to 1,048,576"),
    ],
)
def test_portable_core_names_what_it_refuses(fields: dict, message: str) -> None:
    with pytest.raises(Unsupported, match=message):
        version("rope_v8_portable")(Problem("rope", **fields))
