"""The threads of one warp index of all blocks of a batch, and the memory that they access."""

from typing import Any

import numpy as np

from .barriers import Barriers
from .contents import U8, SharedMemory
from .order import I64, Order

Mask = Any  # True for all lanes, or bool[lanes]


class Lanes:
    """Lane `32 * b + l` is lane l of block b of the batch, whose code is `codes[b]`; `index` is the warp index."""

    def __init__(
        self, order: Order, codes: np.ndarray, index: int, shared: SharedMemory, local_bytes: int,
        barriers: Barriers | None,
    ) -> None:  # fmt: skip
        self.index = index
        self.size = 32 * len(codes)
        self.threads = (codes << order.block_shift).repeat(32) | (32 * index + np.tile(np.arange(32), len(codes)))
        self.shared = shared
        self.shared_base = (np.arange(len(codes)) * shared.stride).repeat(32)
        stride = -(-local_bytes // 16) * 16
        self.local = np.full(self.size * stride, 0xFF, U8)
        self.local_base = np.arange(self.size) * stride
        self.barriers: Any = barriers
        self.groups_committed = np.zeros(self.size, I64)
        self.copies: list[tuple] = []
        self.fenced_maps: set[tuple[int, int]] = set()  # tensor maps that lanes may use: (lane, address)
