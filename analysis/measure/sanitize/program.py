"""The process that a tool watches: it launches the planted kernel and all cases, and marks in its output which."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from cuda.bindings import driver

from kernels import Unsupported
from kernels.checking.reference import make_inputs
from kernels.runtime.compile import compile_ptx, entry_name, require_target
from kernels.runtime.gpu import C_TYPES, DTYPES, GpuError, device_target, load_ptx, prepare_launch, require_gpu
from kernels.runtime.probes import EMPTY
from kernels.version import Kernel, Launch

from .cases import MODES, Case, Mode, Session
from .logs import PLANTED, PLANTED_NAME, kernel_name, marker


def named_ptx(index: int, launch: int, kernel: Kernel, target: str) -> str:
    """The PTX of a kernel under a name of its own for every case and launch."""
    ptx = compile_ptx(kernel, target)
    return ptx.replace(entry_name(ptx), kernel_name(index, launch, kernel.name))


def planted_ptx(target: str) -> str:
    """A kernel that reads x[1] and the first word of shared memory, then stores its thread in that word and in x[0]."""
    header = re.findall(r"^\.(?:version|target|address_size) .*$", compile_ptx(EMPTY, target), re.MULTILINE)
    body = f""".extern .shared .align 16 .b8 shared[];
.visible .entry {PLANTED_NAME}(.param .u64 p_x) {{
  .reg .b64 %x; .reg .b32 %r<5>;
  ld.param.u64 %x, [p_x];
  mov.u32 %r0, %tid.x; mov.u32 %r1, shared;
  ld.global.b32 %r2, [%x+4]; ld.shared.b32 %r3, [%r1];
  st.shared.b32 [%r1], %r0;
  add.u32 %r4, %r2, %r3; add.u32 %r4, %r4, %r0; st.global.b32 [%x], %r4; ret;
}}
"""
    return "\n".join([*header, body])


def _say(**content: Any) -> None:
    """A marker in the output that the tool's reports share, written in one piece."""
    os.write(1, marker(**content).encode())


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


def run_planted(mode: Mode) -> None:
    size = 4 if mode.exact else 8
    with _allocated({"x": size}) as addresses:
        _say(case=PLANTED, buffers={"x": [addresses["x"], size]})
        function = load_ptx(planted_ptx(device_target()))
        prepare_launch(function, (1,), (64,), [addresses["x"]], [ctypes.c_uint64], 16)()
        torch.cuda.synchronize()


def _grid(launch: Launch, one_block: bool) -> tuple[int, ...]:
    return (launch.cluster, *(1 for _ in launch.grid[1:])) if one_block else launch.grid


def _run_case(index: int, case: Case, mode: Mode) -> None:
    plan = case.plan(device_target())
    inputs = make_inputs(plan.problem, "uniform")
    sizes = {name: buffer.size * DTYPES[buffer.dtype].itemsize for name, buffer in plan.buffers.items()}
    padding = {name: 0 if mode.exact else buffer.padding for name, buffer in plan.buffers.items()}
    padding = {name: count * DTYPES[plan.buffers[name].dtype].itemsize for name, count in padding.items()}
    with _allocated({name: size + padding[name] for name, size in sizes.items()}) as addresses:
        _say(case=index, buffers={name: [addresses[name], sizes[name]] for name in sizes})
        for name, buffer in plan.buffers.items():
            if padding[name]:
                _ask(driver.cuMemsetD8, addresses[name] + sizes[name], 0xFF, padding[name])
            contents = buffer.init() if buffer.init else inputs.get(name)
            if contents is not None:
                host = torch.as_tensor(contents).to(DTYPES[buffer.dtype]).contiguous()
                _ask(driver.cuMemcpyHtoD, addresses[name], host.data_ptr(), sizes[name])
        for number, launch in enumerate(plan.launches):
            require_target(launch, device_target())
            values, types = [], []
            for argument, numba_type in zip(launch.args, launch.kernel.parameters, strict=True):
                values.append(addresses[argument] if isinstance(argument, str) else argument)
                types.append(ctypes.c_uint64 if isinstance(argument, str) else C_TYPES[str(numba_type)])
            function = load_ptx(named_ptx(index, number, launch.kernel, device_target()))
            grid = _grid(launch, mode.one_block)
            prepare_launch(function, grid, launch.block, values, types, launch.dynamic_bytes, launch.cluster)()
            torch.cuda.synchronize()


def watched(mode_name: str, folder: str, first: str) -> int:
    """Body of the process under a tool: all cases from the one with index `first`, the planted kernel being -1."""
    mode, todo = MODES[mode_name], Session.load(Path(folder)).cases
    torch.zeros(1, device=require_gpu())  # makes torch's context current, for the driver's allocations
    for index in range(int(first), len(todo)):
        _say(case=index)
        try:
            if index == PLANTED:
                run_planted(mode)
            else:
                _run_case(index, todo[index], mode)
        except Unsupported as refusal:
            _say(case=index, refused=str(refusal))
        except RuntimeError as error:  # the context may be lost: the next case gets a new process
            _say(case=index, failed=str(error).splitlines()[0])
            return 1
        _say(done=index)
    _say(finished=True)
    return 0


if __name__ == "__main__":
    sys.exit(watched(*sys.argv[1:]))
