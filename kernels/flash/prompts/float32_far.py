"""A block of `float32` that meets values too far apart for parts: TF32 products of float32 tiles, as chunks have them.

And the scales of tiles and the output, which both ways have.
"""

import functools
import math
from typing import Any

from llvmlite import ir
from numba import cuda, float32, types, uint64

from ...device.cint import cint
from ...device.vector import advance
from ..atoms import tf32
from ..atoms.tile import scaled_rows
from ..chunks.shape import ChunkShape
from ..dtype import HALF
from ..epilogue import exact_inverse
from ..mask import LOG2_E, bounds_of, key_offsets, mask
from ..schedule import query_of
from ..shapes import Prompt32Shape
from ..softmax import QUAD, lane_sum, row_top
from ..tiles import FLOAT, I64, constant, f32, op, tuples
from .phases import rows_written

FAR_KEYS, LOWEST = 8, -3.4028234663852886e38  # keys at a time, and the first row max


@op(types.float32)
def load_scale(b, pointer, index):
    """Behind `wait_for_launch`: not by way of the cache for what never changes."""
    address = pointer + (b.sext(index, I64) << 2)
    return b.as_floats(b.load_words("ld.global", address, 1))[0]


def tiles_of_head(shape: Prompt32Shape) -> Any:
    """tiles(sizes): scales of a head, as `split.tile_count`."""
    keys = shape.tile_keys

    @cuda.jit(device=True, forceinline=True)
    def tiles(sizes):
        return (max(sizes.seq_q, sizes.seq_k) + keys - 1) // keys

    return tiles


def query_scale(shape: Prompt32Shape) -> Any:
    """scale(scales, sizes, batch, head, row) of a row of queries; that of the last for rows behind it."""
    keys, tiles = shape.tile_keys, tiles_of_head(shape)

    @cuda.jit(device=True, forceinline=True)
    def scale(scales, sizes, batch, head, row):
        of_group, query = query_of(min(row, sizes.group * sizes.seq_q - 1), sizes)
        number = batch * sizes.kv_heads * (sizes.group + 2) + head * sizes.group + of_group
        return load_scale(scales, number * tiles(sizes) + query // keys)

    return scale


@op(lambda shape, half: types.void)
def store_row(b, shape, half, pointer, valid, member, acc, row_sum):
    """What `rows_written` takes."""
    by = exact_inverse(b, row_sum[half])
    address = pointer + b.zext(member << 3, I64)
    with b.if_then(valid):
        for tile in range(shape.hdim // 8):
            values = [acc[4 * tile + 2 * half + i] * by for i in range(2)]
            b.store_words("st.global", address, b.as_words(values), 32 * tile)


@op(lambda shape, pitch, by_dim: types.void)
def stage(b, shape, pitch, by_dim, shared, index, row, chunk, parts, source, inside, scale, factor):
    """Store four dims of a row as float32, or zeros.

    parts: of all rows; `source` is the row there. By dim, a column is where `tf32.accumulate` and the output of
    wgmma have the same dim: 8 j + n of 32 at 4 n + j.
    """
    dims = shape.dims
    at = parts + b.sext(source, I64) * (4 * dims)
    whole, halves = (at + b.zext(chunk << size, I64) for size in (4, 3))
    kept = b.as_floats(b.load_words("ld.global", whole, 4))

    def joined() -> list[Any]:
        high, low = (HALF.floats(b, b.load_words("ld.global", halves, 2, 2 * dims * i)) for i in range(2))
        return [(x + y) * scale for x, y in zip(high, low)]

    x = b.where(scale < math.inf, joined, kept)
    x = [b.select(inside != 0, value * factor, f32(0.0)) for value in x]
    column = chunk << 2
    if by_dim:
        of_eight, first = (chunk >> 1) & 3, (chunk << 4) & 16
        column = (column & -32) + (first + of_eight)
    target = b.at_float(shared, index + (row * pitch + column))
    if by_dim:
        for i, word in enumerate(b.as_words(x)):
            b.store_words("st.shared", target, [word], 16 * i)
    else:
        b.store_floats(target, x)


@op(lambda each, size: tuples(2 * each, 2, 2, size))
def far_softmax(b, each, size, scores, row_max, row_sum, acc, keys):
    """Weights, row max, row sum and acc of two rows.

    Scores are natural, as in base 2 the largest would overflow. Weights of all `keys` add up to at most 1, so that no
    sum of weights times values overflows.
    """
    ceiling = b.sitofp(b.ctlz(keys - 1, ir.Constant(ir.IntType(1), 0)) - 32, FLOAT)
    weights, tops, sums, factors = [], [], [], []
    for row in range(2):
        of_row = scores[each * row : each * (row + 1)]
        tops.append(b.maximum(row_max[row], row_top(b, of_row, QUAD)))
        made = [b.exp2(b.fma(score - tops[row], f32(LOG2_E), ceiling)) for score in of_row]
        factors.append(b.exp2((row_max[row] - tops[row]) * LOG2_E))
        sums.append(functools.reduce(b.fadd, made, row_sum[row] * factors[row]))
        weights += made
    return weights, tops, sums, scaled_rows(b, acc, factors)


def attend_far(shape: Prompt32Shape) -> Any:
    """attend(shared, tid, ...): the tile of a block by `atoms.tf32`, from tiles of float32 in shared memory."""
    dims, rows, tile_keys, chunks = shape.dims, shape.rows, shape.tile_keys, shape.dims // 4
    far, keys, tiles_of = ChunkShape("float32", dims, rows, FAR_KEYS, 1, 1, False), FAR_KEYS, tiles_of_head(shape)
    key_pitch, value_pitch, step = far.key_pitch, far.value_pitch, shape.threads // chunks
    keys_at = rows * key_pitch
    values_at = keys_at + tile_keys * key_pitch
    assert values_at + tile_keys * value_pitch <= shape.layout["barriers"] and shape.threads % chunks == 0
    stage_key, stage_value = stage(shape, key_pitch, False), stage(shape, value_pitch, True)
    dots, add, weighed = tf32.scores(far, rounded=True), tf32.accumulate(far), far_softmax(keys // 4, dims // 2)
    masked = mask(shape, 2, key_offsets(keys))
    zero_acc, fresh, zero = (constant(*each) for each in ((dims // 2, 0.0), (2, LOWEST), (2, 0.0)))
    bounds, q_scale = bounds_of(shape), query_scale(shape)
    write, sum_rows = rows_written(shape, store_row), lane_sum(2, QUAD)

    @cuda.jit(device=True, forceinline=True)
    def attend(shared, tid, tensors, sizes, rotation, scales, q, k, v, batch, head, tile, tiles, all_keys, first_query,
               k_scales):  # fmt: skip
        lane, warp, of = tid & 31, tid >> 5, uint64(batch * sizes.kv_heads + head)
        q = advance(q, of * uint64(sizes.group * sizes.seq_q) * uint64(dims))
        k, v = advance(k, of * uint64(sizes.seq_k) * uint64(dims)), advance(v, of * uint64(sizes.seq_k) * uint64(dims))
        v_scales, natural = k_scales + sizes.kv_heads * tiles_of(sizes), sizes.scale * float32(1.0 / LOG2_E)
        first, chunk, one = tid // chunks, tid % chunks, float32(1.0)
        place = first
        while place < rows:
            source = min(tile * rows + place, sizes.group * sizes.seq_q - 1)
            stage_key(shared, 0, place, chunk, q, source, 1, q_scale(scales, sizes, batch, head, source), natural)
            place += step
        row, number = tile * rows + warp * 16 + (lane >> 2), cint(0)
        seen = bounds(row, all_keys, first_query, batch, head, sizes, rotation)
        acc, row_max, row_sum = zero_acc(), fresh(), zero()
        while number < tiles:
            cuda.syncthreads()
            k_scale, v_scale = load_scale(scales, k_scales + number), load_scale(scales, v_scales + number)
            place = first
            while place < tile_keys:
                key = number * tile_keys + place
                source, inside = min(key, sizes.seq_k - 1), cint(key < sizes.seq_k)
                stage_key(shared, keys_at, place, chunk, k, source, inside, k_scale, one)
                stage_value(shared, values_at, place, chunk, v, source, inside, v_scale, one)
                place += step
            cuda.syncthreads()
            place = cint(0)
            while place < tile_keys and warp * 16 < rows:
                scores = dots(shared, warp * 16 * key_pitch, keys_at + place * key_pitch, lane)
                scores = masked(scores, number * tile_keys + place + 2 * (lane & 3), seen)
                p, row_max, row_sum, acc = weighed(scores, row_max, row_sum, acc, sizes.seq_k)
                acc = add(shared, values_at + place * value_pitch, lane, acc, p)
                place += keys
            number += 1
        if warp * 16 < rows:
            write(tensors, sizes, batch, head, row, lane, acc, sum_rows(row_sum))

    return attend
