"""FP16 Phase 6, iteration 1: a thread for each query row, which keeps the row's output in "registers".

Change from fp16_phase4: a causal mask, without skipping tiles that are fully masked. A block has 256 threads. Of these
32 compute, each a whole row: scores, softmax (every exponential once, stored over the scores) and the product with V. K
and V alternate in one tile. Each thread has arrays for the maximum, sum and output of all 32 rows and uses those of its
own row. Such a run-time index puts them in local memory.

Source: Phase 6 Status Report, "Iteration 1 (Complex Register Tiling)".
"""

import math

from numba import cuda, float32, types

from ..constants import BLOCK_K, THREADS
from ..device.cint import cint
from ..device.local import local_array
from ..device.reduce import NEGATIVE_INFINITY
from ..device.vector import advance, ld4, st4
from ..version import Plan, Problem, SharedLayout, register
from .arrays import shared_array
from .products import weighted_value
from .rows import copy_row, exponentials, largest, score_row, store_row
from .shapes import BLOCK_M, HDIM, VECTOR, fp16_buffers, fp16_launch, require_fp16_problem

# One element per row of the block, and one per row and dim; a thread uses only its own row.
per_row = local_array(types.float32, BLOCK_M)
per_output = local_array(types.float32, int(BLOCK_M * HDIM))

DIM_UNROLL = 8

LAYOUT = SharedLayout(query=BLOCK_M * HDIM // 2, key_value=BLOCK_K * HDIM // 2, scores=BLOCK_M * BLOCK_K)
shared_query = shared_array(LAYOUT, "query", types.uint16)
shared_key_value = shared_array(LAYOUT, "key_value", types.uint16)
shared_scores = shared_array(LAYOUT, "scores", types.float32)


def attention(q, k, v, out, seq, softmax_scale):
    query = shared_query()
    key_value = shared_key_value()
    scores = shared_scores()
    row_max = per_row()
    row_sum = per_row()
    accumulator = per_output()
    row = cint(cuda.threadIdx.x)
    head = cint(cuda.blockIdx.z) * cint(cuda.gridDim.y) + cint(cuda.blockIdx.y)
    block_start = cint(cuda.blockIdx.x) * BLOCK_M
    q_block = advance(q, (head * seq + block_start) * HDIM)
    out_block = advance(out, (head * seq + block_start) * HDIM)
    k_head = advance(k, head * seq * HDIM)
    v_head = advance(v, head * seq * HDIM)
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
        dim = cint(0)
        while dim < HDIM:
            accumulator[row * HDIM + dim] = float32(0.0)
            dim += 1

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
            dim = cint(0)
            while dim < HDIM:
                accumulator[row * HDIM + dim] *= correction
                dim += 1
            tile_sum = exponentials(scores, first_score, new_max)
            row_sum[row] = correction * row_sum[row] + tile_sum
            row_max[row] = new_max
        cuda.syncthreads()

        if row < BLOCK_K:
            copy_row(key_value, row * HDIM, v_head, tile_start + row)
        cuda.syncthreads()

        if row < BLOCK_M:
            dim = cint(0)
            while dim < HDIM:
                for step in range(DIM_UNROLL):
                    total = weighted_value(scores, first_score, key_value, dim + step, HDIM)
                    accumulator[row * HDIM + dim + step] += total
                dim += DIM_UNROLL
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
