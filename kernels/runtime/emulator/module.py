"""A kernel ready to execute: every instruction is decoded once into a closure over operand slots.

`Row.views[slot]` holds the value of an operand for one warp index of all blocks of a batch, so that a closure needs no
lookup by name.
"""

from functools import lru_cache

import numpy as np

from .ptx.program import SlottedKernel
from .ptx.source import PtxKernel, parse_source
from .units import decode


class Module(SlottedKernel):
    """A decoded kernel."""

    def __init__(self, source: PtxKernel, name: str) -> None:
        super().__init__(source, name)
        self.instructions = [decode(self, statement, index) for index, statement in enumerate(source.statements)]
        self.specials = [(slot, *rest) for slot, (kind, *rest) in enumerate(self.slots) if kind == "special"]
        # names of the registers in use by width; for each view its slot and its register number
        self.registers: dict[int, dict[str, int]] = {}
        self.register_views: dict[tuple[int, np.dtype], list[tuple[int, int]]] = {}
        for slot, (kind, *rest) in enumerate(self.slots):
            if kind == "register":
                name, dtype = rest
                width = source.registers.get(name, 0 if dtype.kind == "b" else dtype.itemsize)
                numbers = self.registers.setdefault(width, {})
                number = numbers.setdefault(name, len(numbers))
                self.register_views.setdefault((width, dtype), []).append((slot, number))
        self.register_bytes = sum(max(width, 1) * len(names) for width, names in self.registers.items())


@lru_cache(maxsize=16)  # most kernels run on several inputs in a row, and a module is never modified
def parse(ptx: str, name: str | None = None) -> Module:
    """Parse and decode the one kernel of a PTX text. `name` is its name in findings; by default that of the entry.

    Raises:
        UnknownInstruction: an unknown opcode or operand; the message names it.
    """
    source = parse_source(ptx)
    return Module(source, name or source.entry)
