"""Softmax of scores in shared memory, and the weighted sum of values, in the log's kernels.

All threads of a block of THREADS call a function together. `shared` is its dynamic shared memory, in which the scores
of one query and of one tile of keys begin at `scores`. They are inlined, so that they follow their kernel's fast-math
flag.
"""

import math

from numba import cuda, float32

from ..constants import THREADS
from .cint import cint
from .reduce import NEGATIVE_INFINITY, block_max, block_max_unshared, block_sum, block_sum_unshared


@cuda.jit(device=True, inline="always")
def largest(shared, scores, keys):
    """The largest of a thread's own scores."""
    value = NEGATIVE_INFINITY
    key = cint(cuda.threadIdx.x)
    while key < keys:
        value = max(value, shared[scores + key])
        key += THREADS
    return value


@cuda.jit(device=True, inline="always")
def exponentials(shared, scores, keys, row_max):
    """Replace the scores by their exponentials; return the sum of a thread's own."""
    value = float32(0.0)
    key = cint(cuda.threadIdx.x)
    while key < keys:
        p = math.exp(shared[scores + key] - row_max)
        shared[scores + key] = p
        value += p
        key += THREADS
    return value


@cuda.jit(device=True, inline="always")
def softmax_tile(shared, scores, reduction, keys, row_max, row_sum):
    """The online softmax: the new row max, the factor that rescales earlier sums, and the new row sum."""
    new_max = max(row_max, block_max(largest(shared, scores, keys), shared, reduction))
    correction = math.exp(row_max - new_max)
    tile_sum = exponentials(shared, scores, keys, new_max)
    return new_max, correction, correction * row_sum + block_sum(tile_sum, shared, reduction)


@cuda.jit(device=True, inline="always")
def softmax_tile_unshared(shared, scores, reduction, keys, row_max, row_sum):
    """As `softmax_tile`, with reductions that do not share their result."""
    new_max = max(row_max, block_max_unshared(largest(shared, scores, keys), shared, reduction))
    correction = math.exp(row_max - new_max)
    tile_sum = exponentials(shared, scores, keys, new_max)
    return new_max, correction, correction * row_sum + block_sum_unshared(tile_sum, shared, reduction)


@cuda.jit(device=True, inline="always")
def add_values(out_row, v_tile, shared, scores, keys, hdim, tile_start, correction):
    """Rescale the output so far, in global memory, and add the weighted values of a tile."""
    dim = cint(cuda.threadIdx.x)
    while dim < hdim:
        acc = float32(0.0)
        if tile_start > 0:
            acc = out_row[dim] * correction
        key = cint(0)
        while key < keys:
            acc += shared[scores + key] * v_tile[key * hdim + dim]
            key += 1
        out_row[dim] = acc
        dim += THREADS


@cuda.jit(device=True, inline="always")
def divide_output(out_row, hdim, row_sum):
    dim = cint(cuda.threadIdx.x)
    while dim < hdim:
        out_row[dim] = out_row[dim] / row_sum
        dim += THREADS


@cuda.jit(device=True, inline="always")
def store_output(out_row, acc, hdim, row_sum):
    """Divide the output dims that a thread holds in registers, THREADS apart, and write them."""
    for r in range(len(acc)):
        dim = cint(cuda.threadIdx.x) + r * THREADS
        if dim < hdim:
            out_row[dim] = acc[r] / row_sum


@cuda.jit(device=True, inline="always")
def divide_weights(shared, scores, keys, row_sum):
    """Normalise the exponentials of a whole row: 0 where their sum is."""
    key = cint(cuda.threadIdx.x)
    while key < keys:
        shared[scores + key] = shared[scores + key] / row_sum if row_sum > float32(0.0) else float32(0.0)
        key += THREADS


@cuda.jit(device=True, inline="always")
def weigh_values(out_row, v_rows, shared, scores, keys, hdim):
    """Write the weighted sum of the values of all keys."""
    dim = cint(cuda.threadIdx.x)
    while dim < hdim:
        acc = float32(0.0)
        key = cint(0)
        while key < keys:
            acc += shared[scores + key] * v_rows[key * hdim + dim]
            key += 1
        out_row[dim] = acc
        dim += THREADS
