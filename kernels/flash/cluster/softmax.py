"""Online softmax of the rows of scores that a block owns; a warp has some of them and steps through all at once.

The weights stay finite wherever those of a softmax over whole rows do. The running row max starts at the lowest
float32, not at minus infinity: keys whose scores are all minus infinity then have weight 0. A weight is at most one
over the number of keys, or half of that, so that no sum of weights times values overflows before it is divided by the
sum of weights. With many keys this costs precision in products with subnormal values. So `weight_ceiling` adapts the
largest weight to the row sum itself, where that is cheap: a key that dominates then has a weight of almost one.

The rounding error of the row sum can be kept and added later, by `add_weights`: where one of many keys has nearly all
of the weight, each of the others would be rounded away.
"""

import math
from typing import Any

from numba import cuda, float32, int32
from numba.cuda import libdevice

from ...device import FULL_MASK, NEGATIVE_INFINITY, cint, exp2, st2
from .embedding import Embedding

LOG2_E = float32(math.log2(math.e))
LOWEST = float32(-3.4028234663852886e38)
EXPONENT_BITS, EXPONENT_OF_ONE = int32(23), int32(127)
INVERSE_BITS = int32(254 << 23)  # the bits of a power of two plus those of its inverse

# The state of a row, float32[STATE, rows of a warp]: the row max, a lane's part of the row sum and its rounding error,
# the largest weight that a key may have, and its ratio to the previous one.
STATE = 5
ROW_MAX, ROW_SUM, ROW_LOST, CEILING, CHANGE = range(STATE)


@cuda.jit(device=True)
def greatest_weight(seq_k):
    """The largest power of two that is at most 1 / seq_k."""
    rounded_up = int32(32) - int32(cuda.clz(int32(int32(seq_k) - int32(1))))
    return libdevice.int_as_float(int32(int32(EXPONENT_OF_ONE - rounded_up) << EXPONENT_BITS))


@cuda.jit(device=True)
def over_power(x, power):
    """x / power, for a power of two above 2^-127."""
    return x * libdevice.int_as_float(int32(INVERSE_BITS - libdevice.float_as_int(power)))


@cuda.jit(device=True)
def weight_ceiling(total, keys):
    """The ceiling of the weights: a power of two with which `keys` more weights and those so far sum to at most 1.

    total: the sum of the weights so far, relative to a largest weight of 1.
    """
    exponent = int32(libdevice.float_as_int(total + keys) >> EXPONENT_BITS)
    return libdevice.int_as_float(int32(int32(int32(2) * EXPONENT_OF_ONE - int32(1) - exponent) << EXPONENT_BITS))


@cuda.jit(device=True)
def weight_of(score, row_max, greatest):
    return exp2((score - row_max) * LOG2_E) * greatest


@cuda.jit(device=True)
def rescaling(old_max, row_max):
    """The factor that rescales sums when the row max rises from `old_max` to `row_max`."""
    return exp2((old_max - row_max) * LOG2_E)


@cuda.jit(device=True)
def add_weights(total, lost, rescale, weights):
    """The rescaled row sum with `weights` added, and its rounding error: total + lost is the exact sum."""
    more = cuda.fma(rescale, lost, weights)
    old = rescale * total
    total = old + more
    return total, more - (total - old)


@cuda.jit(device=True)
def inverse_of(row_sum):
    """1 / row_sum within an ulp; 0 for a row whose keys all have weight 0, as in PyTorch.

    It avoids the function call of `1 / x`, which would serialise the products of warpgroups.
    """
    near = libdevice.fast_fdividef(float32(1.0), row_sum)
    near = cuda.fma(near, cuda.fma(-row_sum, near, float32(1.0)), near)
    return float32(0.0) if row_sum == float32(0.0) else near


def masker(shape: Any, embedding: Embedding) -> Any:
    """A device function that biases and masks a lane's scores of a row, and returns their maximum."""
    per_lane, lane_step, key_step = shape.keys_per_lane, shape.lane_step, shape.key_step
    tile_keys, bias = shape.keys, embedding.bias

    @cuda.jit(device=True)
    def mask_row(s, at, tile, scope, row, lane_id, start):
        """Minus infinity where the row does not see the key."""
        position, visible = scope.sizes.q_offset + tile.first_query + row, scope.last_key
        if scope.sizes.causal != 0:
            visible = min(visible, position + 1)
        row_max = NEGATIVE_INFINITY
        for n in range(per_lane):
            own_key = lane_id * lane_step + key_step * n
            key = start + own_key
            if bias is not None:
                s[at + n] += bias(scope.table, tile.bias_head, cint(position - key))
            if own_key >= tile_keys or key >= visible:
                s[at + n] = NEGATIVE_INFINITY
            row_max = max(row_max, s[at + n])
        return row_max

    return mask_row


def sums_over_lanes(per_warp: int, tile_keys: int) -> tuple[Any, Any]:
    """Device functions sum_lanes(rows, which) and raise_ceiling(rows), for the rows of a warp."""

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
            ceiling = weight_ceiling(over_power(rows[CHANGE, i], rows[CEILING, i]), float32(tile_keys))
            rows[CEILING, i], rows[CHANGE, i] = ceiling, over_power(ceiling, rows[CEILING, i])

    return sum_lanes, raise_ceiling


def softmax_of(
    shape: Any, embedding: Embedding, adapts: bool, load_scores: Any, send_row: Any, send_factors: Any
) -> tuple[Any, Any]:
    """(begin, online_softmax): device functions begin(rows, seq_k), the state before the first tile, and
    online_softmax(shared, rows, tile, scope, thread, start, more), a step.

    A step sends the weights of a tile from key `start` on to all blocks, with the factors that rescale the output. With
    the last tile it sends the inverses of the row sums, or 1 where keys are split; then the row max in base 2 and the
    row sum are stored in `scope.totals`.

    load_scores(shared, s, at, own, row, lane_id) loads a lane's scores of a row, which is row `own` of the block, to
    s[at : at + shape.keys_per_lane]. send_row(shared, s, at, row, lane_id) sends the weights of a lane. With `adapts`,
    the ceiling of the weights follows the row sum, and the rounding error of the sum is kept.
    """
    # tile
    cluster = shape.cluster
    queries = shape.queries
    tile_keys = shape.keys
    splits = shape.splits
    warps = shape.threads // 32
    rows_of_block = shape.rows
    per_warp = shape.rows_of_warp
    all_rows = cluster * rows_of_block == queries and rows_of_block % warps == 0
    # scores of a lane, and where factors go
    per_lane = shape.keys_per_lane
    lane_scores = per_warp * shape.keys_per_lane
    rescale_at = shape.layout["rescale"]
    # steps
    mask_row = masker(shape, embedding)
    sum_lanes, raise_ceiling = sums_over_lanes(per_warp, tile_keys)

    @cuda.jit(device=True)
    def begin(rows, seq_k):
        for i in range(per_warp):
            rows[ROW_MAX, i] = LOWEST
            rows[ROW_SUM, i], rows[ROW_LOST, i] = float32(0.0), float32(0.0)
            rows[CEILING, i] = greatest_weight(min(seq_k, tile_keys) if adapts else seq_k)
            rows[CHANGE, i] = float32(1.0)

    @cuda.jit(device=True)
    def owned_row(warp_id, i, rank):
        """Row `i` of a warp: its number in the block and in the tile, and whether it exists."""
        own = warp_id + i * warps
        row = rank * rows_of_block + own
        return own, row, all_rows or (own < rows_of_block and row < queries)

    @cuda.jit(device=True)
    def add_row(rows, i, rescale, tile_sum):
        """Add the sum of a tile to that of a row. Returns the factor that rescales the output."""
        if adapts:
            rescale *= rows[CHANGE, i]
            rows[ROW_SUM, i], rows[ROW_LOST, i] = add_weights(rows[ROW_SUM, i], rows[ROW_LOST, i], rescale, tile_sum)
        else:
            rows[ROW_SUM, i] = rescale * rows[ROW_SUM, i] + tile_sum
        return rescale

    @cuda.jit(device=True)
    def finish(rows, tile, scope, thread):
        """Replace each row sum by its inverse, or by 1 where keys are split."""
        sum_lanes(rows, ROW_SUM)
        for i in range(per_warp):
            if splits:
                _, row, owned = owned_row(thread.warp_id, i, tile.rank)
                if thread.lane_id == 0 and owned and row < tile.query_count:
                    st2(scope.totals, 2 * row, rows[ROW_MAX, i] * LOG2_E, rows[ROW_SUM, i])
                rows[ROW_SUM, i] = float32(1.0)
            else:
                rows[ROW_SUM, i] = inverse_of(rows[ROW_SUM, i])

    @cuda.jit(device=True)
    def online_softmax(shared, rows, tile, scope, thread, start, more):
        warp_id, lane_id = thread.warp_id, thread.lane_id
        s = cuda.local.array(lane_scores, float32)
        new_max = cuda.local.array(per_warp, float32)
        rescale = cuda.local.array(per_warp, float32)
        # scores, masked, and their maxima over the lanes
        for i in range(per_warp):
            own, row, owned = owned_row(warp_id, i, tile.rank)
            new_max[i] = NEGATIVE_INFINITY
            if owned:
                load_scores(shared, s, per_lane * i, own, row, lane_id)
                new_max[i] = mask_row(s, per_lane * i, tile, scope, row, lane_id, start)
        for bit in range(5):
            for i in range(per_warp):
                new_max[i] = max(new_max[i], cuda.shfl_xor_sync(FULL_MASK, new_max[i], 16 >> bit))
        # weights, to all blocks, and their sums
        for i in range(per_warp):
            own, row, owned = owned_row(warp_id, i, tile.rank)
            if owned:
                new_max[i] = max(rows[ROW_MAX, i], new_max[i])
                rescale[i] = rescaling(rows[ROW_MAX, i], new_max[i])
                rows[ROW_MAX, i], tile_sum = new_max[i], float32(0.0)
                for n in range(per_lane):
                    s[per_lane * i + n] = weight_of(s[per_lane * i + n], new_max[i], rows[CEILING, i])
                    tile_sum += s[per_lane * i + n]
                rescale[i] = add_row(rows, i, rescale[i], tile_sum)
                send_row(shared, s, per_lane * i, row, lane_id)
        # factors that rescale the output, to all blocks
        if not more:
            finish(rows, tile, scope, thread)
        for i in range(per_warp):
            own, row, owned = owned_row(warp_id, i, tile.rank)
            if lane_id < cluster and owned:
                send_factors(shared, rescale_at + 2 * row, lane_id, rescale[i], rows[ROW_SUM, i])
        if adapts and more:
            raise_ceiling(rows)

    return begin, online_softmax
