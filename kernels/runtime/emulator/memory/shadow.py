"""The last accesses of every granule of memory; `order` says how they decide about races."""

from __future__ import annotations

import numpy as np

from .order import I64, THREAD, Order


class Shadow:
    """Last accesses of each granule. `shared` by one "block", one "cluster" or the whole "grid"."""

    def __init__(self, granules: int, order: Order, scope: str) -> None:
        self.order = order
        self.scope = scope
        self.writer = np.zeros(granules, I64)
        self.reader = np.zeros(granules, I64)
        units = [0, 5, order.block_shift, order.cluster_shift]
        count = {"block": 2, "cluster": 3, "grid": 3 if order.cluster == 1 else 4}[scope]
        self.outside = [(unit, np.zeros(granules, I64)) for unit in units[:count]]
        clocks = order.clocks if scope != "grid" else None
        self.by_warp = np.zeros((clocks.warps, granules), I64) if clocks else None

    def _old(self, entries: np.ndarray, threads: np.ndarray) -> np.ndarray:
        """A cheap test: which entries lie before the last barrier of all who share this memory."""
        if self.scope == "grid":
            return entries == 0
        if self.scope == "cluster":
            old = entries < self.order.cluster_sync[threads >> self.order.cluster_shift]
        else:
            old = entries < self.order.block_sync[threads >> self.order.block_shift]
        if self.order.clocks is not None:
            old &= (entries == 0) | ~self.order.clocks.is_agent(entries & THREAD)
        return old

    def _all_old(self, entries: np.ndarray) -> bool:
        """A cheaper test, which may miss some."""
        return bool(entries.max(initial=0) < max(self.order.floors[self.scope], 1))

    def _settled(self, entries: np.ndarray, threads: np.ndarray) -> bool:
        """Whether all entries are old or the threads' own."""
        if self._all_old(entries):
            return True
        settled = self._old(entries, threads) | ((entries & THREAD) == threads)
        return np.count_nonzero(settled) == settled.size

    def read(self, granules: np.ndarray, threads: np.ndarray) -> np.ndarray | None:
        """Record reads. Returns the racing earlier writers (0 where there is none), or None."""
        writers = self.writer[granules]
        racing = None
        if not self._settled(writers, threads):
            racing = np.where(self.order.unordered(writers, threads), writers, 0)
        stamps = threads | (self.order.now << 32)
        previous = self.reader[granules]
        if not self._settled(previous, threads):
            apart = (previous ^ threads) & THREAD
            for unit, latest in self.outside:
                moved = (apart >> unit != 0) & (previous != 0)
                latest[granules[moved]] = previous[moved]
        self.reader[granules] = stamps
        if self.by_warp is not None:
            self.by_warp[self._warp(threads), granules] = stamps
        winners = self.reader[granules]
        differ = winners != stamps
        if np.count_nonzero(differ):
            lost = np.flatnonzero(differ)
            apart = winners[lost] ^ stamps[lost]
            for unit, latest in self.outside:
                differ = lost[apart >> unit != 0]
                latest[granules[differ]] = stamps[differ]
        return racing

    def _warp(self, threads: np.ndarray) -> np.ndarray:
        return (threads >> 5) % (1 << self.order.block_shift - 5)

    def write(
        self,
        granules: np.ndarray,
        threads: np.ndarray,
        changed: np.ndarray,
        atomic: np.ndarray | None,
        record: bool = True,
        writer: np.ndarray | None = None,
    ) -> np.ndarray | None:
        """Record writes. Returns racing earlier accesses (0 where there is none), or None.

        `changed` says where the value differs from the old one: equal values do not race. `atomic` is
        None for plain stores, else it says of every instruction of the module whether it is atomic.
        `record=False` only checks. `writer` goes on record in place of `threads`.
        """
        writers = self.writer[granules]
        racing = None
        if not self._settled(writers, threads):
            bad = self.order.unordered(writers, threads) & changed
            if atomic is not None:
                bad &= ~atomic[np.frombuffer(self.order.trace, np.int32)[writers >> 32]]
            racing = np.where(bad, writers, 0)
        readers = self.reader[granules]
        # where the latest reader is the writer itself, others may race
        if not self._all_old(readers) and not self._old(readers, threads).all():
            others = [latest[granules] for _, latest in self.outside]
            if self.by_warp is not None:
                others += list(self.by_warp[:, granules])
            entries = np.stack([readers, *(latest for latest in others if np.count_nonzero(latest))])
            bad = self.order.unordered(entries, threads)
            if np.count_nonzero(bad):
                first = np.take_along_axis(entries, bad.argmax(axis=0)[None], axis=0)[0]
                first = np.where(bad.any(axis=0), first, 0)
                racing = first if racing is None else np.where(racing == 0, first, racing)
        if record:
            self.writer[granules] = (threads if writer is None else writer) | (self.order.now << 32)
        return racing
