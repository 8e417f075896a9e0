"""The exchange of scores and weights between the blocks of a cluster, counted by two mbarriers of the receiver.

Every block has a slice of the dims, so it has a part of each score. Parts go to the block that owns the row; its
weights go to all blocks. In a cluster of one block both stay in its shared memory, with block barriers.
"""

from collections import namedtuple
from typing import Any

from numba import cuda, float32

from ...device import ld2, repeat, st2
from ...device.cluster import (
    barrier_expect,
    barrier_init,
    barrier_init_fence,
    barrier_wait,
    cluster_send2,
    cluster_start,
)
from .shape import BARRIER

# Device functions that `exchange` makes; `rank` is that of the block.
#     start(shared, rank, first): initialise the mbarriers, by the thread where `first` is true
#     send_scores(shared, slot, row, key, x, y): part `slot` of the scores of `key` and the next, to the row's owner
#     await_scores(shared, rank, tid, phase, more): all parts of this block's rows; with `more`, expect the next tile's
#     load_scores(shared, s, at, own, row, lane_id): the sums of the parts, of two keys a lane of the block's row `own`
#     send_weights(shared, at, x, y): two weights to all blocks
#     send_factors(shared, at, to, x, y): what rescales a row of the output, to block `to`
#     await_weights(shared, tid, phase, more): all weights and factors of the tile
Exchange = namedtuple("Exchange", "start send_scores await_scores load_scores send_weights send_factors await_weights")


def sender(cluster: int, barrier: int) -> Any:
    """send(shared, at, to, x, y): two float32 to shared[at : at + 2] of block `to`, counted by its mbarrier."""

    @cuda.jit(device=True)
    def send(shared, at, to, x, y):
        if cluster > 1:
            cluster_send2(shared, at, to, x, y, barrier)
        else:
            st2(shared, at, x, y)

    return send


def exchange(shape: Any, weight_floats: int) -> Exchange:
    """The exchange of a kernel; a row of weights has `weight_floats` float32."""
    cluster, queries, rows, keys, parts = shape.cluster, shape.queries, shape.rows, shape.keys, shape.parts
    parts_at, parts_arrived = shape.layout["parts"], shape.layout["arrived"]
    weights_arrived, row_bytes = parts_arrived + BARRIER, 4 * parts * keys
    weights_bytes = 4 * queries * (weight_floats + 2)  # with the factors
    send_part, send_weight = sender(cluster, parts_arrived), sender(cluster, weights_arrived)

    @cuda.jit(device=True)
    def expect_scores(shared, rank):
        owned = min(rows, queries - min(queries, rank * rows))
        barrier_expect(shared, parts_arrived, owned * row_bytes)

    @cuda.jit(device=True)
    def start(shared, rank, first):
        if cluster > 1:
            if first:
                barrier_init(shared, parts_arrived, 1)
                barrier_init(shared, weights_arrived, 1)
                barrier_init_fence()
            cuda.syncwarp()  # the warp as a whole may initialise them, as racecheck sees it
            if first:
                expect_scores(shared, rank)
                barrier_expect(shared, weights_arrived, weights_bytes)
            cluster_start()

    @cuda.jit(device=True)
    def place_of(part, own, row, key):
        """The float of a score, swizzled so that the lanes that send it have no bank conflicts."""
        return parts_at + (part * rows + own) * keys + (key ^ row // 2 % 4 * 8 % keys)

    @cuda.jit(device=True)
    def send_scores(shared, slot, row, key, x, y):
        send_part(shared, place_of(slot, row % rows, row, key), row // rows, x, y)

    @cuda.jit(device=True)
    def add_part(part, shared, s, at, own, row, lane_id):
        x, y = ld2(shared, place_of(part, own, row, 2 * lane_id))
        s[at], s[at + 1] = s[at] + x, s[at + 1] + y

    add_parts = repeat(add_part, parts)

    @cuda.jit(device=True)
    def load_scores(shared, s, at, own, row, lane_id):
        s[at], s[at + 1] = float32(0.0), float32(0.0)
        if 2 * lane_id < keys:
            add_parts(shared, s, at, own, row, lane_id)

    @cuda.jit(device=True)
    def await_scores(shared, rank, tid, phase, more):
        if cluster > 1:
            barrier_wait(shared, parts_arrived, phase)
            if more:
                cuda.syncthreads()
                if tid == 0:
                    expect_scores(shared, rank)
        else:
            cuda.syncthreads()

    @cuda.jit(device=True)
    def send_weights(shared, at, x, y):
        for to in range(cluster):
            send_weight(shared, at, to, x, y)

    @cuda.jit(device=True)
    def await_weights(shared, tid, phase, more):
        if cluster > 1:
            barrier_wait(shared, weights_arrived, phase)
            if tid == 0 and more:
                barrier_expect(shared, weights_arrived, weights_bytes)

    return Exchange(start, send_scores, await_scores, load_scores, send_weights, send_weight, await_weights)
