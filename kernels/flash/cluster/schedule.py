"""Which tile of queries and which slice of the head dim a block of a cluster computes.

The grid is (KV heads of the batch * blocks of a cluster, query heads of a KV head, tiles of queries). With one tile of
keys the first and the last change places, so that tiles that share keys run together and find them in the L2.
"""

from collections import namedtuple
from typing import Any

from numba import cuda, int32, types, uint32, uint64

from ...device.cluster import cluster_rank
from ...device.rows import quotient, rows_of
from ...device.vector import advance
from .shape import GROUP

# rank: of the block in its cluster; it owns groups of dims from `first_dim` on. shared_head and bias_head count KV and
# query heads through the batch.
Tile = namedtuple("Tile", "rank batch kv_head head shared_head bias_head first_query query_count first_dim split")


# `reciprocal` is that of `kv_heads`; the first `embedded_dim` dims are embedded; query i stands at `q_offset` + i.
Sizes = namedtuple("Sizes", "kv_heads reciprocal seq_q seq_k hdim embedded_dim q_offset causal softmax_scale")
SIZES = types.NamedTuple((*(types.uint32,) * 6, types.int32, types.uint32, types.float32), Sizes)


def tile_of_block(cluster: int, queries: int, heads_last: bool = False, splits: bool = False) -> Any:
    """A device function tile(sizes) -> Tile. With `splits` there are as many tiles for each range of keys."""

    @cuda.jit(device=True)
    def tile(sizes):
        rank = uint32(0)
        if cluster > 1:
            rank = cluster_rank()
        shared_head, index = uint32(uint32(cuda.blockIdx.x) // uint32(cluster)), uint32(cuda.blockIdx.z)
        tiles = uint32(cuda.gridDim.z)
        if heads_last:
            shared_head, index = index, shared_head
            tiles = uint32(uint32(cuda.gridDim.x) // uint32(cluster))
        split = uint32(0)
        if splits:
            tiles = uint32((sizes.seq_q + uint32(queries - 1)) // uint32(queries))
            split = uint32(index // tiles)
            index = uint32(index - split * tiles)
        batch = quotient(shared_head, sizes.kv_heads, sizes.reciprocal)
        kv_head = uint32(shared_head - batch * sizes.kv_heads)
        head = uint32(kv_head * uint32(cuda.gridDim.y) + uint32(cuda.blockIdx.y))
        bias_head = uint32(shared_head * uint32(cuda.gridDim.y) + uint32(cuda.blockIdx.y))
        # the last queries first: with a mask they attend to the most keys
        first_query = uint32((tiles - index - uint32(1)) * uint32(queries))
        query_count = uint32(min(uint32(queries), uint32(sizes.seq_q - first_query)))
        first_dim = uint32(rank * uint32(GROUP))
        return Tile(rank, batch, kv_head, head, shared_head, bias_head, first_query, query_count, first_dim, split)

    return tile


@cuda.jit(device=True)
def tensors_of(tile, q, k, v, out):
    """The tile of q, the heads of k and v, and the tile of out."""
    q_tile = rows_of(q, tile.batch, tile.head, tile.first_query)
    out_tile = rows_of(out, tile.batch, tile.head, tile.first_query)
    k_head = rows_of(k, tile.batch, tile.kv_head, uint32(0))
    v_head = rows_of(v, tile.batch, tile.kv_head, uint32(0))
    return q_tile, k_head, v_head, out_tile


@cuda.jit(device=True)
def visible_keys(tile, sizes):
    """Keys that any query of the tile attends to."""
    if sizes.causal:
        return uint32(min(sizes.seq_k, uint32(sizes.q_offset + int32(tile.first_query + tile.query_count))))
    return sizes.seq_k


def range_of_split(splits: bool) -> Any:
    """A device function range_of(tile, keys, sizes) -> the first key of a cluster, and the one behind its last.

    With `splits` it has its part of the keys, `keys` of them at most; the two are the same where a mask leaves none.
    """

    @cuda.jit(device=True)
    def range_of(tile, keys, sizes):
        first, last = uint32(0), visible_keys(tile, sizes)
        if splits:
            first = uint32(min(uint32(tile.split * keys), last))
            last = uint32(min(uint32(first + keys), last))
        return first, last

    return range_of


@cuda.jit(device=True)
def part_of(tile, out_tile, totals, rows, sizes):
    """Where the part of a cluster is, `rows` of all heads behind the split before, and the totals of its rows."""
    first = uint64(tile.split) * uint64(rows)
    at = first + uint64(uint32(tile.bias_head * sizes.seq_q + tile.first_query))
    return advance(out_tile, first * uint64(sizes.hdim)), advance(totals, uint64(2) * at)


@cuda.jit(device=True)
def visible_to(tile, row, last_key, sizes):
    """Of these keys, those that row `row` of the tile attends to."""
    if sizes.causal:
        return uint32(min(last_key, uint32(sizes.q_offset + int32(tile.first_query + row) + int32(1))))
    return last_key
