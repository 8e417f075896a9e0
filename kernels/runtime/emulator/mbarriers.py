"""Barriers in shared memory (mbarrier) and the asynchronous stores that count at them (st.async).

A store's data is there at once; who reads it without having waited for the phase that it counts in is found to race
with it. A warp that waits is taken up again when its phase has completed. Like a send, a wait is one of the whole warp.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .decoding import PHASE_WAIT, U32_TYPE, Decoding, Mask, Step, opcode
from .memory import I64, Order, SharedMemory, join
from .ptx import numpy_type
from .transfers import address_of

if TYPE_CHECKING:
    from .execute import Row

WIDTH = 8  # bytes of an mbarrier


class Barriers:
    """The mbarriers of a batch's blocks. A phase completes when nothing is pending: no arrivals and no bytes.

    `codes` are the block codes of the batch. A barrier is called by its slot, a number that `init` gives it.
    """

    def __init__(self, shared: SharedMemory, order: Order, codes: np.ndarray) -> None:
        assert order.clocks is not None
        self.order, self.clocks, self.codes, self.stride = order, order.clocks, codes, shared.stride
        self.slot_at = np.full(len(shared.data) // WIDTH, -1, I64)
        self._numbers: dict[int, int] = {}
        self.count, self.pending, self.bytes, self.phase, self.agent, self.position = np.zeros((6, 0), I64)
        # what those who wait for the phase get to know: of the one under way, and of the one completed last
        self.gathered, self.released = np.zeros((2, 0, order.clocks.per_cluster), I64)

    def init(self, positions: np.ndarray, counts: np.ndarray) -> None:
        new = np.unique(positions[self.slot_at[positions // WIDTH] < 0])
        first = len(self.count)
        self.slot_at[new // WIDTH] = first + np.arange(len(new))
        numbers = [self._numbers.setdefault(offset, len(self._numbers)) for offset in (new % self.stride).tolist()]
        agents = self.clocks.agent(self.codes[new // self.stride], np.array(numbers, I64))
        for name, values in (("position", new), ("agent", agents)):
            setattr(self, name, np.concatenate([getattr(self, name), values]))
        for name in ("count", "pending", "bytes", "phase", "gathered", "released"):
            old = getattr(self, name)
            setattr(self, name, np.concatenate([old, np.zeros((len(new), *old.shape[1:]), I64)]))
        slots = self.slot_at[positions // WIDTH]
        self.count[slots] = self.pending[slots] = counts
        self.bytes[slots] = self.phase[slots] = 0
        self.gathered[slots] = self.released[slots] = 0

    def arrive(self, slots: np.ndarray, warps: np.ndarray, expected: np.ndarray) -> None:
        """One arrival each, which makes the phase wait for some bytes more."""
        known = self.clocks.at_send(warps)
        for slot, row, count in zip(slots, known, expected, strict=True):
            self.gathered[slot] = np.maximum(self.gathered[slot], row)
            self.bytes[slot] += count
            self.pending[slot] -= 1
            self._complete_if_done(np.array([slot]))

    def deliver(self, slots: np.ndarray, warps: np.ndarray, count: int) -> None:
        """`count` bytes each have come."""
        touched, stores = np.unique(slots, return_counts=True)
        total, left = stores * count, self.bytes[touched]
        # more than the phase waits for: the rest counts in the next one, and so do all of this step, to be strict
        early = (self.pending[touched] == 0) & (0 < left) & (left < total) & (left % count == 0)
        if early.any():
            total[early] -= left[early]
            self._complete(touched[early], self.order.now << 32)
        pairs = np.unique(np.stack([slots, warps]), axis=1)
        join(self.gathered, pairs[0], self.clocks.at_send(pairs[1]))
        self.bytes[touched] -= total
        self._complete_if_done(touched)

    def _complete_if_done(self, slots: np.ndarray) -> None:
        done = slots[(self.pending[slots] == 0) & (self.bytes[slots] == 0)]
        if len(done):
            self._complete(done, self.order.now + 1 << 32)

    def _complete(self, slots: np.ndarray, landed: int) -> None:
        """The next phase begins; stores before `landed` have happened for who waits for this one."""
        self.released[slots] = self.gathered[slots]
        self.released[slots, self.clocks.column(self.agent[slots])] = landed
        self.gathered[slots] = 0
        self.pending[slots] = self.count[slots]
        self.bytes[slots] = 0
        self.phase[slots] += 1

    def acquire(self, slots: np.ndarray, warps: np.ndarray) -> None:
        pairs = np.unique(np.stack([slots, warps]), axis=1)
        self.clocks.learn(pairs[1], self.released[pairs[0]])

    def lacking(self, slot: int) -> str:
        """What a phase waits for, for findings."""
        return f"{self.pending[slot]} arrivals and {self.bytes[slot]} bytes short in phase {self.phase[slot]}"


def _lanes(row: Row, mask: Mask) -> np.ndarray:
    return np.arange(row.size) if mask is True else np.flatnonzero(mask)


@opcode("mbarrier", "init arrive expect_tx try_wait parity shared shared::cta acquire release cta cluster")
def _mbarrier(d: Decoding) -> Step | None:
    index, name = d.index, d.modifiers[0]
    if d.type != "b64" or not {"shared", "shared::cta"} & d.flags:
        raise d.unknown("type or space")
    if name == "init":
        address, count = address_of(d, d.operands[0]), d.source(1, "u32")

        def init(row: Row, mask: Mask) -> None:
            row.unit.begin(index)
            lanes = _lanes(row, mask)
            positions = row.unit.place_barriers(row, lanes, address(row)[lanes])
            row.barriers.init(positions, row.lanes(count)[lanes].astype(I64))

        return init
    address = address_of(d, d.operands[1])
    if name == "arrive":
        expects = "expect_tx" in d.flags
        if d.operands[0] != "_" or len(d.operands) != 2 + expects:
            raise d.unknown("a state or a count")
        expected = d.source(2, "u32") if expects else d.module.constant(0, U32_TYPE)

        def arrive(row: Row, mask: Mask) -> None:
            row.unit.begin(index)
            lanes = _lanes(row, mask)
            slots = row.unit.use_barriers(row, lanes, address(row)[lanes], False)
            row.barriers.arrive(slots, row.threads[lanes] >> 5, row.lanes(expected)[lanes].astype(I64))

        return arrive
    if name != "try_wait" or "parity" not in d.flags or d.statement.guard:
        raise d.unknown("form, or a guard,")
    target, parity = d.result(0, "pred"), d.source(2, "u32")
    d.kind = PHASE_WAIT

    def blocked(row: Row, mask: Mask) -> np.ndarray | None:
        """The slots of the barriers that lanes wait for, -1 for lanes that may go on; None where all may."""
        row.unit.current = index
        lanes = _lanes(row, mask)
        slots = row.unit.find_barriers(row, lanes, address(row)[lanes], False)[0]
        waits = row.barriers.phase[slots] & 1 == row.lanes(parity)[lanes] & 1
        if not waits.any():
            return None
        waited = np.full(row.size, -1)
        waited[lanes[waits]] = slots[waits]
        return waited

    def wait(row: Row, mask: Mask) -> None:
        row.unit.begin(index)
        lanes = _lanes(row, mask)
        slots = row.unit.use_barriers(row, lanes, address(row)[lanes], False)
        row.barriers.acquire(slots, row.threads[lanes] >> 5)
        np.copyto(row.views[target], True, where=mask)

    d.blocked = blocked
    return wait


@opcode("st.async", "async weak shared::cluster mbarrier::complete_tx::bytes v2 v4")
def _st_async(d: Decoding) -> Step | None:
    if not {"shared::cluster", "mbarrier::complete_tx::bytes"} <= d.flags:
        raise d.unknown("form")
    index, address, barrier = d.index, address_of(d, d.operands[0]), address_of(d, d.operands[2])
    names = d.vector(1) if d.operands[1].startswith("{") else [d.operands[1]]
    if len(names) != int(d.flag("v2 v4", "v1")[1]) or numpy_type(d.type).itemsize < 4:
        raise d.unknown("vector length or type")
    sources = [d.module.operand(name, d.type) for name in names]

    def send(row: Row, mask: Mask) -> None:
        row.unit.begin(index)
        lanes = _lanes(row, mask)
        values = np.stack([row.lanes(source)[lanes] for source in sources], axis=1)
        slots = row.unit.use_barriers(row, lanes, barrier(row)[lanes], True)
        block, agents = row.barriers.position[slots] // row.shared.stride, row.barriers.agent[slots]
        row.unit.store_async(row, lanes, address(row)[lanes], values, block, agents)
        row.barriers.deliver(slots, row.threads[lanes] >> 5, values.itemsize * len(names))

    return send
