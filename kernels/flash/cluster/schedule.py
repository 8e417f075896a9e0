"""Which tile of queries and which slice of the head dim a block of a cluster computes.

The grid is (KV heads of the batch * blocks of a cluster, query heads of a KV head, tiles of queries). With one tile of
keys the first and the last change places, so that tiles that share keys run together and find them in the L2.
"""

from collections import namedtuple
from typing import Any

from numba import cuda, types, uint64

from ...constants import FLOATS, UINT
from ...device.cluster import cluster_rank
from ...device.cuint import CUINT, cuint
from ...device.rows import quotient, rows_of
from ...device.vector import advance
from .shape import GROUP

# rank: of the block in its cluster; it owns groups of dims from `first_dim` on. shared_head and bias_head count KV and
# query heads through the batch.
Tile = namedtuple("Tile", "rank batch kv_head head shared_head bias_head first_query query_count first_dim split")

# `reciprocal` is that of `kv_heads`; the first `embedded_dim` dims are embedded; query i stands at `q_offset` + i.
Sizes = namedtuple("Sizes", "kv_heads reciprocal seq_q seq_k hdim embedded_dim q_offset causal softmax_scale")
SIZES = types.NamedTuple((*(CUINT,) * 6, types.int32, CUINT, types.float32), Sizes)

# Of keys that are split: where the totals of rows go, the keys of a part, and the rows of all heads.
Parts = namedtuple("Parts", "totals keys rows")
PARTS = types.NamedTuple((FLOATS, UINT, UINT), Parts)
NO_PARTS = types.NamedTuple((), namedtuple("NoParts", ""))

Source = namedtuple("Source", "data pitch count")  # rows in global memory, `pitch` elements apart
Slice = namedtuple("Slice", "first_dim buffer")  # dims of a block, and the offset of their K or V in shared memory

# The table of a sequence, how many keys a tile sees, and where the totals of its rows go if keys are split.
Scope = namedtuple("Scope", "table last_key totals sizes")


def tile_of_block(cluster: int, queries: int, heads_last: bool = False, splits: bool = False) -> Any:
    """A device function tile(sizes) -> Tile. With `splits` there are as many tiles for each range of keys."""

    @cuda.jit(device=True)
    def tile(sizes):
        rank = cuint(0)
        if cluster > 1:
            rank = cluster_rank()
        shared_head, index = cuint(cuda.blockIdx.x) // cluster, cuint(cuda.blockIdx.z)
        tiles = cuint(cuda.gridDim.z)
        if heads_last:
            shared_head, index = index, shared_head
            tiles = cuint(cuda.gridDim.x) // cluster
        split = cuint(0)
        if splits:
            tiles = (sizes.seq_q + queries - 1) // queries
            split = index // tiles
            index = index - split * tiles
        batch = quotient(shared_head, sizes.kv_heads, sizes.reciprocal)
        kv_head = shared_head - batch * sizes.kv_heads
        head = kv_head * cuint(cuda.gridDim.y) + cuint(cuda.blockIdx.y)
        bias_head = shared_head * cuint(cuda.gridDim.y) + cuint(cuda.blockIdx.y)
        # the last queries first: with a mask they attend to the most keys
        first_query = (tiles - index - 1) * queries
        query_count = min(queries, sizes.seq_q - first_query)
        first_dim = rank * GROUP
        return Tile(rank, batch, kv_head, head, shared_head, bias_head, first_query, query_count, first_dim, split)

    return tile


@cuda.jit(device=True)
def tensors_of(tile, q, k, v, out, last_key):
    """The tile of q, the rows of a head of k and v up to `last_key`, and the tile of out."""
    q_tile = rows_of(q, tile.batch, tile.head, tile.first_query)
    out_tile = rows_of(out, tile.batch, tile.head, tile.first_query)
    k_head = rows_of(k, tile.batch, tile.kv_head, cuint(0))
    v_head = rows_of(v, tile.batch, tile.kv_head, cuint(0))
    q_rows, out_rows = Source(q_tile, q.row, tile.query_count), Source(out_tile, out.row, tile.query_count)
    return q_rows, Source(k_head, k.row, last_key), Source(v_head, v.row, last_key), out_rows


@cuda.jit(device=True)
def rows_from(rows, first):
    """The rows from `first` on."""
    return Source(advance(rows.data, uint64(first) * uint64(rows.pitch)), rows.pitch, rows.count - first)


@cuda.jit(device=True)
def visible_keys(tile, sizes):
    """Keys that any query of the tile attends to."""
    if sizes.causal != 0:
        return min(sizes.seq_k, sizes.q_offset + tile.first_query + tile.query_count)
    return sizes.seq_k


def split_of(splits: bool) -> tuple[Any, Any]:
    """Device functions range_of(tile, parts, sizes) -> (first, last): the first key of a cluster and the one behind its
    last, and result_of(tile, out, parts, sizes) -> (out, totals): where its output and the totals of its rows go.

    With `splits` a cluster has its part of the keys, `parts.keys` of them at most: none where a mask hides them all.
    """

    @cuda.jit(device=True)
    def all_keys(tile, parts, sizes):
        return cuint(0), visible_keys(tile, sizes)

    @cuda.jit(device=True)
    def whole_result(tile, out, parts, sizes):
        return out, cuint(0)

    @cuda.jit(device=True)
    def keys_of_part(tile, parts, sizes):
        visible = visible_keys(tile, sizes)
        first = min(tile.split * parts.keys, visible)
        return first, min(first + parts.keys, visible)

    @cuda.jit(device=True)
    def part_of_result(tile, out, parts, sizes):
        before = uint64(tile.split) * uint64(parts.rows)
        row = before + uint64(tile.bias_head * sizes.seq_q + tile.first_query)
        part = Source(advance(out.data, before * uint64(sizes.hdim)), out.pitch, out.count)
        return part, advance(parts.totals, uint64(2) * row)

    return (keys_of_part, part_of_result) if splits else (all_keys, whole_result)


@cuda.jit(device=True)
def visible_to(tile, row, last_key, sizes):
    """Of these keys, those that row `row` of the tile attends to."""
    if sizes.causal != 0:
        return min(last_key, sizes.q_offset + tile.first_query + row + 1)
    return last_key
