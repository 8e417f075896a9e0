"""FP16 Phase 6, iteration 1: a thread for each query row, which keeps the row's output in "registers".

Change from fp16_phase4: a causal mask, without skipping tiles that are fully masked. A block has 256 threads. Of these
32 compute, each a whole row: scores, softmax (every exponential once, stored over the scores) and the product with V. K
and V alternate in one tile. Each thread has arrays for the maximum, sum and output of all 32 rows and uses those of its
own row. Such a run-time index puts them in local memory.

Source: Phase 6 Status Report, "Iteration 1 (Complex Register Tiling)".
"""

import math

from numba import cuda, float32, types

from ...constants import BLOCK_K, THREADS
from ...device import NEGATIVE_INFINITY, cint, ld4, local_array, st4
from ...version import Plan, Problem, SharedLayout, register
from .arrays import shared_arrays
from .products import rows_of_block
from .rows import add_values, clear_row, copy_row, exponentials, largest, scale_row, score_row, store_row
from .shapes import BLOCK_M, HDIM, VECTOR, fp16_buffers, fp16_launch, require_fp16_problem

# One element per row of the block, and one per row and dim; a thread uses only its own row.
per_row = local_array(types.float32, BLOCK_M)
per_output = local_array(types.float32, int(BLOCK_M * HDIM))

LAYOUT = SharedLayout(query=BLOCK_M * HDIM // 2, key_value=BLOCK_K * HDIM // 2, scores=BLOCK_M * BLOCK_K)
shared = shared_arrays(LAYOUT, "query", "key_value")


def attention(q, k, v, out, seq, softmax_scale):
    query, key_value, scores = shared()
    row_max = per_row()
    row_sum = per_row()
    accumulator = per_output()
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
    title="Phase 6, iteration 1: a thread a row, output in local memory",
    parent="fp16_phase4",
    baseline="fp16_phase4",
    change="a thread computes a whole row, exponentials once; 256 threads, 32 at work; causal",
    iterations=100,
)
def fp16_phase6_iter1(problem: Problem) -> Plan:
    """Plan causal float16 attention, head dim 64. Raises: Unsupported."""
    require_fp16_problem(problem, causal=True)
    launch = fp16_launch(problem, attention, BLOCK_M, THREADS, min_blocks=2, static=LAYOUT)
    return Plan(problem, fp16_buffers(problem), (launch,))
