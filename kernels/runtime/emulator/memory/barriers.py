"""Barriers in shared memory (mbarrier): their phases, and what a wait makes visible."""

import numpy as np

from .contents import SharedMemory
from .order import I64, Order, raise_rows

WIDTH = 8  # bytes of an mbarrier


class Barriers:
    """The mbarriers of the blocks of a batch. A phase completes when no arrivals and no bytes are pending.

    `codes` are the block codes of the batch. A slot is the number that `init` gives a barrier.
    """

    def __init__(self, shared: SharedMemory, order: Order, codes: np.ndarray) -> None:
        assert order.clocks is not None
        self.order, self.clocks, self.codes, self.stride = order, order.clocks, codes, shared.stride
        self.slot_at = np.full(len(shared.data) // WIDTH, -1, I64)
        self._numbers: dict[int, int] = {}
        self.count, self.pending, self.bytes, self.phase, self.agent, self.position = np.zeros((6, 0), I64)
        # the clocks that a wait acquires: for the current phase, and for the last completed one
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
        """Arrive once at each slot; its phase then waits for `expected` more bytes."""
        known = self.clocks.at_send(warps)
        for slot, row, count in zip(slots, known, expected, strict=True):
            self.gathered[slot] = np.maximum(self.gathered[slot], row)
            self.bytes[slot] += count
            self.pending[slot] -= 1
            self._complete_if_done(np.array([slot]))

    def deliver(self, slots: np.ndarray, warps: np.ndarray, count: int) -> None:
        """Count `count` arrived bytes at each slot."""
        touched, stores = np.unique(slots, return_counts=True)
        total, left = stores * count, self.bytes[touched]
        # more bytes than the phase expects: the rest counts in the next phase; to be strict, so do all of this step
        early = (self.pending[touched] == 0) & (0 < left) & (left < total) & (left % count == 0)
        if early.any():
            total[early] -= left[early]
            self._complete(touched[early], self.order.now << 32)
        pairs = np.unique(np.stack([slots, warps]), axis=1)
        raise_rows(self.gathered, pairs[0], self.clocks.at_send(pairs[1]))
        self.bytes[touched] -= total
        self._complete_if_done(touched)

    def _complete_if_done(self, slots: np.ndarray) -> None:
        done = slots[(self.pending[slots] == 0) & (self.bytes[slots] == 0)]
        if len(done):
            self._complete(done, self.order.now + 1 << 32)

    def _complete(self, slots: np.ndarray, landed: int) -> None:
        """Complete the phase and begin the next; a wait for it acquires the stores before `landed`."""
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
        """The arrivals and bytes that a phase still waits for, as text for findings."""
        return f"{self.pending[slot]} arrivals and {self.bytes[slot]} bytes short in phase {self.phase[slot]}"
