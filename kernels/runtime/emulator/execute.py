"""Execution of one launch, in batches of as many blocks as fit."""

import contextlib
import math
from collections.abc import Callable, Sequence

import numpy as np

from .batch import Batch
from .launch import Grid, LaunchState
from .memory.access import LaunchAborted
from .memory.contents import Memory
from .module import Module
from .report import LaunchReport

SCHEDULES = ("random", "in step")
ENDLESS = 20_000_000  # straight-line segments in a launch: hours, where the longest kernel takes seconds
BATCH_LANES = 1 << 15
BATCH_REGISTER_BYTES = 1 << 28
BATCH_READERS = 1 << 26  # granules times warps, if the latest reader of each granule is kept per warp


def execute(
    module: Module,
    memory: Memory,
    grid: Grid,
    block: Grid,
    args: Sequence[str | int | float],
    shared_bytes: int = 0,
    shared_place: Callable[[int], str] = lambda byte: "shared",
    cluster: int = 1,
    seed: int = 0,
    blocks: Sequence[int] | None = None,
    schedule: str = "random",
) -> LaunchReport:
    """Run one launch on `memory`.

    `args` holds one value per kernel parameter; a str names a buffer of `memory` and passes its address. `grid` counts
    blocks. `shared_place` names the array that contains a byte of dynamic shared memory. `blocks` limits the run to
    some linear block indices, whole clusters. With schedule "random" the warps run between barriers one after the
    other, in an order drawn from `seed`. With "in step" they run side by side from branch to branch, closer to a GPU.

    Raises:
        ValueError: another schedule, a wrong number of arguments, or blocks that are not whole clusters.
    """
    if schedule not in SCHEDULES:
        raise ValueError(f"schedule is {schedule!r}; allowed: {', '.join(SCHEDULES)}")
    launch = LaunchState(
        module, memory, grid, block, args, shared_bytes, shared_place, cluster, seed, schedule, ENDLESS
    )
    chosen = np.arange(math.prod(launch.grid)) if blocks is None else np.unique(np.asarray(blocks, np.int64))
    whole = len(chosen) % cluster == 0 and (np.unique(chosen // cluster, return_counts=True)[1] == cluster).all()
    if not whole or (chosen.size and (chosen[0] < 0 or chosen[-1] >= math.prod(launch.grid))):
        raise ValueError("blocks must be whole clusters of the grid")
    per_block = max(launch.warps * 32, 1)
    count = min(BATCH_LANES // per_block, BATCH_REGISTER_BYTES // (per_block * max(module.register_bytes, 1)))
    if module.uses_mbarriers:
        size = module.source.static_bytes + launch.shared_bytes
        count = min(count, BATCH_READERS // (launch.warps * (size // module.granule + 1)))
    count = max(count // cluster, 1) * cluster
    with np.errstate(all="ignore"), contextlib.suppress(LaunchAborted):
        for first in range(0, len(chosen), count):
            Batch(launch, chosen[first : first + count]).run()
    return launch.report()
