"""Controls in CUDA C++ launch what their ports launch, and compute what these compute."""

from dataclasses import replace
from itertools import product

import pytest
import torch

from analysis.studies import study
from kernels import VERSIONS, Problem, Version
from kernels.checking.check import differences, problems, supports
from kernels.checking.reference import INPUTS, reference_of
from kernels.log.controls import register
from kernels.runtime.compile import CompileError, compile_ptx, entry_name, resources
from kernels.runtime.emulator import run
from kernels.runtime.emulator.ptx.source import WIDTHS, parse_source
from kernels.runtime.identity import kernel_identity, source_hash
from kernels.version import CudaFunction, Kernel, Launch, Plan
from tests.sampling import named, swept

CONTROLS = [version for version in VERSIONS.values() if version.control_of]
each_control = pytest.mark.parametrize("control", CONTROLS, ids=lambda version: version.id)


def port_of(control: Version) -> Version:
    return VERSIONS[control.control_of or ""]


def shared_bytes(launch: Launch) -> int:
    return launch.dynamic_bytes + resources(launch.kernel, "sm_90").static_shared_bytes


def bare(plan: Plan) -> list[object]:
    """The launches of a plan, without the kernels' code."""
    return [
        (step.kernel.name, step.kernel.signature, step.kernel.fast_math, step.grid, step.block, step.args, step.cluster)
        if isinstance(step, Launch)
        else step
        for step in plan.steps
    ]


@pytest.mark.parametrize("control", swept(zip(CONTROLS), 4, 6), ids=named)
def test_control_has_the_plan_of_its_port(control: Version) -> None:
    port = port_of(control)
    published = [p for p in study("control").problems if supports(port, p)]
    assert {"fp16": 1, "attention": 4, "sinusoidal": 4, "rope": 2}[control.family] <= len(published)
    for problem in published:
        ours, theirs = control(problem), port(problem)
        assert bare(ours) == bare(theirs)
        asked = [[launch.shared_bytes for launch in plan.launches] for plan in (ours, theirs)]
        assert asked[0] == asked[1] or not any(asked[0])
        assert ours.buffers.keys() == theirs.buffers.keys()
        assert (ours.hazards, ours.defect) == (theirs.hazards, theirs.defect)
        assert all(isinstance(launch.kernel.function, CudaFunction) for launch in ours.launches)
    ours, theirs = control(published[0]), port(published[0])  # with what kernels declare themselves: this compiles them
    assert [*map(shared_bytes, ours.launches)] == [*map(shared_bytes, theirs.launches)]
    assert control.iterations == port.iterations and control.wrong_output is port.wrong_output


@each_control
def test_cpp_parameters_are_those_of_the_launch(control: Version) -> None:
    """A pointer for every buffer; a number as wide as in the port, float where it is one."""
    for launch in control(problems(control)[0]).launches:
        params = list(parse_source(compile_ptx(launch.kernel)).params.values())
        assert len(params) == len(launch.args)
        for kind, numba_type, value in zip(params, launch.kernel.parameters, launch.args, strict=True):
            if isinstance(value, str):
                assert kind == "u64"
            else:
                assert WIDTHS[kind] == numba_type.bitwidth // 8
                assert (kind == "f32") == (str(numba_type) == "float32")


@pytest.mark.parametrize("control, kind", swept(product(CONTROLS, INPUTS), 5, 15, by=lambda case: case[0]), ids=named)
def test_control_computes_what_its_port_declares(control: Version, kind: str) -> None:
    """Two tiles of keys; where the port is wrong, the control is wrong in the same values."""
    problem = next(each for each in problems(control) if each.seq_k > 64)
    case = reference_of(problem, kind)
    report = run(control(problem), case.inputs, schedule="in step")
    assert report.out is not None
    if control(problem).expected == "ok":
        assert case.compare(torch.from_numpy(report.out)).status == "ok"
    else:
        assert not differences(control, problem, case, report.out)


COUNTED = [(name,) for name in ("rope_v7", "sinusoidal_v5", "rope_separate", "rope_v1c", "rope_v3")]


@pytest.mark.parametrize("name", swept(COUNTED, 1, 4))
def test_control_rotates_as_often_as_its_port(counted_events, name: str) -> None:
    rotary = {"rope_v1c": 32, "rope_v3": 32, "sinusoidal_v5": 0}.get(name, 16)
    problem = Problem(VERSIONS[name].family, 1, 2, seq_q=64, hdim=32, rotary_dim=rotary)
    counted = counted_events(f"control_{name}", problem, None)
    assert any(counted) and counted == counted_events(name, problem, None)


def test_cpp_that_is_wrong_is_refused_with_the_compilers_log() -> None:
    text = 'extern "C" __global__ void attention(float *out)\n{\n    out[0] = missing;\n}\n'
    with pytest.raises(CompileError, match=r'(?s)attention for sm_90.*attention\.cu\(3\).*"missing" is undefined'):
        compile_ptx(Kernel(CudaFunction("attention", text), ()))


def test_other_cpp_is_another_kernel_and_another_version(monkeypatch: pytest.MonkeyPatch) -> None:
    before = source_hash(VERSIONS["control_rope_v7"])
    (*_, launch) = VERSIONS["control_rope_v7"](Problem("rope", seq_q=64, hdim=64, rotary_dim=64)).launches
    function = launch.kernel.function
    assert isinstance(function, CudaFunction)
    other = replace(launch.kernel, function=replace(function, text=function.text + "\n"))
    assert kernel_identity(other) != kernel_identity(launch.kernel)

    def hashed() -> str:
        register.control("control_again", "rope_v7", rotate_tokens="rotate_tokens", attention="rope_v7")
        return source_hash(VERSIONS.pop("control_again"))

    assert hashed() == before
    read = register.text_of
    monkeypatch.setattr(register, "text_of", lambda file: read(file).replace("powf", "__powf"))
    assert hashed() != before


@pytest.mark.deep
def test_cpp_is_compiled_as_nvcc_would_and_for_the_target() -> None:
    """Products and sums are contracted; division and exp are approximate where the build is with fast-math, alone."""
    v7, phase4 = (
        VERSIONS[name](next(p for p in study("control").problems if supports(VERSIONS[name], p))).launches[-1].kernel
        for name in ("control_rope_v7", "control_fp16_phase4")
    )
    assert "fma.rn.f32" in compile_ptx(v7) and "div.rn.f32" in compile_ptx(v7)
    assert "div.approx.ftz.f32" in compile_ptx(phase4) and "div.rn.f32" not in compile_ptx(phase4)
    assert ".target sm_75" in compile_ptx(v7, "sm_75") and entry_name(compile_ptx(v7, "sm_75")) == "attention"
