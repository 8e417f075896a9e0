"""Queries, keys and dims of a block.

The grid is (KV heads of the batch * blocks of a cluster, query heads of a KV head, tiles of queries). With `heads_last`
the first and the last are exchanged, so that tiles that share keys run together and find them in the L2.
"""

from collections import namedtuple
from typing import Any

from numba import cuda, types, uint64

from ...constants import FLOATS
from ...device import CUINT, advance, cuint
from ...device.cluster import cluster_rank
from ...device.rows import quotient, rows_of
from .embedding import Embedding
from .shape import GROUP

# `reciprocal` is that of `kv_heads`; the first `embedded_dim` dims are embedded; query i has index `q_offset` + i.
Sizes = namedtuple("Sizes", "kv_heads reciprocal seq_q seq_k hdim embedded_dim q_offset causal softmax_scale")
SIZES = types.NamedTuple((*(CUINT,) * 6, types.int32, CUINT, types.float32), Sizes)

# Split keys: the address of row maxima and sums, the keys of a part, and the number of rows of all heads.
Parts = namedtuple("Parts", "totals keys rows")
PARTS = types.NamedTuple((FLOATS, CUINT, CUINT), Parts)

# rank: of the block in its cluster; it has groups of dims from `first_dim` on. bias_head counts through the batch.
Tile = namedtuple("Tile", "rank bias_head first_query query_count first_dim first_key")
Source = namedtuple("Source", "data pitch count")  # rows in global memory, `pitch` elements apart
Slice = namedtuple("Slice", "first_dim buffer")  # dims of a block, and the offset of their K or V in shared memory

# The table of a sequence, the end of the keys that the tile sees, and the address of its row maxima and sums.
Scope = namedtuple("Scope", "table last_key totals sizes")


@cuda.jit(device=True)
def rows_from(rows, first):
    """The rows from `first` on."""
    return Source(advance(rows.data, uint64(first) * uint64(rows.pitch)), rows.pitch, rows.count - first)


def block_of(shape: Any, embedding: Embedding, heads_last: bool = False) -> Any:
    """block(q, k, v, out, table, parts, sizes) -> (Tile, Scope, queries, keys, values, results) of a block.

    `queries` and `results` are the rows of its tile, `keys` and `values` those of its head up to `last_key`. With
    `shape.splits` a cluster has `parts.keys` keys at most, none where the mask hides them all, and stores a part.
    """
    cluster, tile_queries, splits, table_of_batch = shape.cluster, shape.queries, shape.splits, embedding.table_of_batch

    @cuda.jit(device=True)
    def block(q, k, v, out, table, parts, sizes):
        rank, split = cuint(0), cuint(0)
        if cluster > 1:
            rank = cluster_rank()
        shared_head, index = cuint(cuda.blockIdx.x) // cluster, cuint(cuda.blockIdx.z)
        if heads_last:
            shared_head, index = index, shared_head
        tiles = (sizes.seq_q + tile_queries - 1) // tile_queries
        if splits:
            split = index // tiles
            index = index - split * tiles
        batch = quotient(shared_head, sizes.kv_heads, sizes.reciprocal)
        kv_head = shared_head - batch * sizes.kv_heads
        head = kv_head * cuint(cuda.gridDim.y) + cuint(cuda.blockIdx.y)
        bias_head = shared_head * cuint(cuda.gridDim.y) + cuint(cuda.blockIdx.y)
        # the last queries first: with a mask they attend to the most keys
        first_query = (tiles - index - 1) * tile_queries
        count = min(tile_queries, sizes.seq_q - first_query)
        first_key, last_key = cuint(0), sizes.seq_k
        if sizes.causal != 0:
            last_key = min(last_key, sizes.q_offset + first_query + count)
        results, totals = rows_of(out, batch, head, first_query), parts.totals
        if splits:
            first_key = min(split * parts.keys, last_key)
            last_key = min(first_key + parts.keys, last_key)
            before = uint64(split) * uint64(parts.rows)
            results = advance(results, before * uint64(sizes.hdim))
            totals = advance(totals, uint64(2) * (before + uint64(bias_head * sizes.seq_q + first_query)))
        if table_of_batch is not None:
            table = table_of_batch(table, batch)
        return (
            Tile(rank, bias_head, first_query, count, rank * GROUP, first_key),
            Scope(table, last_key, totals, sizes),
            Source(rows_of(q, batch, head, first_query), q.row, count),
            Source(rows_of(k, batch, kv_head, cuint(0)), k.row, last_key),
            Source(rows_of(v, batch, kv_head, cuint(0)), v.row, last_key),
            Source(results, out.row, count),
        )

    return block
