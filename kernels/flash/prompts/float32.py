"""Attention of prompts in float32 on wgmma, of parts that `split` made: three float16 products give a float32 one.

As in `wgmma`: one thread copies tiles, warpgroups start the scores of a tile and the weighted sum of the tile
before together. Tensor cores round sums toward zero, so a tile's weighted sum is one of its own, small products first,
and is added in float32. The scale 2^c of a tile of values is part of its weights: the row max is that of score + c, and
weights are at most 2^15. A block that meets a tile which is not split computes on TF32 tensor cores, as chunks do.
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
from ..tiles import FLOAT, I32, constant, f32, floats, op, part, wait_for_launch
from .float32_far import attend_far, load_scale, query_scale, store_row, tiles_of_head
from .phases import rows_written, tile_of
from .pipeline import REGISTERS, begin_barriers, next_stage, pipeline_of, producer, release
from .split import TOP, UNSPLIT

WEIGHT_TOP = 15.0  # exponent of the largest weight: float16 goes up to 2^16
MOST_SCORE = 2.0**22  # of what scores may be: where the row max is rounded by 1 or more, weights overflow
LEAST_SCALE = 2.0**-120  # of scores: times -inf, a scale of 0 would be NaN


@op(lambda count: floats(count))
def add_sums(b, count, acc, factors, sums):
    return [b.fma(x, factors[(i >> 1) & 1], y) for i, (x, y) in enumerate(zip(acc, sums))]


@op(lambda shape: floats(shape.dims // 2))
def join(b, shape, first, second):
    """Sums of all dims: of the first `sum_dims`, and of others where there are any."""
    return [*first, *second][: shape.dims // 2]


@op(lambda each: floats(2 * each + 6))
def softmax(b, each, scores, row_max, row_sum, own, k_scale, v_scale):
    """Weights, row sums, factors, row max: one tuple, of which `part` takes each.

    As `softmax.step` for two rows, whose scales are `own`. Weights have the scale of values, and 2^WEIGHT_TOP.
    """
    exponent = b.sitofp((b.bitcast(v_scale, I32) >> 23) - 127, FLOAT)
    less = b.bitcast((254 << 23) - b.bitcast(v_scale, I32), FLOAT)  # 1 / v_scale, a power of two
    weights, sums, factors, tops = [], [], [], []
    for row in range(2):
        scale = b.maximum(own[row] * k_scale, f32(LEAST_SCALE))
        of_row = scores[each * row : each * (row + 1)]
        top = row_top(b, of_row, QUAD)
        tops.append(b.maximum(row_max[row], b.fma(top, scale, exponent)))
        shift = exponent + WEIGHT_TOP - tops[row]
        made = [b.exp2(b.fma(score, scale, shift)) for score in of_row]
        factors.append(b.exp2(row_max[row] - tops[row]))
        sums.append(b.fma(row_total(b, made), less, row_sum[row] * factors[row]))
        weights += made
    return [*weights, *sums, *factors, *tops]


@op(floats(2))
def warp_tops(b, x):
    """The largest of a warp, of each of two."""
    made = list(x)
    for lanes in masks_of(0, 5):
        made = [b.maximum(value, b.shuffle("bfly", value, lanes)) for value in made]
    return made


def greatest_score(shape: Prompt32Shape) -> Any:
    """greatest(shared, tid, sizes, scales, batch, head, tile, tiles, k_scales): a bound of scores of the block's tile.

    Infinite where one of its tiles is not split. It has the block's first barrier.
    """
    at, threads, rows, q_scale = shape.layout["tops"], shape.threads, shape.rows, query_scale(shape)
    tiles_of, most = tiles_of_head(shape), float32(2.0 ** (2 * TOP + 2) * shape.dims)

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
            shared[at + 2 * (tid >> 5)], shared[at + 2 * (tid >> 5) + 1] = k_top, q_top
        cuda.syncthreads()
        for warp in range(threads // 32):
            k_top, q_top = max(k_top, shared[at + 2 * warp]), max(q_top, shared[at + 2 * warp + 1])
        return q_top * k_top * sizes.scale * most

    return greatest


def copier(shape: Prompt32Shape) -> Any:
    """copy_all(shared, q_map, k_map, v_map, tile, tiles, head, batch), by one thread: queries, and tiles in turn."""
    at, groups, rows, fill = pipeline_of(shape), shape.groups, shape.rows, producer(shape)
    following = next_stage(shape)
    copy, open_map, expect = atoms.copy_tile(shape.slabs, atoms.GROUP_ROWS), atoms.open_map, atoms.expect
    query_bytes = groups * at.group * 4

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
            fill(shared, stage, parity, k_map, v_map, number, head, batch)
            stage, parity = following(stage, parity)
            number += 1

    return copy_all


def multiplier(shape: Prompt32Shape) -> Any:
    """multiply(shared, tid, queries, scales, k_scales, v_scales, tiles, seen, own) -> (sums, row sums) of two rows."""
    at, keys = pipeline_of(shape), shape.tile_keys
    held, sums, wide = keys // 2, shape.sum_dims // 2, shape.dims > shape.sum_dims
    first, both, last = atoms.start_scores(shape), atoms.start_both(shape), atoms.start_sums(shape)
    second, all_there, joined = atoms.start_sums(shape, int(wide)), atoms.wait(held + sums, 0), join(shape)
    scores_of, sums_of = part(0, held), part(held, sums)
    first_there, scores_there, sums_there = atoms.wait(held, 0), atoms.wait(held, 1), atoms.wait(sums, 0)
    ordered, packed, add, weighed = atoms.by_rows(held), atoms.pack(shape), add_sums(sums), softmax(held // 2)
    weights_of, row_sums_of, factors_of, tops_of = part(0, held), part(held, 2), part(held + 2, 2), part(held + 4, 2)
    masked, following, wait, one = mask_tile(shape, keys), next_stage(shape), atoms.wait_barrier, float32(1.0)
    zero_acc, fresh, zero, sum_rows = constant(sums, 0.0), constant(2, NO_KEY), constant(2, 0.0), lane_sum(2, QUAD)

    @cuda.jit(device=True, forceinline=True)
    def multiply(shared, tid, queries, scales, k_scales, v_scales, tiles, seen, own):
        stage, parity, number, lane = cint(0), cint(0), cint(1), tid & 31
        k_scale, v_scale = load_scale(scales, k_scales), load_scale(scales, v_scales)
        wait(shared, at.queries_full, 0)
        wait(shared, at.keys_full, 0)
        scores = first_there(first(shared, queries, at.keys))
        release(shared, at.keys_empty, lane)
        scores = masked(ordered(scores), cint(0), lane, seen, one)
        made = weighed(scores, fresh(), zero(), own, k_scale, v_scale)
        acc, more, p = zero_acc(), zero_acc(), packed(weights_of(made))
        while number < tiles:
            after, parity_after = following(stage, parity)
            k_scale, v_scale = load_scale(scales, k_scales + number), load_scale(scales, v_scales + number)
            wait(shared, at.values_full + 2 * stage, parity)
            wait(shared, at.keys_full + 2 * after, parity_after)
            value, factors = at.values + stage * at.tile, factors_of(made)
            started = both(shared, queries, at.keys + after * at.tile, p, acc, value)
            if wide:
                started = all_there(started)
                scores, acc = scores_of(started), add(acc, factors, sums_of(started))
                product = second(shared, p, acc, value)
            else:
                scores, product = scores_there(scores_of(started)), sums_of(started)
            release(shared, at.keys_empty + 2 * after, lane)
            scores = masked(ordered(scores), number * keys, lane, seen, one)
            made = weighed(scores, tops_of(made), row_sums_of(made), own, k_scale, v_scale)
            product = sums_there(product)
            release(shared, at.values_empty + 2 * stage, lane)
            p = packed(weights_of(made))
            if wide:
                more = add(more, factors, product)
            else:
                acc = add(acc, factors, product)
            stage, parity = after, parity_after
            number += 1
        wait(shared, at.values_full + 2 * stage, parity)
        value, factors = at.values + stage * at.tile, factors_of(made)
        acc = add(acc, factors, sums_there(last(shared, p, acc, value)))
        if wide:
            more = add(more, factors, sums_there(second(shared, p, acc, value)))
        return joined(acc, more), sum_rows(row_sums_of(made))

    return multiply


@functools.cache
def prompt32_kernel(shape: Prompt32Shape) -> Kernel:
    """The kernel of a shape, with the grid of `phases.tile_of`; its last arguments are maps of the three parts."""
    keys, groups, rows, at = shape.tile_keys, shape.groups, shape.rows, pipeline_of(shape)
    give, take = atoms.set_registers("dec", REGISTERS[0]), atoms.set_registers("inc", REGISTERS[1])
    begin, block, write = begin_barriers(shape, 4 * groups, 1), tile_of(shape.rows), rows_written(shape, store_row)
    bounds, q_scale, greatest = bounds_of(shape), query_scale(shape), greatest_score(shape)
    tiles_of, most_score = tiles_of_head(shape), float32(MOST_SCORE)
    copy_all, multiply, attend = copier(shape), multiplier(shape), attend_far(shape)

    def kernel(tensors, sizes, rotation, workspace, scales, q_parts, k_parts, v_parts, q_map, k_map, v_map):
        shared = cuda.shared.array(0, float32, 1024)
        tid = cint(cuda.threadIdx.x)
        batch, head, tile, all_keys, end, first_query = block(sizes)
        tiles = (end + keys - 1) // keys
        k_scales = batch * sizes.kv_heads * (sizes.group + 2) + sizes.kv_heads * sizes.group + head
        k_scales = k_scales * tiles_of(sizes)
        if tid == 0:
            begin(shared)
        wait_for_launch()
        if not greatest(shared, tid, sizes, scales, batch, head, tile, tiles, k_scales) <= most_score:
            attend(shared, tid, tensors, sizes, rotation, scales, q_parts, k_parts, v_parts, batch, head, tile, tiles,
                   all_keys, first_query, k_scales)  # fmt: skip
        elif tid < 128:
            if groups > 1:
                give()
            if tid == 0:
                copy_all(shared, q_map, k_map, v_map, tile, tiles, head, batch)
        else:
            if groups > 1:
                take()
            lane, queries = tid & 31, at.query + ((tid >> 7) - 1) * at.group
            row = tile * rows + ((tid >> 5) - 4) * 16 + (lane >> 2)
            seen = bounds(row, all_keys, first_query, batch, head, sizes, rotation)
            own = (sizes.scale * q_scale(scales, sizes, batch, head, row),
                   sizes.scale * q_scale(scales, sizes, batch, head, row + 8))  # fmt: skip
            v_scales = k_scales + sizes.kv_heads * tiles_of(sizes)
            acc, row_sum = multiply(shared, tid, queries, scales, k_scales, v_scales, tiles, seen, own)
            write(tensors, sizes, batch, head, row, lane, acc, row_sum)

    kernel.__name__ = kernel.__qualname__ = shape.name
    signature = (*types_of(DTYPES["float32"]), *(FLOATS,) * 4, *(INTS,) * 3)
    return Kernel(kernel, signature, shape.threads, min_blocks=1, architecture="sm_90a")
