"""Order of accesses by barriers.

Race detection. A step counter `now` stamps every access; a shadow entry is `stamp << 32 | thread`. An earlier access by
u is ordered before one by t if u is t, or if a barrier of the smallest unit that contains both (warp, block, cluster)
completed in between. Thread ids are codes whose upper bits are the codes of warp, block and cluster, so that one shift
gives each.

For every granule the shadow keeps the last writer, the latest reader, and for each unit the latest reader outside the
unit of the latest reader. That decides exactly whether any earlier reader is unordered with a writer: where the latest
reader shares the writer's unit and is ordered, only readers outside that unit can be unordered, and the latest of them
decides.

Kernels with mbarriers need more, as these order single warps: a vector clock for every warp (`Clocks`), and for every
granule the latest reader in each warp of a block.
"""

from __future__ import annotations

from array import array

import numpy as np

I64 = np.int64
THREAD = I64(0xFFFFFFFF)


def bits_for(count: int) -> int:
    return max(count - 1, 0).bit_length()


class Clocks:
    """A vector clock for each warp: `latest[w, u]` is the first step of warp u that is not ordered before warp w.

    u counts the warps of the cluster. After the warps of a block come `AGENTS` entries for its mbarriers: each entry
    represents the asynchronous stores that count at its barrier. These are ordered before a thread that waited for the
    completed phase and before no other: neither the warp that issued them nor a wait for another barrier orders them.
    """

    AGENTS = 16  # barriers of a block that have an entry of their own

    def __init__(self, order: Order, warps: int) -> None:
        self.order, self.warps = order, warps
        self.per_block = 1 << order.block_shift - 5
        self.per_cluster = 1 << order.cluster_shift - 5
        self.latest = np.zeros((len(order.warp_sync), self.per_cluster), I64)
        self.fenced = np.zeros_like(self.latest)  # `latest` at the warp's last proxy fence
        self.fenced_at = np.zeros(len(self.latest), I64)

    def agent(self, block: np.ndarray, number: np.ndarray) -> np.ndarray:
        """The thread code of a barrier, number `number` of the block with that code."""
        return (block << self.order.block_shift) | (self.warps + number % self.AGENTS) << 5

    def is_agent(self, threads: np.ndarray) -> np.ndarray:
        return (threads >> 5) % self.per_block >= self.warps

    def column(self, threads: np.ndarray) -> np.ndarray:
        return (threads >> 5) % self.per_cluster

    def of(self, known: np.ndarray, other: np.ndarray, threads: np.ndarray) -> np.ndarray:
        """Entries of `known` (`latest` or `fenced`) for the warps of `threads` about the warps of `other`."""
        near = (other ^ threads) >> self.order.cluster_shift == 0
        return np.where(near, known[threads >> 5, self.column(other)], 0)

    def at_send(self, warps: np.ndarray) -> np.ndarray:
        """The clocks that a receiver of a message from these warps acquires: all steps so far, one row per warp."""
        rows = self.latest[warps].copy()
        rows[np.arange(len(warps)), warps % self.per_cluster] = self.order.now + 1 << 32
        return rows

    def learn(self, warps: np.ndarray, rows: np.ndarray) -> None:
        raise_rows(self.latest, warps, rows)

    def sync(self, units: np.ndarray, size: int) -> None:
        """Merge the clocks of all warps of each unit of `size` blocks."""
        warps = size * self.per_block
        by_unit = self.latest.reshape(-1, warps, self.per_cluster)
        known = by_unit[units].max(axis=1)
        members = units[:, None] * warps + np.arange(warps)[None, np.arange(warps) % self.per_block < self.warps]
        known[np.arange(len(units))[:, None], members % self.per_cluster] = self.order.now << 32
        by_unit[units] = known[:, None]

    def fence(self, threads: np.ndarray) -> None:
        warps = threads >> 5
        self.fenced[warps] = self.latest[warps]
        self.fenced_at[warps] = self.order.now << 32


def raise_rows(table: np.ndarray, places: np.ndarray, rows: np.ndarray) -> None:
    """table[place] = max(table[place], row) for each; places may repeat."""
    order = np.argsort(places, kind="stable")
    unique, first = np.unique(places[order], return_index=True)
    table[unique] = np.maximum(table[unique], np.maximum.reduceat(rows[order], first, axis=0))


class Order:
    """Step counter and the last barrier of every warp, block and cluster of one launch; `clocks` serve mbarriers."""

    def __init__(self, blocks: int, warps: int, cluster: int, mbarriers: bool = False) -> None:
        self.cluster = cluster
        self.rank_bits = bits_for(cluster)
        self.block_shift = 5 + bits_for(warps + Clocks.AGENTS if mbarriers else warps)
        self.cluster_shift = self.block_shift + self.rank_bits
        codes = -(-blocks // cluster) << self.rank_bits
        self.warp_sync = np.zeros(codes << self.block_shift - 5, I64)
        self.block_sync = np.zeros(codes, I64)
        self.cluster_sync = np.zeros(codes >> self.rank_bits, I64)
        self.proxy_fence: np.ndarray | None = None
        self.clocks = Clocks(self, warps) if mbarriers else None
        self.now = 1
        self.trace = array("i", [-1, -1])  # instruction index of each stamp

    def tick(self, index: int) -> None:
        self.now += 1
        self.trace.append(index)

    def code(self, blocks: np.ndarray) -> np.ndarray:
        """Block codes of linear block indices."""
        return (blocks // self.cluster << self.rank_bits) | blocks % self.cluster

    def block_and_thread(self, code: int) -> tuple[int, int]:
        block = code >> self.block_shift
        cluster, rank = block >> self.rank_bits, block & (1 << self.rank_bits) - 1
        return cluster * self.cluster + rank, code & (1 << self.block_shift) - 1

    def sync_warps(self, warps: np.ndarray) -> None:
        self.warp_sync[warps] = self.now << 32

    def sync_blocks(self, blocks: np.ndarray) -> None:
        self.block_sync[blocks] = self.now << 32
        self.warp_sync.reshape(len(self.block_sync), -1)[blocks] = self.now << 32
        if self.clocks is not None:
            self.clocks.sync(blocks, 1)

    def sync_clusters(self, clusters: np.ndarray) -> None:
        self.cluster_sync[clusters] = self.now << 32
        self.sync_blocks((clusters[:, None] << self.rank_bits | np.arange(1 << self.rank_bits)).ravel())
        if self.clocks is not None:
            self.clocks.sync(clusters, 1 << self.rank_bits)

    def fence_proxy(self, threads: np.ndarray) -> None:
        """From here on the asynchronous proxy sees the writes of these threads, and those that a barrier made visible
        to them.
        """
        if self.proxy_fence is None:
            self.proxy_fence = np.zeros((4, len(self.block_sync) << self.block_shift), I64)
        self.proxy_fence[0, threads] = self.now << 32
        self.proxy_fence[1, threads] = self.warp_sync[threads >> 5]
        self.proxy_fence[2, threads] = self.block_sync[threads >> self.block_shift]
        self.proxy_fence[3, threads] = self.cluster_sync[threads >> self.cluster_shift]
        if self.clocks is not None:
            self.clocks.fence(threads)

    def unfenced(self, writers: np.ndarray, threads: np.ndarray) -> np.ndarray:
        """A mask of writes that no proxy fence covers: neither one of the writer after them, nor one of the reader
        after a barrier.
        """
        if self.proxy_fence is None:
            return writers != 0
        other = writers & THREAD
        apart = other ^ threads
        unit = sum((apart >> shift != 0).astype(int) for shift in (0, 5, self.block_shift))
        fenced = (writers < self.proxy_fence[0, other]) | (writers < self.proxy_fence[unit, threads])
        if self.clocks is not None:
            known = writers < self.clocks.of(self.clocks.fenced, other, threads)
            known &= self.proxy_fence[0, threads] >= self.clocks.fenced_at[threads >> 5]
            fenced = known | fenced & ~self.clocks.is_agent(other)
        return (writers != 0) & ~fenced

    def unordered(self, entries: np.ndarray, threads: np.ndarray) -> np.ndarray:
        """A mask of earlier accesses that are not ordered before an access by `threads` now."""
        other = entries & THREAD
        apart = other ^ threads
        since = np.where(
            apart >> self.block_shift == 0,
            np.where(apart >> 5 == 0, self.warp_sync[threads >> 5], self.block_sync[threads >> self.block_shift]),
            np.where(apart >> self.cluster_shift == 0, self.cluster_sync[threads >> self.cluster_shift], 0),
        )
        if self.clocks is not None:
            known = self.clocks.of(self.clocks.latest, other, threads)
            since = np.where(self.clocks.is_agent(other), known, np.maximum(since, known))
        return (entries != 0) & (apart != 0) & (entries >= since)
