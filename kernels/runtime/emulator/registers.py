"""The registers of the warps of a batch of blocks, special registers included, as arrays with one lane per thread."""

import math
from collections.abc import Callable, Iterator
from typing import Any

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
    plain: dict[str, Any] = {
        "%laneid": lane,
        "%warpid": warp,
        "%cluster_ctarank": block % launch.cluster,
        "%cluster_nctarank": launch.cluster,
        "%dynamic_smem_size": launch.shared_bytes,
    }

    def value(name: str) -> np.ndarray:
        if name in plain:
            return np.broadcast_to(plain[name], len(lane))
        base, axis = name[1:-2], "xyz".index(name[-1])
        linear, shape = (block, launch.grid) if "cta" in base else (thread, launch.block)
        return np.full(len(lane), shape[axis]) if base[0] == "n" else linear // math.prod(shape[:axis]) % shape[axis]

    return value
