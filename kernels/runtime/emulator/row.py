"""One warp index of all blocks of a batch: its threads and their registers, program counters and memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .memory.contents import U8, SharedMemory
from .memory.order import I64
from .products import Products

if TYPE_CHECKING:
    from .memory.barriers import Barriers

Mask = Any  # True for all lanes, or bool[lanes]
Chosen = np.ndarray | slice  # indices of lanes, or ALL of them
ALL = slice(None)


class Row:
    """Lane `32 * b + l` is lane l of block b of the batch, whose code is `codes[b]`; `index` is the warp index.

    `views` are the operands of the lanes by slot, `live` marks those that have not exited.
    """

    def __init__(
        self, unit: Any, codes: np.ndarray, index: int, warps: int, views: list, live: np.ndarray,
        shared: SharedMemory, barriers: Barriers | None,
    ) -> None:  # fmt: skip
        source, block_shift = unit.program.source, unit.order.block_shift
        self.unit, self.index, self.warps, self.views, self.live = unit, index, warps, views, live
        self.size = 32 * len(codes)
        self.threads = (codes << block_shift).repeat(32) | (32 * index + np.tile(np.arange(32), len(codes)))
        self.groups: dict[int, Mask] = {0: True if live.all() else live.copy()}
        self.parked: dict[int, Mask] = {}
        self.waiting: dict[int, Mask] = {}
        self.arrived = np.zeros(self.size, np.int64)
        self.products = Products()
        self.registers = np.full(self.size // 32, source.entry_registers)  # a thread, by warp
        self.shared = shared
        self.shared_base = (np.arange(len(codes)) * shared.stride).repeat(32)
        stride = -(-source.local_bytes // 16) * 16
        self.local = np.full(self.size * stride, 0xFF, U8)
        self.local_base = np.arange(self.size) * stride
        self.barriers: Any = barriers
        self.groups_committed = np.zeros(self.size, I64)
        self.copies: list[tuple] = []
        self.fenced_maps: set[tuple[int, int]] = set()  # tensor maps that lanes may use: (lane, address)

    def lanes(self, slot: int) -> np.ndarray:
        """The operand with one value per lane."""
        value = self.views[slot]
        return value if isinstance(value, np.ndarray) else np.full(self.size, value)

    def indices(self, mask: Mask) -> np.ndarray:
        return np.arange(self.size) if mask is True else np.flatnonzero(mask)

    def active(self, mask: Mask) -> np.ndarray:
        """bool[warps, 32]: the lanes that execute an instruction."""
        return np.ones((self.size // 32, 32), bool) if mask is True else mask.reshape(-1, 32)

    def by_warp(self, lanes: Chosen, values: np.ndarray) -> np.ndarray:
        """[warps, 32]: the values of these lanes, -1 for others."""
        if isinstance(lanes, np.ndarray):
            sparse = np.full(self.size, -1, I64)
            sparse[lanes] = values
            values = sparse
        return values.reshape(-1, 32)


def union(first: Mask, second: Mask) -> Mask:
    """Union of two masks."""
    if first is True or second is True:
        return True
    both = first | second
    return True if both.all() else both
