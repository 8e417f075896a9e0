"""The exchange of scores and weights between the blocks of a cluster, counted by two mbarriers of the receiver.

Every block has a slice of the dims, so it has a part of each score. Parts go to the block that owns the row; its
weights go to all blocks. In a cluster of one block both stay in its shared memory, behind block barriers.
"""

from collections import namedtuple

from numba import cuda

from ...device.cluster import (
    barrier_expect,
    barrier_init,
    barrier_init_fence,
    barrier_wait,
    cluster_send,
    cluster_send2,
    cluster_start,
)
from ...device.vector import st2
from .shape import BARRIER

# Device functions that `exchange` makes.
#     start(shared, first, owned): initialise the mbarriers by the thread where `first` is true, to receive `owned` rows
#     send_part(shared, at, owner, x, y): two scores to the owner of their row
#     send_weight(shared, at, to, x) and send_weights(shared, at, to, x, y): one or two weights to block `to`
#     await_parts(shared, tid, phase, owned, more): all parts of this block's rows; with `more`, expect the next tile's
#     await_weights(shared, tid, phase, more): all weights and factors of the tile
Exchange = namedtuple("Exchange", "start send_part send_weight send_weights await_parts await_weights")


def exchange(cluster: int, arrived: int, row_bytes: int, weights_bytes: int) -> Exchange:
    """The exchange of a kernel whose mbarriers are at float `arrived`.

    row_bytes: what the owner of a row receives per tile. weights_bytes: what every block receives per tile.
    """
    parts_arrived, weights_arrived = arrived, arrived + BARRIER
    bytes_of_row, bytes_of_weights = row_bytes, weights_bytes

    @cuda.jit(device=True)
    def start(shared, first, owned):
        if cluster > 1:
            if first:
                barrier_init(shared, parts_arrived, 1)
                barrier_init(shared, weights_arrived, 1)
                barrier_init_fence()
            cuda.syncwarp()  # the warp as a whole may initialise them, as racecheck sees it
            if first:
                barrier_expect(shared, parts_arrived, owned * bytes_of_row)
                barrier_expect(shared, weights_arrived, bytes_of_weights)
            cluster_start()

    @cuda.jit(device=True)
    def send_part(shared, at, owner, x, y):
        if cluster > 1:
            cluster_send2(shared, at, owner, x, y, parts_arrived)
        else:
            st2(shared, at, x, y)

    @cuda.jit(device=True)
    def send_weight(shared, at, to, x):
        if cluster > 1:
            cluster_send(shared, at, to, x, weights_arrived)
        else:
            shared[at] = x

    @cuda.jit(device=True)
    def send_weights(shared, at, to, x, y):
        if cluster > 1:
            cluster_send2(shared, at, to, x, y, weights_arrived)
        else:
            st2(shared, at, x, y)

    @cuda.jit(device=True)
    def await_parts(shared, tid, phase, owned, more):
        if cluster > 1:
            barrier_wait(shared, parts_arrived, phase)
            if more:
                cuda.syncthreads()
                if tid == 0:
                    barrier_expect(shared, parts_arrived, owned * bytes_of_row)
        else:
            cuda.syncthreads()

    @cuda.jit(device=True)
    def await_weights(shared, tid, phase, more):
        if cluster > 1:
            barrier_wait(shared, weights_arrived, phase)
            if tid == 0 and more:
                barrier_expect(shared, weights_arrived, bytes_of_weights)

    return Exchange(start, send_part, send_weight, send_weights, await_parts, await_weights)
