"""The registers of the warps of a batch of blocks, special registers included, as arrays with one lane per thread."""

import math
from collections.abc import Callable, Iterator

import numpy as np

from .launch import LaunchState


def views(launch: LaunchState, blocks: np.ndarray) -> Iterator[list]:
    """The operands of each warp index of these blocks, by slot."""
    lanes = 32 * len(blocks)
    warps = launch.warps
    module = launch.module
    common = [
        rest[0] if kind == "constant" else None if kind in ("register", "special") else launch.value(kind, *rest)
        for kind, *rest in module.slots
    ]
    storage = {
        width: np.zeros((len(names), warps, lanes), np.dtype(f"u{width}") if width else bool)
        for width, names in module.registers.items()
    }
    for warp in range(warps):
        special = _special(launch, blocks, warp)
        operands: list = common.copy()
        for (width, dtype), places in module.register_views.items():
            ratio = max(width // dtype.itemsize, 1)
            lines = list(storage[width][:, warp].view(dtype)[:, ::ratio])
            for slot, number in places:
                operands[slot] = lines[number]
        for slot, name, dtype in module.specials:
            operands[slot] = special(name).astype(dtype)
        yield operands


def _special(launch: LaunchState, blocks: np.ndarray, warp: int) -> Callable[[str], np.ndarray]:
    lane = np.tile(np.arange(32), len(blocks))
    thread, block = 32 * warp + lane, blocks.repeat(32)
    constant = {
        "%nwarpid": launch.warps,
        "%cluster_nctarank": launch.cluster,
        "%dynamic_smem_size": launch.shared_bytes,
        "%total_smem_size": launch.shared_bytes + launch.module.source.static_bytes,
    }
    masks = {"eq": 1 << lane, "lt": (1 << lane) - 1, "le": (2 << lane) - 1,
             "gt": 0xFFFFFFFF & ~((2 << lane) - 1), "ge": 0xFFFFFFFF & ~((1 << lane) - 1)}  # fmt: skip
    clusters = (launch.grid[0] // launch.cluster, launch.grid[1], launch.grid[2])

    def at(linear: np.ndarray, shape: tuple[int, int, int], axis: int) -> np.ndarray:
        return linear // math.prod(shape[:axis]) % shape[axis]

    def value(name: str) -> np.ndarray:
        if name in constant:
            return np.full(len(lane), constant[name])
        if name.startswith("%lanemask_"):
            return masks[name[-2:]]
        simple = {"%laneid": lane, "%warpid": np.full(len(lane), warp), "%cluster_ctarank": block % launch.cluster}
        if name in simple:
            return simple[name]
        base, axis = name[1:-2], "xyz".index(name[-1])
        shape = {
            "tid": launch.block,
            "ctaid": launch.grid,
            "clusterid": clusters,
            "cluster_ctaid": (launch.cluster, 1, 1),
        }
        linear = {
            "tid": thread,
            "ctaid": block,
            "clusterid": block // launch.cluster,
            "cluster_ctaid": block % launch.cluster,
        }
        if base in linear:
            return at(linear[base], shape[base], axis)
        sizes = {
            "ntid": launch.block,
            "nctaid": launch.grid,
            "nclusterid": clusters,
            "cluster_nctaid": (launch.cluster, 1, 1),
        }
        return np.full(len(lane), sizes[base][axis])

    return value
