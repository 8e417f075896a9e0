"""Fallback of `float32` for tiles with too large a dynamic range for float16 parts: TF32 products, as in chunks.

Also the scales of tiles and the epilogue, which both kernels use.
"""

import functools
import math
from typing import Any

from llvmlite import ir
from numba import cuda, float32, types, uint64

from ...device import advance, cint
from ..atoms import tf32
from ..atoms.tile import scaled_rows
from ..chunks.shape import ChunkShape
from ..dtype import HALF
from ..epilogue import exact_inverse
from ..mask import LOG2_E, bounds_of, key_offsets, mask
from ..schedule import query_of
from ..shapes import Prompt32Shape
from ..softmax import QUAD, lane_sum, row_top
from ..tiles import FLOAT, I64, constant, f32, register_op, tuples
from .phases import rows_written

FAR_KEYS, LOWEST = 8, -3.4028234663852886e38  # keys at a time, and the first row max


@register_op(types.float32)
def load_scale(b, pointer, index):
    """Load scale `index`, after `wait_for_launch`: not through the cache for constant data (ld.global.nc)."""
    address = pointer + (b.sext(index, I64) << 2)
    return b.as_floats(b.load_words("ld.global", address, 1))[0]


def tiles_of_head(shape: Prompt32Shape) -> Any:
    """tiles(sizes): the number of scales of a head, as `split.tile_count`."""
    keys = shape.tile_keys

    @cuda.jit(device=True, forceinline=True)
    def tiles(sizes):
        return (max(sizes.seq_q, sizes.seq_k) + keys - 1) // keys

    return tiles


def query_scale(shape: Prompt32Shape) -> Any:
    """scale(scales, sizes, batch, head, row) of a row of queries; after the last row, the last row's."""
    keys, tiles = shape.tile_keys, tiles_of_head(shape)

    @cuda.jit(device=True, forceinline=True)
    def scale(scales, sizes, batch, head, row):
        of_group, query = query_of(min(row, sizes.group * sizes.seq_q - 1), sizes)
        number = batch * sizes.kv_heads * (sizes.group + 2) + head * sizes.group + of_group
        return load_scale(scales, number * tiles(sizes) + query // keys)

    return scale


@register_op(types.void)
def store_row(b, pointer, valid, member, acc, row_sum, *, shape, half):
    """Store row g + 8 half of fragments, divided by its row sum, for `phases.rows_written`."""
    by = exact_inverse(b, row_sum[half])
    address = pointer + b.zext(member << 3, I64)
    with b.if_then(valid):
        for tile in range(shape.hdim // 8):
            values = [acc[4 * tile + 2 * half + i] * by for i in range(2)]
            b.store_words("st.global", address, b.as_words(values), 32 * tile)


@register_op(types.void)
def stage(b, shared, index, row, chunk, parts, source, inside, scale, factor, *, shape, pitch, by_dim):
    """Store four dims of a row as float32, or zeros.

    parts: the address of all rows, float32[rows, dims] or their float16 parts; `source` is the row that is loaded.
    by_dim: columns in the order in which `tf32.accumulate` and the output of wgmma have the same dim: dim 8 j + n of
    32 at column 4 n + j.
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


@register_op(lambda each, size: tuples(2 * each, 2, 2, size))
def online_softmax(b, scores, row_max, row_sum, acc, keys, *, each, size):
    """-> (p, row_max, row_sum, acc) of two rows.

    Scores are natural, as in base 2 the largest would overflow. Weights of all `keys` add up to at most 1, so that no
    sum of weights times values overflows.
    """
    ceiling = b.sitofp(b.ctlz(keys - 1, ir.Constant(ir.IntType(1), 0)) - 32, FLOAT)
    p, new_max, new_sum, rescale = [], [], [], []
    for row in range(2):
        of_row = scores[each * row : each * (row + 1)]
        new_max.append(b.maximum(row_max[row], row_top(b, of_row, QUAD)))
        weights = [b.exp2(b.fma(score - new_max[row], f32(LOG2_E), ceiling)) for score in of_row]
        rescale.append(b.exp2((row_max[row] - new_max[row]) * LOG2_E))
        new_sum.append(functools.reduce(b.fadd, weights, row_sum[row] * rescale[row]))
        p += weights
    return p, new_max, new_sum, scaled_rows(b, acc, rescale)


def attend_fallback(shape: Prompt32Shape) -> Any:
    """attend(shared, tid, ...): the tile of a block by `atoms.tf32`, from tiles of float32 in shared memory."""
    # tile
    dims, rows, tile_keys = shape.dims, shape.rows, shape.tile_keys
    keys = FAR_KEYS  # that are scored at a time
    chunk_shape = ChunkShape("float32", dims, rows, FAR_KEYS, 1, 1, False)
    tiles_of, bounds = tiles_of_head(shape), bounds_of(shape)
    # shared memory, in floats: Q, then a tile of K, a tile of V
    key_pitch, value_pitch = chunk_shape.key_pitch, chunk_shape.value_pitch
    k_smem = rows * key_pitch
    v_smem = k_smem + tile_keys * key_pitch
    # loads
    chunks = shape.dims // 4
    row_step = shape.threads // chunks
    assert v_smem + tile_keys * value_pitch <= shape.layout["barriers"] and shape.threads % chunks == 0
    stage_key = stage(shape, key_pitch, False)
    stage_value = stage(shape, value_pitch, True)
    q_scale = query_scale(shape)
    # products
    multiply_qk = tf32.scores(chunk_shape, rounded=True)
    add_pv = tf32.accumulate(chunk_shape)
    # softmax
    masked = mask(shape, 2, key_offsets(keys))
    softmax = online_softmax(keys // 4, dims // 2)
    sum_over_quad = lane_sum(2, QUAD)
    # initial values, and the store
    zero_acc = constant(dims // 2, 0.0)
    lowest = constant(2, LOWEST)
    zero = constant(2, 0.0)
    write = rows_written(shape, store_row)

    @cuda.jit(device=True, forceinline=True)
    def attend(shared, tid, tensors, sizes, rotation, scales, q_parts, k_parts, v_parts, batch, head, tile, tiles,
               all_keys, first_query, k_scales):  # fmt: skip
        # prologue: Q
        lane, warp, shared_head = tid & 31, tid >> 5, uint64(batch * sizes.kv_heads + head)
        # [group * seq_q, dims] and [seq_k, dims] of the sequence and KV head
        q_gmem = advance(q_parts, shared_head * uint64(sizes.group * sizes.seq_q) * uint64(dims))
        k_gmem = advance(k_parts, shared_head * uint64(sizes.seq_k) * uint64(dims))
        v_gmem = advance(v_parts, shared_head * uint64(sizes.seq_k) * uint64(dims))
        v_scales, natural = k_scales + sizes.kv_heads * tiles_of(sizes), sizes.scale * float32(1.0 / LOG2_E)
        first, chunk, one = tid // chunks, tid % chunks, float32(1.0)
        index = first
        while index < rows:
            source = min(tile * rows + index, sizes.group * sizes.seq_q - 1)
            stage_key(shared, 0, index, chunk, q_gmem, source, 1, q_scale(scales, sizes, batch, head, source), natural)
            index += row_step
        row, number = tile * rows + warp * 16 + (lane >> 2), cint(0)
        seen = bounds(row, all_keys, first_query, batch, head, sizes, rotation)
        acc_rmem, row_max, row_sum = zero_acc(), lowest(), zero()
        # main loop
        while number < tiles:
            # load
            cuda.syncthreads()
            k_scale, v_scale = load_scale(scales, k_scales + number), load_scale(scales, v_scales + number)
            index = first
            while index < tile_keys:
                key = number * tile_keys + index
                source, inside = min(key, sizes.seq_k - 1), cint(key < sizes.seq_k)
                stage_key(shared, k_smem, index, chunk, k_gmem, source, inside, k_scale, one)
                stage_value(shared, v_smem, index, chunk, v_gmem, source, inside, v_scale, one)
                index += row_step
            cuda.syncthreads()
            # score, softmax, weigh
            index = cint(0)
            while index < tile_keys and warp * 16 < rows:
                scores = multiply_qk(shared, warp * 16 * key_pitch, k_smem + index * key_pitch, lane)
                scores = masked(scores, number * tile_keys + index + 2 * (lane & 3), seen)
                p, row_max, row_sum, acc_rmem = softmax(scores, row_max, row_sum, acc_rmem, sizes.seq_k)
                acc_rmem = add_pv(shared, v_smem + index * value_pitch, lane, acc_rmem, p)
                index += keys
            number += 1
        # epilogue
        if warp * 16 < rows:
            write(tensors, sizes, batch, head, row, lane, acc_rmem, sum_over_quad(row_sum))

    return attend
