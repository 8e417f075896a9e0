"""The wgmma core: keys that many blocks need are embedded once, by all of these blocks together, in global memory.

Every block takes tiles of keys until none is left, embeds them and counts those. A waiting block has found none left,
so no block waits for one that has not started. The last block past the wait resets the counters.
"""

from collections import namedtuple
from typing import Any

from numba import cuda, float32, int32, uint32, uint64

from ....device.atomic import atomic_add, fence, give_way
from ....device.reduce import FULL_MASK
from ....device.vector import advance
from ..schedule import Source
from .shape import KEYS, Shape

NEXT_TILE, TILES_DONE, BLOCKS_DONE, COUNTERS = range(4)


# What a block knows of its keys: their counters, the tile that it has taken, and, in the first warp, how many are done
# and how many blocks are past the wait.
Work = namedtuple("Work", "counters taken done first_warp served")


@cuda.jit(device=True)
def end_prerotation(work, tid):
    if tid == 0 and work.served == int32(cuda.gridDim.y * cuda.gridDim.z):
        fence()
        work.counters[NEXT_TILE], work.counters[TILES_DONE] = 0, 0
        atomic_add(work.counters, BLOCKS_DONE, -work.served, True)


def prerotation(shape: Shape, embed_tile: Any) -> tuple[Any, Any, Any]:
    """Device functions; `embed_tile` embeds a block's slice of a tile.

    begin(states, tile, tid) -> Work
    embed(...) -> Work: all tiles are taken
    await_all(work, tid, seq_k) -> Work: all tiles are embedded
    """
    cluster, taken_at = shape.cluster, uint32(shape.layout["taken"])

    @cuda.jit(device=True)
    def tiles_of(seq_k):
        return int32(uint32(seq_k + uint32(KEYS - 1)) // uint32(KEYS))

    @cuda.jit(device=True)
    def begin(states, tile, tid):
        first_warp = cuda.shfl_sync(FULL_MASK, int32(tid // uint32(32)), 0) == 0
        counters = advance(states, uint32((tile.shared_head * uint32(cluster) + tile.rank) * uint32(COUNTERS)))
        taken = atomic_add(counters, NEXT_TILE, 1, tid == 0)
        return Work(counters, taken, atomic_add(counters, TILES_DONE, 0, tid == 0), first_warp, int32(0))

    @cuda.jit(device=True)
    def embed(shared, work, tid, keys, to, table, first_dim, copied_dim, sizes):
        counters, taken, done, all_tiles = work.counters, work.taken, work.done, tiles_of(sizes.seq_k)
        if tid == 0:
            shared[taken_at] = float32(taken)
        cuda.syncthreads()
        taken, turn = int32(shared[taken_at]), uint32(0)
        while taken < all_tiles:
            turn ^= uint32(1)
            next_taken = atomic_add(counters, NEXT_TILE, 1, tid == 0)
            first_key = uint32(taken * KEYS)
            source = advance(keys.data, uint64(first_key) * uint64(keys.pitch))
            target, count = advance(to, uint64(first_key) * uint64(sizes.hdim)), uint32(sizes.seq_k - first_key)
            rows = Source(source, keys.pitch, count)
            embed_tile(rows, target, table, first_key, first_dim, copied_dim, sizes)
            if tid == 0:
                shared[taken_at + turn] = float32(next_taken)
            cuda.syncthreads()
            if work.first_warp:
                fence()
                done = atomic_add(counters, TILES_DONE, 1, tid == 0) + int32(1)
            taken = int32(shared[taken_at + turn])
        return Work(counters, taken, done, work.first_warp, work.served)

    @cuda.jit(device=True)
    def await_all(work, tid, seq_k):
        counters, done, served = work.counters, work.done, int32(0)
        if work.first_warp:
            done = cuda.shfl_sync(FULL_MASK, done, 0)
            while done < tiles_of(seq_k):
                give_way()
                done = cuda.shfl_sync(FULL_MASK, atomic_add(counters, TILES_DONE, 0, tid == 0), 0)
            fence()
            served = atomic_add(counters, BLOCKS_DONE, 1, tid == 0) + int32(1)
        cuda.syncthreads()
        return Work(counters, work.taken, done, work.first_warp, served)

    return begin, embed, await_all
