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
Tile = namedtuple("Tile", "rank batch kv_head head shared_head bias_head first_query query_count first_dim")

# `reciprocal` is that of `kv_heads`; the first `embedded_dim` dims are embedded; query i stands at `q_offset` + i.
Sizes = namedtuple("Sizes", "kv_heads reciprocal seq_q seq_k hdim embedded_dim q_offset causal softmax_scale")
SIZES = types.NamedTuple((*(types.uint32,) * 6, types.int32, types.uint32, types.float32), Sizes)

Source = namedtuple("Source", "data pitch count")  # rows in global memory, `pitch` elements apart
Slice = namedtuple("Slice", "first_dim buffer")  # dims of a block, and the offset of their K or V in shared memory

Scope = namedtuple("Scope", "table last_key sizes")  # the table of a sequence, and how many keys a tile sees


def tile_of_block(cluster: int, queries: int, heads_last: bool = False) -> Any:
    """A device function tile(sizes) -> Tile."""

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
        batch = quotient(shared_head, sizes.kv_heads, sizes.reciprocal)
        kv_head = uint32(shared_head - batch * sizes.kv_heads)
        head = uint32(kv_head * uint32(cuda.gridDim.y) + uint32(cuda.blockIdx.y))
        bias_head = uint32(shared_head * uint32(cuda.gridDim.y) + uint32(cuda.blockIdx.y))
        # the last queries first: with a mask they attend to the most keys
        first_query = uint32((tiles - index - uint32(1)) * uint32(queries))
        query_count = uint32(min(uint32(queries), uint32(sizes.seq_q - first_query)))
        first_dim = uint32(rank * uint32(GROUP))
        return Tile(rank, batch, kv_head, head, shared_head, bias_head, first_query, query_count, first_dim)

    return tile


@cuda.jit(device=True)
def tensors_of(tile, q, k, v, out, sizes):
    """The tile of q, the rows of a head of k and v that it sees, and the tile of out."""
    q_tile = rows_of(q, tile.batch, tile.head, tile.first_query)
    out_tile = rows_of(out, tile.batch, tile.head, tile.first_query)
    k_head = rows_of(k, tile.batch, tile.kv_head, uint32(0))
    v_head = rows_of(v, tile.batch, tile.kv_head, uint32(0))
    last_key = visible_keys(tile, sizes)
    q_rows, out_rows = Source(q_tile, q.row, tile.query_count), Source(out_tile, out.row, tile.query_count)
    return q_rows, Source(k_head, k.row, last_key), Source(v_head, v.row, last_key), out_rows


@cuda.jit(device=True)
def rows_from(rows, first):
    """The rows from `first` on."""
    return Source(advance(rows.data, uint64(first) * uint64(rows.pitch)), rows.pitch, uint32(rows.count - first))


@cuda.jit(device=True)
def visible_keys(tile, sizes):
    """Keys that any query of the tile attends to."""
    if sizes.causal:
        return uint32(min(sizes.seq_k, uint32(sizes.q_offset + int32(tile.first_query + tile.query_count))))
    return sizes.seq_k


@cuda.jit(device=True)
def visible_to(tile, row, last_key, sizes):
    """Of these keys, those that row `row` of the tile attends to."""
    if sizes.causal:
        return uint32(min(last_key, uint32(sizes.q_offset + int32(tile.first_query + row) + int32(1))))
    return last_key
