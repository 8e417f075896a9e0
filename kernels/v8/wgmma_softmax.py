"""The wgmma core: online softmax of the rows of scores that a block owns, one warp to a row, two keys to a lane."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

from numba import cuda, float32, int32, uint32

from ..device.reduce import FULL_MASK, NEGATIVE_INFINITY
from ..device.tensor import split
from ..device.vector import ld2
from ..device.wgmma import TERMS, tile_index
from .embedding import Embedding
from .exchange import Exchange
from .schedule import visible_to
from .softmax import (
    LOWEST,
    add_weights,
    greatest_weight,
    inverse_of,
    over_power,
    rescaling,
    weight_ceiling,
    weight_of,
)
from .wgmma_copy import swizzle
from .wgmma_shape import KEYS, Shape

# float32[rows of a warp] each: the row max, a lane's part of the row sum and what its rounding lost, the largest weight
# a key may have, and its ratio to the previous one.
Rows = namedtuple("Rows", "row_max row_sum row_lost ceiling change")


def score_loader(shape: Shape, embedding: Embedding) -> Any:
    """load_scores(shared, tile, table, own, row, lane_id, key, last_key, q_offset, causal) -> a lane's two scores."""
    rows_of_block, parts, bias = shape.rows, shape.cluster * shape.warpgroups, embedding.bias
    parts_at = uint32(shape.layout["parts"])

    @cuda.jit(device=True)
    def load_scores(shared, tile, table, own, row, lane_id, key, last_key, sizes):
        """A lane's two scores of a row: the sum of all parts, biased; minus infinity where the row does not see."""
        at = uint32(parts_at + own * uint32(KEYS) + swizzle(lane_id * uint32(2), row // uint32(2)))
        x, y = ld2(shared, at)
        for part in range(1, parts):
            z, w = ld2(shared, at + uint32(part * rows_of_block * KEYS))
            x += z
            y += w
        if bias is not None:
            distance = int32(sizes.q_offset + int32(tile.first_query + row) - int32(key))
            x += bias(table, tile.bias_head, distance)
            y += bias(table, tile.bias_head, distance - int32(1))
        visible = visible_to(tile, row, last_key, sizes)
        x = x if key < visible else NEGATIVE_INFINITY
        y = y if key + uint32(1) < visible else NEGATIVE_INFINITY
        return x, y

    return load_scores


def weight_sender(shape: Shape, sends: Exchange) -> Any:
    """send_row(shared, row, lane_id, x, y)"""
    cluster, weights_at, send_weights = shape.cluster, uint32(shape.weights_at), sends.send_weights
    high_tile, weights_low = uint32(shape.queries * TERMS), uint32(shape.queries * KEYS)

    @cuda.jit(device=True)
    def send_row(shared, row, lane_id, x, y):
        """A lane's two weights of a row, high and low, to all blocks."""
        high_x, low_x = split(x)
        high_y, low_y = split(y)
        at = tile_index(row, uint32(lane_id % uint32(16) // uint32(2)))
        at = uint32(at + lane_id // uint32(16) * high_tile + lane_id % uint32(2) * uint32(2))
        at = uint32(weights_at + at)
        for to in range(cluster):
            send_weights(shared, at, uint32(to), high_x, high_y)
            send_weights(shared, at + weights_low, uint32(to), low_x, low_y)

    return send_row


def sums_over_lanes(per_warp: int) -> tuple[Any, Any]:
    """raise_ceiling(rows) and finish_sums(rows), for the rows of a warp."""

    @cuda.jit(device=True)
    def raise_ceiling(rows):
        """The largest weight that keys of the next tile may have, from the row sums so far."""
        for i in range(per_warp):
            rows.change[i] = rows.row_sum[i]
        for bit in range(5):
            for i in range(per_warp):
                rows.change[i] += cuda.shfl_xor_sync(FULL_MASK, rows.change[i], 16 >> bit)
        for i in range(per_warp):
            beside = weight_ceiling(over_power(rows.change[i], rows.ceiling[i]), float32(KEYS))
            rows.ceiling[i], rows.change[i] = beside, over_power(beside, rows.ceiling[i])

    @cuda.jit(device=True)
    def finish_sums(rows):
        """The inverse of each row sum, in its place."""
        for bit in range(5):
            for i in range(per_warp):
                rows.row_sum[i] += cuda.shfl_xor_sync(FULL_MASK, rows.row_sum[i], 16 >> bit)
        for i in range(per_warp):
            rows.row_sum[i] = inverse_of(rows.row_sum[i])

    return raise_ceiling, finish_sums


def softmax_of(shape: Shape, embedding: Embedding, sends: Exchange) -> tuple[Any, Any]:
    """Device functions of a kernel: the rows of a warp are in flight together.

    begin(rows, seq_k): the state before the first tile
    weigh(shared, rows, tile, table, warp_id, lane_id, tile_start, last_key, q_offset, causal, more): the weights of a
        tile from the parts of its scores, sent to all blocks with the factors that rescale the output; with `more`
        tiles to come, the next ceiling
    """
    cluster, queries, rows_of_block, apart = shape.cluster, shape.queries, shape.rows, shape.apart
    rescale_at, warps, per_warp = uint32(shape.layout["rescale"]), shape.threads // 32, shape.rows_of_warp
    all_rows = cluster * rows_of_block == queries and rows_of_block % warps == 0
    load_scores, send_row, send_weights = (
        score_loader(shape, embedding),
        weight_sender(shape, sends),
        sends.send_weights,
    )
    raise_ceiling, finish_sums = sums_over_lanes(per_warp)

    @cuda.jit(device=True)
    def begin(rows, seq_k):
        for i in range(per_warp):
            rows.row_max[i] = LOWEST
            rows.row_sum[i], rows.row_lost[i] = float32(0.0), float32(0.0)
            rows.ceiling[i] = greatest_weight(min(seq_k, uint32(KEYS)) if apart else seq_k)
            rows.change[i] = float32(1.0)

    @cuda.jit(device=True)
    def owned_row(warp_id, i, rank):
        """Row `i` of a warp: its number in the block and in the tile, and whether there is one."""
        own = uint32(warp_id + uint32(i * warps))
        row = uint32(rank * uint32(rows_of_block) + own)
        return own, row, all_rows or (own < uint32(rows_of_block) and row < uint32(queries))

    @cuda.jit(device=True)
    def weigh(shared, rows, tile, table, warp_id, lane_id, tile_start, last_key, sizes, more):
        s0 = cuda.local.array(per_warp, float32)
        s1 = cuda.local.array(per_warp, float32)
        new_max = cuda.local.array(per_warp, float32)
        correction = cuda.local.array(per_warp, float32)
        key = uint32(tile_start + uint32(2) * lane_id)
        for i in range(per_warp):
            own, row, there = owned_row(warp_id, i, tile.rank)
            new_max[i] = NEGATIVE_INFINITY
            if there:
                s0[i], s1[i] = load_scores(shared, tile, table, own, row, lane_id, key, last_key, sizes)
                new_max[i] = max(s0[i], s1[i])
        for bit in range(5):
            for i in range(per_warp):
                new_max[i] = max(new_max[i], cuda.shfl_xor_sync(FULL_MASK, new_max[i], 16 >> bit))
        for i in range(per_warp):
            own, row, there = owned_row(warp_id, i, tile.rank)
            if there:
                new_max[i] = max(rows.row_max[i], new_max[i])
                correction[i] = rescaling(rows.row_max[i], new_max[i])
                rows.row_max[i] = new_max[i]
                s0[i] = weight_of(s0[i], new_max[i], rows.ceiling[i])
                s1[i] = weight_of(s1[i], new_max[i], rows.ceiling[i])
                if apart:
                    correction[i] *= rows.change[i]
                    added = add_weights(rows.row_sum[i], rows.row_lost[i], correction[i], s0[i] + s1[i])
                    rows.row_sum[i], rows.row_lost[i] = added
                else:
                    rows.row_sum[i] = correction[i] * rows.row_sum[i] + (s0[i] + s1[i])
                send_row(shared, row, lane_id, s0[i], s1[i])
        if not more:
            finish_sums(rows)
        for i in range(per_warp):
            own, row, there = owned_row(warp_id, i, tile.rank)
            if lane_id < uint32(cluster) and there:
                send_weights(shared, uint32(rescale_at + uint32(2) * row), lane_id, correction[i], rows.row_sum[i])
        if apart and more:
            raise_ceiling(rows)

    return begin, weigh
