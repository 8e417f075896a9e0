"""The wgmma core: online softmax of the rows of scores that a block owns, one warp to a row, two keys to a lane."""

from typing import Any

from numba import cuda, float32, int32, uint32

from ....device.reduce import FULL_MASK, NEGATIVE_INFINITY
from ....device.tensor import split
from ....device.vector import ld2, st2
from ....device.wgmma import TERMS, tile_index
from ..embedding import Embedding
from ..exchange import Exchange
from ..schedule import visible_to
from ..softmax import (
    LOG2_E,
    LOWEST,
    add_weights,
    greatest_weight,
    inverse_of,
    over_power,
    rescaling,
    weight_ceiling,
    weight_of,
)
from .copy import swizzle
from .shape import KEYS, Shape

# The state of a row, float32[5, rows of a warp]: the row max, a lane's part of the row sum and what its rounding lost,
# the largest weight a key may have, and its ratio to the previous one.
STATE = 5
ROW_MAX, ROW_SUM, ROW_LOST, CEILING, CHANGE = range(STATE)


def score_loader(shape: Shape, embedding: Embedding) -> Any:
    """A device function that loads a lane's two scores of a row."""
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
    """A device function that sends a lane's two weights of a row, high and low, to all blocks."""
    cluster, weights_at, send_weights = shape.cluster, uint32(shape.weights_at), sends.send_weights
    high_tile, weights_low = uint32(shape.queries * TERMS), uint32(shape.queries * KEYS)

    @cuda.jit(device=True)
    def send_row(shared, row, lane_id, x, y):
        high_x, low_x = split(x)
        high_y, low_y = split(y)
        at = tile_index(row, uint32(lane_id % uint32(16) // uint32(2)))
        at = uint32(at + lane_id // uint32(16) * high_tile + lane_id % uint32(2) * uint32(2))
        at = uint32(weights_at + at)
        for to in range(cluster):
            send_weights(shared, at, uint32(to), high_x, high_y)
            send_weights(shared, at + weights_low, uint32(to), low_x, low_y)

    return send_row


def sums_over_lanes(per_warp: int) -> tuple[Any, Any, Any]:
    """sum_lanes(rows, which), raise_ceiling(rows) and finish_sums(rows), for the rows of a warp."""

    @cuda.jit(device=True)
    def sum_lanes(rows, which):
        for bit in range(5):
            for i in range(per_warp):
                rows[which, i] += cuda.shfl_xor_sync(FULL_MASK, rows[which, i], 16 >> bit)

    @cuda.jit(device=True)
    def raise_ceiling(rows):
        """The largest weight that keys of the next tile may have, from the row sums so far."""
        for i in range(per_warp):
            rows[CHANGE, i] = rows[ROW_SUM, i]
        sum_lanes(rows, CHANGE)
        for i in range(per_warp):
            beside = weight_ceiling(over_power(rows[CHANGE, i], rows[CEILING, i]), float32(KEYS))
            rows[CEILING, i], rows[CHANGE, i] = beside, over_power(beside, rows[CEILING, i])

    @cuda.jit(device=True)
    def finish_sums(rows):
        """The inverse of each row sum, in its place."""
        sum_lanes(rows, ROW_SUM)
        for i in range(per_warp):
            rows[ROW_SUM, i] = inverse_of(rows[ROW_SUM, i])

    return sum_lanes, raise_ceiling, finish_sums


def softmax_of(shape: Shape, embedding: Embedding, sends: Exchange) -> tuple[Any, Any]:
    """Device functions of a kernel: the rows of a warp are in flight together.

    begin(rows, seq_k): the state before the first tile
    weigh(...): the weights of a tile from the parts of its scores, sent to all blocks with the factors that rescale the
        output; with `more` tiles to come, the next ceiling, else, where keys are split, the `totals` of the rows
    """
    cluster, queries, rows_of_block, apart = shape.cluster, shape.queries, shape.rows, shape.apart
    rescale_at, warps, per_warp = uint32(shape.layout["rescale"]), shape.threads // 32, shape.rows_of_warp
    all_rows = cluster * rows_of_block == queries and rows_of_block % warps == 0
    load_scores, send_row = score_loader(shape, embedding), weight_sender(shape, sends)
    send_weights, (sum_lanes, raise_ceiling, finish_sums) = sends.send_weights, sums_over_lanes(per_warp)
    splits = shape.splits

    @cuda.jit(device=True)
    def begin(rows, seq_k):
        for i in range(per_warp):
            rows[ROW_MAX, i] = LOWEST
            rows[ROW_SUM, i], rows[ROW_LOST, i] = float32(0.0), float32(0.0)
            rows[CEILING, i] = greatest_weight(min(seq_k, uint32(KEYS)) if apart else seq_k)
            rows[CHANGE, i] = float32(1.0)

    @cuda.jit(device=True)
    def owned_row(warp_id, i, rank):
        """Row `i` of a warp: its number in the block and in the tile, and whether there is one."""
        own = uint32(warp_id + uint32(i * warps))
        row = uint32(rank * uint32(rows_of_block) + own)
        return own, row, all_rows or (own < uint32(rows_of_block) and row < uint32(queries))

    @cuda.jit(device=True)
    def weigh(shared, rows, tile, table, thread, tile_start, last_key, sizes, more, totals):
        warp_id, lane_id = thread.warp_id, thread.lane_id
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
                new_max[i] = max(rows[ROW_MAX, i], new_max[i])
                correction[i] = rescaling(rows[ROW_MAX, i], new_max[i])
                rows[ROW_MAX, i] = new_max[i]
                s0[i] = weight_of(s0[i], new_max[i], rows[CEILING, i])
                s1[i] = weight_of(s1[i], new_max[i], rows[CEILING, i])
                if apart:
                    correction[i] *= rows[CHANGE, i]
                    added = add_weights(rows[ROW_SUM, i], rows[ROW_LOST, i], correction[i], s0[i] + s1[i])
                    rows[ROW_SUM, i], rows[ROW_LOST, i] = added
                else:
                    rows[ROW_SUM, i] = correction[i] * rows[ROW_SUM, i] + (s0[i] + s1[i])
                send_row(shared, row, lane_id, s0[i], s1[i])
        if not more and splits:
            sum_lanes(rows, ROW_SUM)
            for i in range(per_warp):
                own, row, there = owned_row(warp_id, i, tile.rank)
                if lane_id == 0 and there and row < tile.query_count:
                    st2(totals, uint32(uint32(2) * row), rows[ROW_MAX, i] * LOG2_E, rows[ROW_SUM, i])
                rows[ROW_SUM, i] = float32(1.0)
        elif not more:
            finish_sums(rows)
        for i in range(per_warp):
            own, row, there = owned_row(warp_id, i, tile.rank)
            if lane_id < uint32(cluster) and there:
                send_weights(shared, uint32(rescale_at + uint32(2) * row), lane_id, correction[i], rows[ROW_SUM, i])
        if apart and more:
            raise_ceiling(rows)

    return begin, weigh
