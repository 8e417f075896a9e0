"""The shadow decides about races exactly as a complete history of all accesses would."""

import numpy as np
import pytest

from kernels.runtime.emulator.memory.order import Order
from kernels.runtime.emulator.memory.shadow import Shadow

WARPS, BLOCKS, GRANULES = 2, 4, 3


class History:
    """Every access ever made: (granule, stamp, thread)."""

    def __init__(self, order: Order) -> None:
        self.order = order
        self.readers: list[tuple[int, int, int]] = []
        self.writers: dict[int, tuple[int, int]] = {}

    def unordered(self, stamp: int, other: int, thread: int) -> bool:
        order = self.order
        if other == thread:
            return False
        if other >> 5 == thread >> 5:
            return stamp >= order.warp_sync[thread >> 5] >> 32
        if other >> order.block_shift == thread >> order.block_shift:
            return stamp >= order.block_sync[thread >> order.block_shift] >> 32
        if other >> order.cluster_shift == thread >> order.cluster_shift:
            return stamp >= order.cluster_sync[thread >> order.cluster_shift] >> 32
        return True

    def races_with_writer(self, granule: int, thread: int) -> bool:
        return granule in self.writers and self.unordered(*self.writers[granule], thread)

    def races_with_reader(self, granule: int, thread: int) -> bool:
        return any(g == granule and self.unordered(stamp, other, thread) for g, stamp, other in self.readers)


@pytest.mark.parametrize("scope, cluster", [("block", 1), ("cluster", 2), ("cluster", 4), ("grid", 1), ("grid", 2)])
@pytest.mark.parametrize("seed", range(6))
def test_shadow_is_exact(scope: str, cluster: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    order = Order(BLOCKS, WARPS, cluster)
    units = {"block": BLOCKS, "cluster": BLOCKS // cluster, "grid": 1}[scope]
    shadow, history = Shadow(units * GRANULES, order, scope), History(order)
    codes = order.code(np.arange(BLOCKS))
    seen = {True: 0, False: 0}
    for _ in range(400):
        order.tick(0)
        if rng.random() < 0.25:
            level, which = rng.integers(0, 3), rng.integers(0, BLOCKS)
            if level == 0:
                order.sync_warps(np.array([(codes[which] << order.block_shift >> 5) + rng.integers(0, WARPS)]))
            elif level == 1:
                order.sync_blocks(codes[[which]])
            else:
                order.sync_clusters(np.array([which // cluster]))
            continue
        # some lanes of one warp index, in all or some blocks
        block = rng.permutation(BLOCKS)[: rng.integers(1, BLOCKS + 1)].repeat(rng.integers(1, 4))
        lane = rng.integers(0, 3, len(block))
        threads = (codes[block] << order.block_shift) | (32 * rng.integers(0, WARPS)) | lane
        threads, first = np.unique(threads, return_index=True)
        owner = {"block": block, "cluster": block // cluster, "grid": np.zeros_like(block)}[scope][first]
        granules = owner * GRANULES + rng.integers(0, GRANULES, len(threads))
        writes = rng.random() < 0.3
        pairs = list(zip(granules.tolist(), threads.tolist(), strict=True))
        expected = [history.races_with_writer(g, t) or (writes and history.races_with_reader(g, t)) for g, t in pairs]
        if writes:
            racing = shadow.write(granules, threads, np.ones(len(threads), bool), None)
            history.writers.update({g: (order.now, t) for g, t in pairs})
        else:
            racing = shadow.read(granules, threads)
            history.readers += [(g, order.now, t) for g, t in pairs]
        found = [False] * len(pairs) if racing is None else (racing != 0).tolist()
        assert found == expected
        for race in expected:
            seen[race] += 1
    assert min(seen.values()) > 20
