"""The last accesses to every granule of memory; `order` decides from them whether accesses race."""

import numpy as np
from numba import njit

from .order import I64, THREAD, Order

NEVER = np.zeros(1, I64)  # the stamp of the last barrier of the whole grid


@njit("boolean(int64[:], int64[:], int64[:], int64[:], int64, int64, int64, boolean)")
def _all_settled(table, granules, threads, sync, shift, per_block, warps, own):
    for i in range(len(granules)):
        entry = table[granules[i]]
        other = entry & 0xFFFFFFFF
        if entry == 0 or (own and other == threads[i]):
            continue
        if entry >= sync[threads[i] >> shift] or (other >> 5) % per_block >= warps:
            return False
    return True


@njit("boolean(int64[:], int64[:], int64[:], int64)")
def _record(table, granules, threads, now):
    """Record the threads; return whether any of them shares a granule with another."""
    for i in range(len(granules)):
        table[granules[i]] = threads[i] | now
    for i in range(len(granules)):
        if table[granules[i]] != threads[i] | now:
            return True
    return False


class Shadow:
    """Last accesses to each granule of memory that is `shared` by one "block", one "cluster" or the whole "grid"."""

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

    def _settled(self, table: np.ndarray, granules: np.ndarray, threads: np.ndarray, own: bool = True) -> bool:
        """Whether all entries of `table` for these granules precede the last barrier of all threads that share the
        memory.

        With `own`, entries of the threads themselves count as settled, except those of an mbarrier. This is
        a cheap test that nearly always suffices, before the exact one.
        """
        order = self.order
        sync, shift = {
            "block": (order.block_sync, order.block_shift),
            "cluster": (order.cluster_sync, order.cluster_shift),
            "grid": (NEVER, 63),
        }[self.scope]
        warps = order.clocks.warps if order.clocks is not None else 1 << 32
        return _all_settled(table, granules, threads, sync, shift, 1 << order.block_shift - 5, warps, own)

    def read(self, granules: np.ndarray, threads: np.ndarray) -> np.ndarray | None:
        """Record reads. Returns the racing earlier writers (0 for none), or None."""
        racing = None
        if not self._settled(self.writer, granules, threads):
            writers = self.writer[granules]
            racing = np.where(self.order.unordered(writers, threads), writers, 0)
        now = self.order.now << 32
        if not self._settled(self.reader, granules, threads):
            previous = self.reader[granules]
            apart = (previous ^ threads) & THREAD
            for unit, latest in self.outside:
                moved = (apart >> unit != 0) & (previous != 0)
                latest[granules[moved]] = previous[moved]
        if self.by_warp is not None:
            self.by_warp[self._warp(threads), granules] = threads | now
        if _record(self.reader, granules, threads, now):
            stamps, winners = threads | now, self.reader[granules]
            lost = np.flatnonzero(winners != stamps)
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
        """Record writes. Returns the racing earlier accesses (0 for none), or None.

        `changed` is true where the new value differs from the old one: equal values do not race. `atomic` is None for
        plain stores; else it tells for every instruction of the module whether it is atomic. `record=False` only
        checks. `writer` is recorded instead of `threads`.
        """
        racing = None
        if not self._settled(self.writer, granules, threads):
            writers = self.writer[granules]
            bad = self.order.unordered(writers, threads) & changed
            if atomic is not None:
                bad &= ~atomic[np.frombuffer(self.order.trace, np.int32)[writers >> 32]]
            racing = np.where(bad, writers, 0)
        if not self._settled(self.reader, granules, threads, own=False):  # others may have read before this write
            readers = self.reader[granules]
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
