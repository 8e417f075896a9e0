"""Phase 6, a row a thread: scores, softmax and the weighted sum of 64 halves, unrolled as in the source."""

import math

from numba import cuda, float32

from ...constants import BLOCK_K
from ...device import advance, cint, floats2half2, ld4, make_float4, no_unroll, opaque, st4
from .products import UNROLL, dot, weighted_value
from .shapes import HDIM, MASKED, VECTOR

DIM_UNROLL = 8


@cuda.jit(device=True, inline="always")
def copy_row(tile, place, head, row):
    """Copy row `row` of `head` to the row that begins at `tile[place]`, 16 bytes at a time."""
    source = advance(head, row * HDIM)
    dim = cint(0)
    while dim < HDIM:
        st4(tile, place + dim, ld4(source, dim))
        dim += VECTOR


@cuda.jit(device=True, inline="always")
def clear_row(accumulator, first):
    dim = cint(0)
    while dim < HDIM:
        accumulator[first + dim] = float32(0.0)
        dim += 1


@cuda.jit(device=True, inline="always")
def scale_row(accumulator, first, factor):
    dim = cint(0)
    while dim < HDIM:
        accumulator[first + dim] *= factor
        dim += 1


@cuda.jit(device=True, inline="always")
def score_row(scores, first_score, query, q_row, keys, key_row, tile_start, last, softmax_scale):
    """The scores of a query and a tile of keys, whose rows have `key_row` halves; keys after `last` are masked."""
    key = cint(0)
    while key < opaque(BLOCK_K):
        no_unroll()
        first = tile_start + key
        score0 = dot(query, q_row, keys, key * key_row) * softmax_scale
        scores[first_score + key] = score0 if first <= last else MASKED
        score1 = dot(query, q_row, keys, (key + 1) * key_row) * softmax_scale
        scores[first_score + key + 1] = score1 if first + 1 <= last else MASKED
        score2 = dot(query, q_row, keys, (key + 2) * key_row) * softmax_scale
        scores[first_score + key + 2] = score2 if first + 2 <= last else MASKED
        score3 = dot(query, q_row, keys, (key + 3) * key_row) * softmax_scale
        scores[first_score + key + 3] = score3 if first + 3 <= last else MASKED
        key += UNROLL


@cuda.jit(device=True, inline="always")
def largest(scores, first_score, value):
    key = cint(0)
    while key < opaque(BLOCK_K):
        no_unroll()
        for step in range(UNROLL):
            value = max(value, scores[first_score + key + step])
        key += UNROLL
    return value


@cuda.jit(device=True, inline="always")
def exponentials(scores, first_score, row_max):
    """Replace the scores of a tile by their exponentials; return the sum of these."""
    total = float32(0.0)
    key = cint(0)
    while key < opaque(BLOCK_K):
        no_unroll()
        for step in range(UNROLL):
            p = math.exp(scores[first_score + key + step] - row_max)
            scores[first_score + key + step] = p
            total += p
        key += UNROLL
    return total


@cuda.jit(device=True, inline="always")
def add_values(accumulator, first, weights, first_weight, values, stride):
    """Add a weighted tile of values, rows `stride` halves apart, to the 64 floats from `accumulator[first]` on."""
    dim = cint(0)
    while dim < HDIM:
        for step in range(DIM_UNROLL):
            total = weighted_value(weights, first_weight, values, dim + step, stride)
            accumulator[first + dim + step] += total
        dim += DIM_UNROLL


@cuda.jit(device=True, inline="always")
def store_row(out, place, accumulator, first, row_sum):
    """Divide the 64 floats from `accumulator[first]` on by `row_sum`, and store them as halves at `out[place]`."""
    dim = cint(0)
    while dim < HDIM:
        i = first + dim
        a = floats2half2(accumulator[i] / row_sum, accumulator[i + 1] / row_sum)
        b = floats2half2(accumulator[i + 2] / row_sum, accumulator[i + 3] / row_sum)
        c = floats2half2(accumulator[i + 4] / row_sum, accumulator[i + 5] / row_sum)
        d = floats2half2(accumulator[i + 6] / row_sum, accumulator[i + 7] / row_sum)
        st4(out, place + dim, make_float4(a, b, c, d))
        dim += VECTOR
