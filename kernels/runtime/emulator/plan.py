"""Runs all launches of a plan."""

from collections.abc import Callable, Mapping

import numpy as np

from ...version import Buffer, Kernel, Plan
from .execute import execute
from .memory.contents import Memory
from .memory.tensors import put_map
from .module import parse
from .report import LaunchReport, PlanReport, merge_findings


def _dtype(name: str) -> np.dtype:
    """The NumPy dtype of a buffer; bfloat16 and float8 are stored as their bits."""
    return np.dtype({"bfloat16": "uint16", "float8": "uint8"}.get(name, name))


def _contents(name: str, buffer: Buffer, inputs: Mapping[str, np.ndarray]) -> np.ndarray | None:
    given = buffer.init() if buffer.init is not None else inputs.get(name)
    if given is None:
        return None
    given = np.asarray(given)
    if given.size != buffer.size:
        raise ValueError(f"buffer {name!r} has shape {buffer.shape}, its contents have {given.shape}")
    dtype = _dtype(buffer.dtype)
    same_bits = given.dtype.itemsize == dtype.itemsize and dtype.kind == "u"
    return np.ascontiguousarray(given).view(dtype) if same_bits else given.astype(dtype)


def run(
    plan: Plan,
    inputs: Mapping[str, np.ndarray],
    ptx_of: Callable[[Kernel], str] | None = None,
    seed: int = 0,
    schedule: str = "random",
    blocks: int | None = None,
) -> PlanReport:
    """Run `plan` on `inputs` (q, k and v, shaped like their buffers), or only the first `blocks` of each launch.

    Buffers that neither `inputs` nor their `init` fills start as NaN bits and count as unwritten, like padding and
    shared memory. `out` counts as unwritten even if it has an `init`. A launch with a fatal finding ends early; the
    next one still runs.

    Raises:
        ValueError: the contents given for a buffer do not fit it.
        UnknownInstruction: the PTX of a kernel has an instruction that the emulator does not know.
    """
    if ptx_of is None:
        from ..compile import compile_ptx

        ptx_of = compile_ptx
    contents = {name: _contents(name, buffer, inputs) for name, buffer in plan.buffers.items()}
    unwritten = {name for name, content in contents.items() if content is None or name == "out"}
    buffers = {}
    for name, buffer in plan.buffers.items():
        content = contents[name]
        if content is None:
            dtype = _dtype(buffer.dtype)
            content = np.full(buffer.size * dtype.itemsize, 0xFF, np.uint8).view(dtype)
        buffers[name] = content.reshape(buffer.shape)
    padding = {name: buffer.padding * _dtype(buffer.dtype).itemsize for name, buffer in plan.buffers.items()}
    memory = Memory(buffers, unwritten, padding)
    for name, buffer in plan.buffers.items():
        if buffer.tensor_map is not None:
            put_map(memory, name, buffer.tensor_map)
    launches: list[LaunchReport] = []
    for launch in plan.launches:
        launches.append(
            execute(
                parse(ptx_of(launch.kernel), launch.kernel.name),
                memory,
                launch.grid,
                launch.block,
                launch.args,
                launch.dynamic_bytes,
                launch.shared.place,
                launch.cluster,
                seed + len(launches),
                schedule=schedule,
                blocks=None if blocks is None else range(blocks),
            )
        )
    results = {name: memory[name].copy() for name in plan.buffers}
    return PlanReport(
        results.get("out"), results, launches, merge_findings(f for report in launches for f in report.findings)
    )
