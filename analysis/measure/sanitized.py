"""The process that a tool of compute-sanitizer watches: one version on its small problems, or the planted kernel.

    python -m analysis.measure.sanitized memcheck rope_v8

Every buffer is a driver allocation of its exact size, and holds nothing unless the plan fills it: that is what memcheck
and initcheck watch. The planted kernel reads behind a buffer, reads what nobody wrote and races: a tool that misses it
proves nothing by its silence.
"""

from __future__ import annotations

import contextlib
import ctypes
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
from cuda.bindings import driver

from kernels import VERSIONS, Problem, Unsupported, Version
from kernels.checking.reference import TABLES_OF, make_inputs
from kernels.runtime.compile import compile_ptx, require_target
from kernels.runtime.gpu import C_TYPES, DTYPES, GpuError, device_target, load_ptx, prepare_launch, require_gpu
from kernels.runtime.probes import EMPTY

from .refused import REFUSED

PLANTED = "planted"
EXACT = "memcheck"  # leaves out the padding that a declared read out of bounds lands in, to see it

# (batch, heads, seq, hdim): a last tile that is not full, two tiles of keys, and heads shorter than the 64 positions
# of the separate paths. Versions that fit fewer dims get the first of FEWER_DIMS that they take; one takes no fewer
# than MORE_DIMS.
SHAPES = [(1, 2, 33, 96), (1, 1, 65, 128), (1, 2, 32, 64)]
FEWER_DIMS = (64, 36, 32, 16)
MORE_DIMS = 332
FP16_SHAPES = [(1, 2, 64, 64), (1, 1, 128, 64)]


def _first_supported(version: Version, candidates: Iterable[Problem]) -> Iterator[Problem]:
    for problem in candidates:
        with contextlib.suppress(Unsupported):
            version(problem)
            yield problem
            return


def problems(version: Version) -> list[Problem]:
    """The small problems that show the hazards of `version`. Raises: ValueError if it takes none of them."""
    found: dict[Problem, None] = {}
    if version.family == "fp16":
        for batch, heads, seq, hdim in FP16_SHAPES:
            for causal in (False, True):
                problem = Problem("fp16", batch, heads, seq_q=seq, hdim=hdim, dtype="float16", causal=causal)
                found.update(dict.fromkeys(_first_supported(version, [problem])))
    else:
        table = TABLES_OF.get(version.family, ("computed",))[0]
        for batch, heads, seq, most in SHAPES:
            candidates = (
                Problem(version.family, batch, heads, seq_q=seq, hdim=hdim, rotary_dim=rotary_dim, table=table)
                for hdim in (most, *(dims for dims in FEWER_DIMS if dims < most), MORE_DIMS)
                for rotary_dim in ((hdim // 8 * 4, hdim) if version.family == "rope" else (0,))
            )
            found.update(dict.fromkeys(_first_supported(version, candidates)))
    if not found:
        raise ValueError(f"{version.id} takes none of the small problems: give {__file__} one that fits")
    return list(found)


def planted_ptx(target: str) -> str:
    """A kernel that reads x[1] and the first word of shared memory, then stores its thread in that word and in x[0]."""
    header = re.findall(r"^\.(?:version|target|address_size) .*$", compile_ptx(EMPTY, target), re.MULTILINE)
    body = f""".extern .shared .align 16 .b8 shared[];
.visible .entry {PLANTED}(.param .u64 p_x) {{
  .reg .b64 %x; .reg .b32 %r<5>;
  ld.param.u64 %x, [p_x];
  mov.u32 %r0, %tid.x; mov.u32 %r1, shared;
  ld.global.b32 %r2, [%x+4]; ld.shared.b32 %r3, [%r1];
  st.shared.b32 [%r1], %r0;
  add.u32 %r4, %r2, %r3; add.u32 %r4, %r4, %r0; st.global.b32 [%x], %r4; ret;
}}
"""
    return "\n".join([*header, body])


def _ask(entry: Callable[..., Any], *arguments: Any) -> Any:
    code, *values = entry(*arguments)
    if code != driver.CUresult.CUDA_SUCCESS:
        raise GpuError(f"the CUDA driver answered {code.name} to {entry.__name__}")
    return values[0] if values else None


@contextlib.contextmanager
def _allocated(sizes: Mapping[str, int]) -> Iterator[dict[str, int]]:
    """Addresses of fresh allocations of so many bytes, a driver allocation each."""
    pointers: dict[str, Any] = {}
    try:
        for name, size in sizes.items():
            pointers[name] = _ask(driver.cuMemAlloc, size)
        yield {name: int(pointer) for name, pointer in pointers.items()}
    finally:
        for pointer in pointers.values():
            driver.cuMemFree(pointer)


def run_planted(tool: str) -> None:
    with _allocated({"x": 4 if tool == EXACT else 8}) as addresses:
        function = load_ptx(planted_ptx(device_target()))
        prepare_launch(function, (1,), (64,), [addresses["x"]], [ctypes.c_uint64], 16)()
        torch.cuda.synchronize()


def run_version(name: str, problem: Problem, tool: str) -> None:
    """One call. Raises: Unsupported, GpuError."""
    plan = VERSIONS[name](problem, device_target())
    inputs = make_inputs(problem, "uniform")
    sizes = {name: buffer.size * DTYPES[buffer.dtype].itemsize for name, buffer in plan.buffers.items()}
    padding = {name: 0 if tool == EXACT else buffer.padding for name, buffer in plan.buffers.items()}
    padding = {name: count * DTYPES[plan.buffers[name].dtype].itemsize for name, count in padding.items()}
    with _allocated({name: size + padding[name] for name, size in sizes.items()}) as addresses:
        for name, buffer in plan.buffers.items():
            if padding[name]:
                _ask(driver.cuMemsetD8, addresses[name] + sizes[name], 0xFF, padding[name])
            contents = buffer.init() if buffer.init else inputs.get(name)
            if contents is not None:
                host = torch.as_tensor(contents).to(DTYPES[buffer.dtype]).contiguous()
                _ask(driver.cuMemcpyHtoD, addresses[name], host.data_ptr(), sizes[name])
        for launch in plan.launches:
            require_target(launch, device_target())
            values, types = [], []
            for argument, numba_type in zip(launch.args, launch.kernel.parameters, strict=True):
                values.append(addresses[argument] if isinstance(argument, str) else argument)
                types.append(ctypes.c_uint64 if isinstance(argument, str) else C_TYPES[str(numba_type)])
            function = load_ptx(compile_ptx(launch.kernel, device_target()))
            prepare_launch(
                function, launch.grid, launch.block, values, types, launch.dynamic_bytes, launch.cluster
            )()  # fmt: skip
            torch.cuda.synchronize()


def main(tool: str, name: str) -> int:
    torch.zeros(1, device=require_gpu())  # makes torch's context current, for the driver's allocations
    try:
        if name == PLANTED:
            run_planted(tool)
        for problem in problems(VERSIONS[name]) if name in VERSIONS else ():
            run_version(name, problem, tool)
    except Unsupported as refusal:
        print(refusal)
        return REFUSED
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
