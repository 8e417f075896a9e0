"""The V8 cores of warpgroups, of warps, and for GPUs without clusters: right for odd shapes, and what they refuse."""

from typing import Any

import numpy as np
import pytest
import torch

from kernels import VERSIONS, Problem, Unsupported, version
from kernels.checking.reference import reference_of
from kernels.constants import SHARED_LIMIT
from kernels.device.wgmma import Product, batch
from kernels.flash.cluster.mma.core import Shape as Warps
from kernels.flash.cluster.portable.core import Shape as Portable
from kernels.flash.cluster.portable.core import choose
from kernels.flash.cluster.wgmma.core import Shape as Groups
from kernels.flash.cluster.wgmma.core import attend
from kernels.runtime.compile import CompileError, assemble, blocks_per_sm, compile_ptx, require_target, resources
from kernels.runtime.emulator import run
from kernels.version import Kernel
from tests.kernels.cluster.plans import CORES, plan_of, tried

# A cluster of blocks, grouped heads that no tile divides.
QUICK = ("wgmma", Problem("rope", 1, 2, 1, seq_q=9, seq_k=150, hdim=260, rotary_dim=198), Groups(3, 8, 128, 1))
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
    ("wgmma", Problem("rope", seq_q=70, hdim=96, rotary_dim=32, causal=True), Groups(2, 32, 64, 1)),
    ("wgmma", Problem("rope", seq_q=37, seq_k=130, hdim=256, rotary_dim=128, causal=True), Groups(2, 24, 128, 2)),
    ("wgmma", Problem("sinusoidal", seq_q=33, hdim=200), Groups(1, 16, 256, 1)),
    ("wgmma", Problem("attention", seq_q=40, hdim=132), Groups(1, 24, 192, 2)),
    ("wgmma", Problem("attention", seq_q=20, seq_k=70, hdim=188), Groups(1, 16, 192, 1)),
    ("wgmma", Problem("rope", seq_q=8, seq_k=70, hdim=700, rotary_dim=100), Groups(11, 8, 64, 1)),
    ("wgmma", Problem("rope", seq_q=20, seq_k=70, hdim=60, rotary_dim=60), Groups(1, 16, 64, 4)),
    # Keys in parts, of which the first queries see one alone; parts of two tiles; streamed parts.
    ("wgmma", Problem("rope", seq_q=70, seq_k=300, hdim=96, rotary_dim=32, causal=True),
     Groups(2, 32, 64, 1, splits=True)),
    ("wgmma", Problem("rope", 1, 4, 2, seq_q=40, seq_k=130, hdim=128, rotary_dim=70),
     Groups(1, 16, 128, 2, splits=True)),
    ("wgmma", Problem("sinusoidal", seq_q=20, seq_k=165, hdim=300), Groups(2, 8, 64, 1, 2, streams=True, splits=True)),
    ("wgmma", Problem("rope", seq_q=40, seq_k=50, hdim=292, rotary_dim=292), Groups(1, 32, 64, 2, 2, streams=True)),
    ("wgmma", Problem("rope", 1, 2, 1, 13, 33, 520, rotary_dim=36, causal=True, q_offset=20),
     Groups(2, 16, 128, 2, 2, streams=True)),
    ("wgmma", Problem("attention", seq_q=64, hdim=60), Groups(1, 64, 128, 2, streams=True)),  # one chunk
]  # fmt: skip


def ptx_of(kernel):
    return compile_ptx(kernel, "sm_75")


# Quick cases of the versions of the other cores are in test_versions.
@pytest.mark.parametrize(
    ("core", "problem", "shape"), [QUICK, *(pytest.param(*case, marks=pytest.mark.deep) for case in CASES)], ids=str
)
def test_core_is_as_near_to_the_reference_as_float32(core: str, problem: Problem, shape: Any) -> None:
    """With nothing found, whatever the order of the warps; that of warpgroups within twice the error of float32."""
    plan = plan_of(CORES[core], problem, shape)
    for verdict, findings in tried(plan, **({"ptx_of": ptx_of} if core == "portable" else {})):
        assert verdict.status == "ok", f"{problem}: {verdict}"
        assert core != "wgmma" or verdict.max_abs_err <= verdict.allowed_abs_err / 2
        assert not findings, [str(finding) for finding in findings]
    if core == "wgmma":
        assert "serialized" not in assemble(compile_ptx(plan.launches[0].kernel), "sm_90")[1]


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


# --- on warpgroups ------------------------------------------------------------------------------------


def test_a_kernel_of_one_architecture_is_compiled_for_no_other() -> None:
    (launch,) = plan_of(CORES["wgmma"], *QUICK[1:]).launches
    ptx = compile_ptx(launch.kernel, "sm_90")
    assert ".target sm_90a" in ptx and compile_ptx(launch.kernel, "sm_90a") == ptx
    assert resources(launch.kernel, "sm_90").spill_bytes == 0 and blocks_per_sm(launch, "sm_90") >= 1
    for target in ("sm_89", "sm_100"):
        with pytest.raises(CompileError, match=rf"uses instructions of sm_90a alone; {target} has"):
            compile_ptx(launch.kernel, target)
        with pytest.raises(CompileError, match=f"sm_90a alone; {target} has"):
            assemble(ptx, target)


def test_batch_refuses_what_the_instruction_lacks() -> None:
    with pytest.raises(ValueError, match="n is 12; it must be a multiple of 8 up to 256"):
        batch(12, [Product(0, 0, 0)])


@pytest.mark.deep
def test_launch_before_embeds_keys_once() -> None:
    problem = Problem("rope", heads=4, kv_heads=2, seq_q=40, seq_k=130, hdim=128, rotary_dim=70)
    case, moved = reference_of(problem, "uniform"), 2 * 130 * 128 * 4 // 32
    report = run(VERSIONS["rope_hybrid_v8"](problem, "sm_90"), case.inputs)
    assert case.compare(torch.from_numpy(report.out)).status == "ok" and not report.findings
    first, second, *_ = (each.counts for each in report.launches)
    assert first["global.read.sectors.k"] == first["global.write.sectors.k_embedded"] == moved
    assert "global.read.sectors.k" not in second


def test_attention_needs_both_its_proxy_fences() -> None:
    plan, case = plan_of(CORES["wgmma"], *QUICK[1:]), reference_of(QUICK[1], "uniform")
    fence = "fence.proxy.async.shared::cta;"

    def places_without(which: int) -> set[tuple[str, str]]:
        def ptx_of(kernel: Kernel) -> str:
            parts = compile_ptx(kernel).split(fence)
            assert len(parts) == 3
            return parts[0] + ("" if which == 0 else fence) + parts[1] + ("" if which == 1 else fence) + parts[2]

        return {(finding.kind, finding.place) for finding in run(plan, case.inputs, ptx_of=ptx_of).findings}

    assert places_without(0) == {("unfenced", "query")}
    assert places_without(1) == {("unfenced", "weights")}


@pytest.mark.parametrize(
    "problem, shape, message",
    [
        (Problem("attention", hdim=200), Groups(1, 8, 128, 1), "hdim is 200; a cluster of this shape holds 128 dims"),
        (Problem("attention", hdim=256), Groups(1, 64, 256, 2), "needs .* B of shared memory"),
        (
            Problem("attention", 1, 2, seq_q=1, seq_k=2**25, hdim=128),
            None,
            "a stride is 4,294,967,296 elements; the kernels take 4,294,967,295",
        ),
    ],
)
def test_problems_that_do_not_fit_are_refused(problem: Problem, shape: Groups | None, message: str) -> None:
    with pytest.raises(Unsupported, match=message):
        attend(problem, shape=shape)


def test_a_card_without_clusters_or_wgmma_refuses_before_it_compiles() -> None:
    few, many = Problem("rope", heads=4, hdim=512, rotary_dim=128), Problem("rope", 8, 16, hdim=128, rotary_dim=64)
    (clustered,), (alone,) = (version("rope_v8")(problem).launches for problem in (few, many))
    assert clustered.cluster > 1 and alone.cluster == 1
    with pytest.raises(Unsupported, match=r"clusters of 8 blocks need compute capability 9\.0, this GPU has sm_89"):
        require_target(clustered, "sm_89")
    for target in ("sm_89", "sm_120"):
        with pytest.raises(Unsupported, match=f"uses instructions of sm_90a alone, this GPU has {target}"):
            require_target(alone, target)
    require_target(alone, "sm_90")
