"""Attention of prompts in float32 on wgmma, from the float16 parts of `split`: three products replace a float32 one.

As in `wgmma`: one thread copies tiles, warpgroups start the scores of a tile and the weighted sum of the tile
before together. Tensor cores round sums toward zero, so each tile has an accumulator of its own, with small products
first, which is added in float32. The scale 2^c of a tile of values is part of its weights: the row max is that of
score + c, and weights are at most 2^15. Where `split` kept a tile as float32, its blocks use `float32_fallback`.
"""

import functools
from typing import Any

from numba import cuda, float32

from ...constants import FLOATS, INTS
from ...device.cint import cint
from ...version import Kernel
from ..args import types_of
from ..atoms import wgmma as atoms
from ..dtype import DTYPES
from ..mask import bounds_of, mask_tile
from ..shapes import Prompt32Shape
from ..softmax import NO_KEY, QUAD, lane_sum, masks_of, row_top, row_total
from ..tiles import FLOAT, I32, constant, f32, floats, part, register_op, wait_for_launch
from .float32_fallback import attend_fallback, load_scale, query_scale, store_row, tiles_of_head
from .phases import rows_written, tile_of
from .pipeline import REGISTERS, begin_barriers, next_stage, pipeline_of, producer, release
from .split import TOP, UNSPLIT

WEIGHT_TOP = 15.0  # exponent of the largest weight: float16 goes up to 2^16
MOST_SCORE = 2.0**22  # bound of scores: above it the row max is rounded by 1 or more, and weights overflow
LEAST_SCALE = 2.0**-120  # of scores: a scale of 0 times -inf would be NaN


@register_op(lambda count: floats(count))
def add_outputs(b, acc, rescale, product, *, count):
    """acc rescaled, plus the weighted sum of a tile: `count` values of two rows in fragments."""
    return [b.fma(x, rescale[(i >> 1) & 1], y) for i, (x, y) in enumerate(zip(acc, product))]


@register_op(lambda shape: floats(shape.dims // 2))
def join(b, first, second, *, shape):
    """Outputs of all dims: the first `sum_dims`, then the others, if any."""
    return [*first, *second][: shape.dims // 2]


@register_op(lambda each: floats(2 * each + 6))
def softmax(b, scores, row_max, row_sum, q_scale, k_scale, v_scale, *, each):
    """Weights p, row sums, rescale and row max, as `update_row_max` and `softmax.softmax`.

    They are one tuple, of which `part` takes each: with several, the compiler would order instructions differently.
    Scores are those of scaled parts. Weights have the scale of values, and 2^WEIGHT_TOP.
    """
    exponent = b.sitofp((b.bitcast(v_scale, I32) >> 23) - 127, FLOAT)
    less = b.bitcast((254 << 23) - b.bitcast(v_scale, I32), FLOAT)  # 1 / v_scale, a power of two
    p, new_max, new_sum, rescale = [], [], [], []
    for row in range(2):
        scale = b.maximum(q_scale[row] * k_scale, f32(LEAST_SCALE))
        of_row = scores[each * row : each * (row + 1)]
        top = row_top(b, of_row, QUAD)
        new_max.append(b.maximum(row_max[row], b.fma(top, scale, exponent)))
        shift = exponent + WEIGHT_TOP - new_max[row]
        weights = [b.exp2(b.fma(score, scale, shift)) for score in of_row]
        rescale.append(b.exp2(row_max[row] - new_max[row]))
        new_sum.append(b.fma(row_total(b, weights), less, row_sum[row] * rescale[row]))
        p += weights
    return [*p, *new_sum, *rescale, *new_max]


@register_op(floats(2))
def warp_tops(b, x):
    """The largest value in the warp, for each of two values."""
    made = list(x)
    for lanes in masks_of(0, 5):
        made = [b.maximum(value, b.shuffle("bfly", value, lanes)) for value in made]
    return made


def greatest_score(shape: Prompt32Shape) -> Any:
    """greatest(shared, tid, sizes, scales, batch, head, tile, tiles, k_scales): a bound of scores of the block's tile.

    Infinite where one of its tiles is kept as float32. The function has the block's first barrier.
    """
    tops_smem = shape.layout["tops"]  # float32[warps, 2]: of K, of Q
    threads, rows = shape.threads, shape.rows
    q_scale, tiles_of = query_scale(shape), tiles_of_head(shape)
    most = float32(2.0 ** (2 * TOP + 2) * shape.dims)

    @cuda.jit(device=True, forceinline=True)
    def greatest(shared, tid, sizes, scales, batch, head, tile, tiles, k_scales):
        v_scales, number = k_scales + sizes.kv_heads * tiles_of(sizes), tid
        k_top, q_top = float32(0.0), float32(0.0)
        while number < tiles:
            v_scale = load_scale(scales, v_scales + number)
            k_top = max(k_top, load_scale(scales, k_scales + number), v_scale if v_scale == UNSPLIT else float32(0.0))
            number += threads
        if tid < rows:
            q_top = q_scale(scales, sizes, batch, head, tile * rows + tid)
        k_top, q_top = warp_tops((k_top, q_top))
        if tid & 31 == 0:
            shared[tops_smem + 2 * (tid >> 5)], shared[tops_smem + 2 * (tid >> 5) + 1] = k_top, q_top
        cuda.syncthreads()
        for warp in range(threads // 32):
            k_top, q_top = max(k_top, shared[tops_smem + 2 * warp]), max(q_top, shared[tops_smem + 2 * warp + 1])
        return q_top * k_top * sizes.scale * most

    return greatest


def copier(shape: Prompt32Shape) -> Any:
    """copy_all(shared, q_map, k_map, v_map, tile, tiles, head, batch), by one thread: Q, then all tiles of K and V."""
    at = pipeline_of(shape)
    groups, rows = shape.groups, shape.rows
    query_bytes = groups * at.group * 4
    fill_stage, following = producer(shape), next_stage(shape)
    copy = atoms.copy_tile(shape.slabs, atoms.GROUP_ROWS)
    open_map, expect = atoms.open_map, atoms.expect

    @cuda.jit(device=True, forceinline=True)
    def copy_all(shared, q_map, k_map, v_map, tile, tiles, head, batch):
        open_map(q_map)
        open_map(k_map)
        open_map(v_map)
        expect(shared, at.queries_full, query_bytes)
        for group in range(groups):
            row = tile * rows + 64 * group
            copy(shared, at.query + group * at.group, q_map, row, head, batch, at.queries_full)
        stage, parity, number = cint(0), cint(1), cint(0)  # the parity of the phase before the first
        while number < tiles:
            fill_stage(shared, stage, parity, k_map, v_map, number, head, batch)
            stage, parity = following(stage, parity)
            number += 1

    return copy_all


def multiplier(shape: Prompt32Shape) -> Any:
    """multiply(shared, tid, q_smem, scales, k_scales, v_scales, tiles, seen, q_scale) -> (outputs, row sums): two rows.

    `scales` are float32; k_scales and v_scales are the indices of those of the head's first tile.
    """
    # tile
    at = pipeline_of(shape)
    tile_keys = shape.tile_keys
    wide = shape.dims > shape.sum_dims  # the weighted sum is made in two halves
    # loads
    following = next_stage(shape)
    wait = atoms.wait_barrier
    # products: fragments of a lane, float32[lane_scores] and float32[lane_outputs] for its rows g and g + 8
    lane_scores = tile_keys // 2
    lane_outputs = shape.sum_dims // 2
    start_qk = atoms.start_scores(shape)
    start_qk_and_pv = atoms.start_both(shape)
    start_pv = atoms.start_sums(shape)
    start_pv_of_second_half = atoms.start_sums(shape, int(wide))
    wait_first_scores = atoms.wait(lane_scores, 0)
    wait_scores = atoms.wait(lane_scores, 1)
    wait_product = atoms.wait(lane_outputs, 0)
    wait_both = atoms.wait_both(lane_scores, lane_outputs)
    by_rows = atoms.by_rows(lane_scores)
    pack_p = atoms.pack(shape)
    add = add_outputs(lane_outputs)
    joined = join(shape)
    # softmax
    mask = mask_tile(shape, tile_keys)
    one = float32(1.0)
    online_softmax = softmax(lane_scores // 2)
    p_of = part(0, lane_scores)
    row_sum_of = part(lane_scores, 2)
    rescale_of = part(lane_scores + 2, 2)
    row_max_of = part(lane_scores + 4, 2)
    sum_over_quad = lane_sum(2, QUAD)
    # initial values
    zero_acc = constant(lane_outputs, 0.0)
    lowest = constant(2, NO_KEY)
    zero = constant(2, 0.0)

    @cuda.jit(device=True, forceinline=True)
    def multiply(shared, tid, q_smem, scales, k_scales, v_scales, tiles, seen, q_scale):
        # first tile: scores, softmax
        stage, parity, number, lane = cint(0), cint(0), cint(1), tid & 31
        k_scale, v_scale = load_scale(scales, k_scales), load_scale(scales, v_scales)
        wait(shared, at.queries_full, 0)
        wait(shared, at.keys_full, 0)
        scores = wait_first_scores(start_qk(shared, q_smem, at.keys))
        release(shared, at.keys_empty, lane)
        scores = mask(by_rows(scores), cint(0), lane, seen, one)
        state = online_softmax(scores, lowest(), zero(), q_scale, k_scale, v_scale)
        acc_rmem, second_rmem, p_rmem = zero_acc(), zero_acc(), pack_p(p_of(state))
        # main loop: scores of a tile, the weighted sum of the tile before
        while number < tiles:
            after, parity_after = following(stage, parity)
            k_scale, v_scale = load_scale(scales, k_scales + number), load_scale(scales, v_scales + number)
            wait(shared, at.values_full + 2 * stage, parity)
            wait(shared, at.keys_full + 2 * after, parity_after)
            v_smem, rescale = at.values + stage * at.tile, rescale_of(state)
            k_smem = at.keys + after * at.tile
            scores, product = start_qk_and_pv(shared, q_smem, k_smem, p_rmem, acc_rmem, v_smem)
            if wide:
                scores, product = wait_both(scores, product)
                acc_rmem = add(acc_rmem, rescale, product)
                product = start_pv_of_second_half(shared, p_rmem, acc_rmem, v_smem)
            else:
                scores = wait_scores(scores)
            release(shared, at.keys_empty + 2 * after, lane)
            scores = mask(by_rows(scores), number * tile_keys, lane, seen, one)
            state = online_softmax(scores, row_max_of(state), row_sum_of(state), q_scale, k_scale, v_scale)
            product = wait_product(product)
            release(shared, at.values_empty + 2 * stage, lane)
            p_rmem = pack_p(p_of(state))
            if wide:
                second_rmem = add(second_rmem, rescale, product)
            else:
                acc_rmem = add(acc_rmem, rescale, product)
            stage, parity = after, parity_after
            number += 1
        # the last weighted sum
        wait(shared, at.values_full + 2 * stage, parity)
        v_smem, rescale = at.values + stage * at.tile, rescale_of(state)
        acc_rmem = add(acc_rmem, rescale, wait_product(start_pv(shared, p_rmem, acc_rmem, v_smem)))
        if wide:
            product = wait_product(start_pv_of_second_half(shared, p_rmem, acc_rmem, v_smem))
            second_rmem = add(second_rmem, rescale, product)
        return joined(acc_rmem, second_rmem), sum_over_quad(row_sum_of(state))

    return multiply


@functools.cache
def prompt32_kernel(shape: Prompt32Shape) -> Kernel:
    """The kernel of a shape, with the grid of `phases.tile_of`; its last arguments are maps of the three parts."""
    # tile
    at = pipeline_of(shape)
    rows = shape.rows
    groups = shape.groups
    tile_keys = shape.tile_keys
    block = tile_of(shape.rows)
    bounds = bounds_of(shape)
    q_scale = query_scale(shape)
    tiles_of = tiles_of_head(shape)
    # loads
    init_barriers = begin_barriers(shape, 4 * groups, 1)
    copy_all = copier(shape)
    fewer_registers = atoms.set_registers("dec", REGISTERS[0])
    more_registers = atoms.set_registers("inc", REGISTERS[1])
    # products and softmax
    greatest = greatest_score(shape)
    most_score = float32(MOST_SCORE)
    multiply = multiplier(shape)
    attend = attend_fallback(shape)
    write = rows_written(shape, store_row)

    def kernel(tensors, sizes, rotation, workspace, scales, q_parts, k_parts, v_parts, q_map, k_map, v_map):
        # prologue
        shared = cuda.shared.array(0, float32, 1024)
        tid = cint(cuda.threadIdx.x)
        batch, head, tile, all_keys, end, first_query = block(sizes)
        tiles = (end + tile_keys - 1) // tile_keys
        # indices of the scales of the head's first tiles in scales[batch, heads + 2 kv_heads, tiles]
        k_scales = batch * sizes.kv_heads * (sizes.group + 2) + sizes.kv_heads * sizes.group + head
        k_scales = k_scales * tiles_of(sizes)
        if tid == 0:
            init_barriers(shared)
        wait_for_launch()
        if not greatest(shared, tid, sizes, scales, batch, head, tile, tiles, k_scales) <= most_score:
            attend(shared, tid, tensors, sizes, rotation, scales, q_parts, k_parts, v_parts, batch, head, tile, tiles,
                   all_keys, first_query, k_scales)  # fmt: skip
        elif tid < 128:
            # producer
            if groups > 1:
                fewer_registers()
            if tid == 0:
                copy_all(shared, q_map, k_map, v_map, tile, tiles, head, batch)
        else:
            # consumers
            if groups > 1:
                more_registers()
            lane, q_smem = tid & 31, at.query + ((tid >> 7) - 1) * at.group
            row = tile * rows + ((tid >> 5) - 4) * 16 + (lane >> 2)
            seen = bounds(row, all_keys, first_query, batch, head, sizes, rotation)
            row_scales = (sizes.scale * q_scale(scales, sizes, batch, head, row),
                          sizes.scale * q_scale(scales, sizes, batch, head, row + 8))  # fmt: skip
            v_scales = k_scales + sizes.kv_heads * tiles_of(sizes)
            acc_rmem, row_sum = multiply(shared, tid, q_smem, scales, k_scales, v_scales, tiles, seen, row_scales)
            # epilogue
            write(tensors, sizes, batch, head, row, lane, acc_rmem, row_sum)

    kernel.__name__ = kernel.__qualname__ = shape.name
    signature = (*types_of(DTYPES["float32"]), *(FLOATS,) * 4, *(INTS,) * 3)
    return Kernel(kernel, signature, shape.threads, min_blocks=1, architecture="sm_90a")
