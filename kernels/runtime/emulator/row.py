"""One warp index of all blocks of a batch: its registers, and the program counters of its lanes."""

import numpy as np

from .memory.access import MemoryUnit
from .memory.barriers import Barriers
from .memory.contents import SharedMemory
from .memory.lanes import Lanes, Mask
from .products import Products


class Row(Lanes):
    """Lanes and their state; `views` are their operands by slot, `live` marks those that have not exited."""

    def __init__(
        self, unit: MemoryUnit, codes: np.ndarray, index: int, warps: int, views: list, live: np.ndarray,
        shared: SharedMemory, barriers: Barriers | None,
    ) -> None:  # fmt: skip
        super().__init__(unit.order, codes, index, shared, unit.program.source.local_bytes, barriers)
        self.unit = unit
        self.warps = warps
        self.views = views
        self.live = live
        self.groups: dict[int, Mask] = {0: True if live.all() else live.copy()}
        self.parked: dict[int, Mask] = {}
        self.waiting: dict[int, Mask] = {}
        self.arrived = np.zeros(self.size, np.int64)
        self.products = Products()
        self.registers = np.full(self.size // 32, unit.program.source.entry_registers)  # a thread, by warp

    def lanes(self, slot: int) -> np.ndarray:
        """The operand with one value per lane."""
        value = self.views[slot]
        return value if isinstance(value, np.ndarray) else np.full(self.size, value)


def union(first: Mask, second: Mask) -> Mask:
    """Union of two masks."""
    if first is True or second is True:
        return True
    both = first | second
    return True if both.all() else both
