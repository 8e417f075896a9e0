"""State that the blocks of a launch share: shape and arguments, global memory, the order of accesses, counts."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .memory.access import MemoryUnit
from .memory.contents import Memory
from .memory.order import Order
from .module import Module
from .ptx.source import numpy_type
from .report import LaunchReport, merge_findings

Grid = Sequence[int | np.integer] | int


def triple(size: Grid) -> tuple[int, int, int]:
    values = (size,) if isinstance(size, int) else tuple(size)
    return tuple(int(v) for v in values + (1,) * (3 - len(values)))  # type: ignore[return-value]


class LaunchState:
    """One launch: the state that its successive batches share. It ends after `endless` straight-line segments."""

    def __init__(
        self, module: Module, memory: Memory, grid: Grid, block: Grid, args: Sequence, shared_bytes: int,
        place_of: Callable[[int], str], cluster: int, seed: int, schedule: str, endless: int,
    ) -> None:  # fmt: skip
        self.module, self.memory, self.cluster, self.shared_bytes = module, memory, cluster, shared_bytes
        self.grid, self.block = triple(grid), triple(block)
        self.threads = math.prod(self.block)
        self.warps = -(-self.threads // 32)
        if self.grid[0] % cluster:
            raise ValueError(f"grid is {self.grid}; its x must be a multiple of the cluster size, which is {cluster}")
        if len(args) != len(module.source.params):
            raise ValueError(f"{module.name} takes {len(module.source.params)} arguments, {len(args)} were given")
        self.args = dict(zip(module.source.params, args, strict=True))
        memory.add_constants(
            {name: module.source.constants[name] for kind, name, *_ in module.slots if kind == "symbol"}
        )
        self.rng = np.random.default_rng(seed)
        self.schedule = schedule
        self.lines, self.endless = 0, endless
        self.order = Order(math.prod(self.grid), self.warps, cluster, module.uses_mbarriers)
        written = {a for p, a in self.args.items() if isinstance(a, str) and p in module.stored_params}
        self.unit = MemoryUnit(module, memory, self.order, written, place_of, self.rng)
        size = len(module.instructions) + 1
        self.executed, self.issued, self.guarded = [0] * size, [0] * size, [0] * size
        self.barriers = 0

    def segment(self, start: int, stop: int, threads: int, warps: int) -> None:
        """Count a straight-line run of instructions at its two ends; `report` sums them up."""
        self.executed[start] += threads
        self.executed[stop] -= threads
        self.issued[start] += warps
        self.issued[stop] -= warps

    def value(self, kind: str, name: str, dtype: np.dtype) -> Any:
        """A parameter or the address of a symbol."""
        if kind == "symbol":
            return np.array(self.memory.address(name), np.uint64).astype(dtype)[()]
        argument = self.args[name]
        if isinstance(argument, str):
            argument = self.memory.address(argument)
        declared = numpy_type(self.module.source.params[name])
        if declared.kind in "iu":
            value = np.array(int(argument) & (1 << 8 * declared.itemsize) - 1, f"u{declared.itemsize}")
        else:
            value = np.array(argument, declared)
        same_size = value.dtype.itemsize == dtype.itemsize
        return (value.view(dtype) if same_size else value.view(declared).astype(dtype))[()]

    def report(self) -> LaunchReport:
        counts: Counter[str] = Counter()
        executed = np.cumsum(self.executed) + np.array(self.guarded)
        for instruction, threads in zip(self.module.instructions, executed.tolist(), strict=False):
            counts[instruction.counter] += threads
        counts["warp_inst"] = int(np.cumsum(self.issued).sum())
        counts.update(self.unit.counts)
        for direction, touched in self.unit.touched.items():
            counts[f"global.unique_sectors.{direction}"] = int(np.count_nonzero(touched))
        counts["barriers"] = self.barriers
        return LaunchReport(self.module.name, dict(sorted(counts.items())), merge_findings(self.unit.findings))
