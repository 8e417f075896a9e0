"""The V8 core of warpgroups: values, what its products need, and where it is refused."""

import pytest
import torch

from kernels import VERSIONS, Problem, Unsupported, version
from kernels.checking.reference import reference_of
from kernels.device.wgmma import Product, batch
from kernels.flash.cluster.wgmma import core as wgmma
from kernels.flash.cluster.wgmma.core import Shape, attend
from kernels.runtime import compile
from kernels.runtime.compile import CompileError, assemble, blocks_per_sm, compile_ptx, resources
from kernels.runtime.emulator import run
from kernels.version import Kernel
from tests.kernels.cluster.plans import plan_of, tried


def serialised(kernel: Kernel) -> bool:
    return "serialized" in assemble(compile_ptx(kernel), "sm_90")[1]


def test_a_kernel_of_one_architecture_is_compiled_for_no_other() -> None:
    (launch,) = plan_of(wgmma, *QUICK).launches
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


CASES = [
    (Problem("rope", seq_q=70, hdim=96, rotary_dim=32, causal=True), Shape(2, 32, 64, 1)),
    (Problem("rope", seq_q=37, seq_k=130, hdim=256, rotary_dim=128, causal=True), Shape(2, 24, 128, 2)),
    (Problem("rope", heads=2, kv_heads=1, seq_q=9, seq_k=150, hdim=260, rotary_dim=198), Shape(3, 8, 128, 1)),
    (Problem("sinusoidal", seq_q=33, hdim=200), Shape(1, 16, 256, 1)),
    (Problem("attention", seq_q=40, hdim=132), Shape(1, 24, 192, 2)),
    (Problem("attention", seq_q=20, seq_k=70, hdim=188), Shape(1, 16, 192, 1)),
    (Problem("rope", seq_q=8, seq_k=70, hdim=700, rotary_dim=100), Shape(11, 8, 64, 1)),
    (Problem("rope", seq_q=20, seq_k=70, hdim=60, rotary_dim=60), Shape(1, 16, 64, 4)),
    # Keys in parts, of which the first queries see one alone; parts of two tiles; streamed parts.
    (Problem("rope", seq_q=70, seq_k=300, hdim=96, rotary_dim=32, causal=True), Shape(2, 32, 64, 1, splits=True)),
    (
        Problem("rope", heads=4, kv_heads=2, seq_q=40, seq_k=130, hdim=128, rotary_dim=70),
        Shape(1, 16, 128, 2, splits=True),
    ),
    (Problem("sinusoidal", seq_q=20, seq_k=165, hdim=300), Shape(2, 8, 64, 1, 2, streams=True, splits=True)),
    (Problem("rope", seq_q=40, seq_k=50, hdim=292, rotary_dim=292), Shape(1, 32, 64, 2, 2, streams=True)),
    (
        Problem("rope", heads=2, kv_heads=1, seq_q=13, seq_k=33, hdim=520, rotary_dim=36, causal=True, q_offset=20),
        Shape(2, 16, 128, 2, 2, streams=True),
    ),
    (Problem("attention", seq_q=64, hdim=60), Shape(1, 64, 128, 2, streams=True)),  # one chunk
]


QUICK = CASES[2]  # a cluster of blocks, grouped heads that no tile divides
PARAMS = [pytest.param(*case, marks=() if case == QUICK else pytest.mark.deep) for case in CASES]


@pytest.mark.parametrize("problem, shape", PARAMS, ids=str)
def test_attention(problem: Problem, shape: Shape) -> None:
    """Within twice the error of float32 attention, with nothing found, whatever the order of the warps."""
    plan = plan_of(wgmma, problem, shape)
    for verdict, findings in tried(plan):
        assert verdict.status == "ok" and verdict.max_abs_err <= verdict.allowed_abs_err / 2
        assert not findings
    assert not serialised(plan.launches[0].kernel)


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
    problem, shape = CASES[2]
    plan, case = plan_of(wgmma, problem, shape), reference_of(problem, "uniform")
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
        (Problem("attention", hdim=200), Shape(1, 8, 128, 1), "hdim is 200; a cluster of this shape holds 128 dims"),
        (Problem("attention", hdim=256), Shape(1, 64, 256, 2), "needs .* B of shared memory"),
        (
            Problem("attention", 1, 2, seq_q=1, seq_k=2**25, hdim=128),
            None,
            "a stride is 4,294,967,296 elements; the kernels take 4,294,967,295",
        ),
    ],
)
def test_problems_that_do_not_fit_are_refused(problem: Problem, shape: Shape | None, message: str) -> None:
    with pytest.raises(Unsupported, match=message):
        attend(problem, shape=shape)


def test_a_card_without_clusters_or_wgmma_refuses_before_it_compiles() -> None:
    few, many = Problem("rope", heads=4, hdim=512, rotary_dim=128), Problem("rope", 8, 16, hdim=128, rotary_dim=64)
    (clustered,), (alone,) = (version("rope_v8")(problem).launches for problem in (few, many))
    assert clustered.cluster > 1 and alone.cluster == 1
    with pytest.raises(Unsupported, match=r"clusters of 8 blocks need compute capability 9\.0, this GPU has sm_89"):
        compile.require_target(clustered, "sm_89")
    for target in ("sm_89", "sm_120"):
        with pytest.raises(Unsupported, match=f"uses instructions of sm_90a alone, this GPU has {target}"):
            compile.require_target(alone, target)
    compile.require_target(alone, "sm_90")
