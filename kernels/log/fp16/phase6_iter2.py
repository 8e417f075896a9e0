"""FP16 Phase 6, iteration 2: maximum, sum and output of the rows in shared memory.

Change from fp16_phase6_iter1: these three are shared by the block instead of per-thread arrays, and a barrier follows
their initialisation. Each row is still used by its own thread only.

Source: Phase 6 Status Report, "Iteration 2 (Shared Memory Fix)".
"""

import math

from numba import cuda, float32

from ...constants import BLOCK_K, THREADS
from ...device import NEGATIVE_INFINITY, cint, ld4, st4
from ...version import Plan, Problem, SharedLayout, register
from .arrays import shared_arrays
from .products import rows_of_block
from .rows import add_values, clear_row, copy_row, exponentials, largest, scale_row, score_row, store_row
from .shapes import BLOCK_M, HDIM, VECTOR, fp16_buffers, fp16_launch, require_fp16_problem

LAYOUT = SharedLayout(
    query=BLOCK_M * HDIM // 2,
    key_value=BLOCK_K * HDIM // 2,
    scores=BLOCK_M * BLOCK_K,
    accumulator=BLOCK_M * HDIM,
    row_max=BLOCK_M,
    row_sum=BLOCK_M,
)
shared = shared_arrays(LAYOUT, "query", "key_value")


def attention(q, k, v, out, seq, softmax_scale):
    query, key_value, scores, accumulator, row_max, row_sum = shared()
    row = cint(cuda.threadIdx.x)
    block_start, q_block, out_block, k_head, v_head = rows_of_block(q, k, v, out, BLOCK_M, seq)
    first_score = row * BLOCK_K
    last = block_start + row  # the last unmasked key

    if row < BLOCK_M:
        dim = cint(0)
        while dim < HDIM:
            st4(query, row * HDIM + dim, ld4(q_block, row * HDIM + dim))
            dim += VECTOR
    cuda.syncthreads()
    if row < BLOCK_M:
        row_max[row] = NEGATIVE_INFINITY
        row_sum[row] = float32(0.0)
        clear_row(accumulator, row * HDIM)
    cuda.syncthreads()

    tile_start = cint(0)
    while tile_start < seq:
        if row < BLOCK_K:
            copy_row(key_value, row * HDIM, k_head, tile_start + row)
        cuda.syncthreads()

        if row < BLOCK_M:
            score_row(scores, first_score, query, row * HDIM, key_value, HDIM, tile_start, last, softmax_scale)
        cuda.syncthreads()

        if row < BLOCK_M:
            new_max = largest(scores, first_score, row_max[row])
            correction = math.exp(row_max[row] - new_max)
            scale_row(accumulator, row * HDIM, correction)
            tile_sum = exponentials(scores, first_score, new_max)
            row_sum[row] = correction * row_sum[row] + tile_sum
            row_max[row] = new_max
        cuda.syncthreads()

        if row < BLOCK_K:
            copy_row(key_value, row * HDIM, v_head, tile_start + row)
        cuda.syncthreads()

        if row < BLOCK_M:
            add_values(accumulator, row * HDIM, scores, first_score, key_value, HDIM)
        cuda.syncthreads()
        tile_start += BLOCK_K

    if row < BLOCK_M:
        store_row(out_block, row * HDIM, accumulator, row * HDIM, row_sum[row])


@register(
    title="Phase 6, iteration 2: a thread a row, output in shared memory",
    parent="fp16_phase6_iter1",
    baseline="fp16_phase4",
    change="maximum, sum and output of the rows in shared memory, not in local memory",
    iterations=100,
)
def fp16_phase6_iter2(problem: Problem) -> Plan:
    """Plan causal float16 attention, head dim 64. Raises: Unsupported."""
    require_fp16_problem(problem, causal=True)
    launch = fp16_launch(problem, attention, BLOCK_M, THREADS, min_blocks=2, static=LAYOUT)
    return Plan(problem, fp16_buffers(problem), (launch,))
