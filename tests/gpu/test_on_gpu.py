"""What only a card can show: the driver agrees with the emulator and the compiler, and every version is right.

`make test-gpu`; its log from each measured GPU lies beside the measurements.
"""

from __future__ import annotations

import ctypes
import math
import re

import numpy as np
import pytest
import torch
from instruction_cases import CASES, COUNT, THREADS, Case, kernel_text, mismatch

from kernels import VERSIONS, Plan, Problem, Unsupported
from kernels.checking.check import OWN, allowance, differences, problems
from kernels.checking.reference import INPUTS, Reference, reference_of
from kernels.runtime import compile as compiler
from kernels.runtime import emulator
from kernels.runtime.gpu import Program, device_target, driver, load_ptx, prepare_launch

pytestmark = pytest.mark.gpu

VERSION_CASES = [pytest.param(v, problem, id=f"{v.id}-{problem}") for v in OWN for problem in problems(v)]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_instruction_on_the_card_is_what_the_emulator_computes(case: Case) -> None:
    operands = [torch.from_numpy(array.view(np.uint8).copy()).cuda() for array in case.operands()]
    out = torch.zeros(COUNT * case.output.itemsize, dtype=torch.uint8, device="cuda")
    pointers = [tensor.data_ptr() for tensor in (*operands, out)]
    function = load_ptx(kernel_text(case, device_target()))
    prepare_launch(function, (COUNT // THREADS,), (THREADS,), pointers, [ctypes.c_uint64] * len(pointers))()
    torch.cuda.synchronize()
    result = out.cpu().numpy().view(case.output)
    wrong = mismatch(case, result)
    shown = [([x[i] for x in case.operands()], result[i]) for i in wrong[:3]]
    assert not len(wrong), f"{len(wrong)} of {COUNT} differ: {shown}"


# The special-function unit's errors, which the emulator does not make: PTX ISA, sin.approx up to 100 pi; and of a power
# of 10,000 made of lg2.approx and ex2.approx, 3 and 2 units in the last place (CUDA C++ Programming Guide, intrinsics).
SINCOS_ERROR, POWER_ERROR = 2.0**-14.7, 2.0**-18


def approximation(plan: Plan, case: Reference) -> float:
    """How far the card may be from the emulator because its sines, cosines and fast-math powers are less accurate.

    An angle's error moves each embedded element by at most that much times its own size plus 1, so a score by at most
    the products of the sizes, in q and in k; and an output by twice the score's error times the largest value.
    """
    kernels = {launch.kernel for launch in plan.launches}
    if not any("sin.approx" in compiler.compile_ptx(kernel) for kernel in kernels):
        return 0.0
    angle = SINCOS_ERROR + plan.problem.seq_k * POWER_ERROR * any(kernel.fast_math for kernel in kernels)
    q, k, v = (np.abs(case.inputs[name].astype(np.float64)) for name in "qkv")
    sizes = (q + 1) @ (k + 1).swapaxes(-1, -2)
    return float(2 * v.max() * 4 * angle * plan.problem.softmax_scale * sizes.max())


def any_order(plan: Plan, case: Reference) -> float:
    """How far an output may be off because threads add their weights by atomics, in the order that the card chooses.

    Each of n - 1 additions rounds by at most 2^-24 of the whole sum, by which the output is divided.
    """
    ptx = (compiler.compile_ptx(launch.kernel) for launch in plan.launches)
    if not any(re.search(r"\b(atom|red)\S*\.add\.f32", text) for text in ptx):
        return 0.0
    addends = min(plan.problem.seq_k, max(math.prod(launch.block) for launch in plan.launches))
    return (addends - 1) * 2.0**-24 * float(case.expected.abs().max())


@pytest.mark.parametrize(("version", "problem"), VERSION_CASES)
def test_version_has_its_declared_status_and_the_emulators_output(version, problem: Problem) -> None:
    plan = version(problem, device_target())
    for kind in INPUTS:
        case = reference_of(problem, kind, "cuda")
        result = Program(plan, case.inputs).output()
        out = result.cpu().numpy()
        emulated = emulator.run(plan, case.inputs, schedule="in step").out
        approximate = approximation(plan, case)
        slack = approximate + any_order(plan, case)
        racing = any(hazard.kind == "race" and hazard.place == "scores" for hazard in plan.hazards)
        if plan.unspecified:
            out = np.where(np.isnan(emulated), np.nan, out)
        else:
            verdict = case.compare(result)
            if racing and plan.expected == "ok" and verdict.status == "wrong":
                continue  # the race shows, as it may
            near = slack > 0 and verdict.nan_share == 0 and verdict.max_abs_err <= case.allowed_abs_err + slack
            assert verdict.status == plan.expected or (plan.expected == "ok" and near), verdict
        assert np.array_equal(np.isnan(out), np.isnan(emulated))
        if racing:
            continue  # which of the racing stores lasts is the card's choice
        if plan.expected == "wrong" and not approximate:
            assert not differences(version, problem, case, out)
        # Each is within the allowance of the same values.
        difference = np.abs(out.astype(np.float64) - emulated.astype(np.float64))
        assert not np.any(difference > 2 * allowance(version, problem, case) + slack)


@pytest.mark.parametrize("version", OWN, ids=lambda version: version.id)
def test_blocks_per_sm_are_the_drivers(version) -> None:
    for launch in (launch for problem in problems(version) for launch in version(problem, device_target()).launches):
        function = load_ptx(compiler.compile_ptx(launch.kernel, device_target()))
        limit = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        assert driver.cuFuncSetAttribute(function, limit, launch.dynamic_bytes)[0] == driver.CUresult.CUDA_SUCCESS
        code, blocks = driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(
            function, int(np.prod(launch.block)), launch.dynamic_bytes
        )
        assert code == driver.CUresult.CUDA_SUCCESS
        assert blocks == compiler.blocks_per_sm(launch, device_target())


SHARED_PTX = """.version 8.0
.target sm_90
.address_size 64
.extern .shared .align 16 .b8 dynamic[];
.visible .entry touch(.param .u64 p_out, .param .u32 p_last) {
  .reg .b64 %w; .reg .b32 %r<4>; .reg .f32 %f;
  ld.param.u64 %w, [p_out]; ld.param.u32 %r0, [p_last];
  mov.u32 %r1, dynamic; add.u32 %r1, %r1, %r0;
  st.shared.b32 [%r1], %r0; ld.shared.b32 %r2, [%r1]; st.global.b32 [%w], %r2; ret;
}"""

CLUSTER_PTX = """.version 8.0
.target sm_90
.address_size 64
.shared .align 4 .b8 word[4];
.visible .entry swap(.param .u64 p_out) {
  .reg .b64 %w<4>; .reg .b32 %r<8>;
  ld.param.u64 %w0, [p_out];
  mov.u32 %r0, %cluster_ctarank; mov.u32 %r1, word; st.shared.b32 [%r1], %r0;
  barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;
  xor.b32 %r2, %r0, 1; mapa.shared::cluster.u32 %r3, %r1, %r2; ld.shared::cluster.b32 %r4, [%r3];
  mov.u32 %r5, %ctaid.x; mul.wide.u32 %w1, %r5, 4; add.s64 %w2, %w0, %w1; st.global.b32 [%w2], %r4;
  barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned; ret;
}"""


def test_a_block_gets_more_than_48_kb_of_shared_memory() -> None:
    out = torch.zeros(1, dtype=torch.int32, device="cuda")
    types = (ctypes.c_uint64, ctypes.c_uint32)
    nbytes = 96 * 1024
    prepare_launch(load_ptx(SHARED_PTX), (1,), (1,), (out.data_ptr(), nbytes - 4), types, nbytes)()
    assert int(out) == nbytes - 4
    with pytest.raises(Unsupported, match=r"10,000,000 B .* this GPU has [\d,]+ B"):
        prepare_launch(load_ptx(SHARED_PTX), (1,), (1,), (0, 0), types, 10_000_000)


def test_blocks_of_a_cluster_read_each_others_shared_memory() -> None:
    out = torch.full((4,), -1, dtype=torch.int32, device="cuda")
    prepare_launch(load_ptx(CLUSTER_PTX), (4,), (1,), (out.data_ptr(),), (ctypes.c_uint64,), cluster=2)()
    assert out.tolist() == [1, 0, 1, 0]
    with pytest.raises(Unsupported, match=r"clusters of 64 blocks, this GPU takes clusters of up to \d+"):
        prepare_launch(load_ptx(CLUSTER_PTX), (64,), (1,), (out.data_ptr(),), (ctypes.c_uint64,), cluster=64)


def test_launches_go_to_torchs_current_stream_and_into_graphs() -> None:
    version = VERSIONS["attention_online_fixed"]
    problem = Problem("attention", seq_q=64, hdim=64)
    case = reference_of(problem, "sharp", "cuda")
    program = Program(version(problem, device_target()), case.inputs)
    program.launch()
    program.buffers[0, "out"].fill_(float("nan"))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        program.launch()
    torch.cuda.synchronize()
    assert bool(torch.isnan(program.buffers[0, "out"]).all()), "capturing must not run anything"
    graph.replay()
    assert case.compare(program.buffers[0, "out"]).status == "ok"
