"""FP16 Phase 4: 32 query rows a block, K and V tiles in shared memory, and one barrier too few.

Change from fp16_minimal: one warp of four computes all scores, one row per thread. Then each warp does softmax and the
product with V for every fourth row, and computes every exponential again for every dim. 16-byte loads of K and V;
fast-math.

No barrier separates the scores from the softmax. So warps 1 to 3 take the maximum of their first row from the previous
contents of the scores: the previous tile's, or for the first tile whatever an earlier block left. A softmax may
subtract any number that keeps its exponentials in range, so stale scores of the same problem do no harm. In the first
tile, rows 1 to 3 of the block are right if the memory held numbers within about 80 of the row's own scores. They are
NaN if it held nothing as close, or nothing finite.

Source: Phase 6 Status Report, "Phase 4 (Proven Baseline)".
"""

import math

import numpy as np
from numba import cuda, float32

from ...checking.models import Array, scaled_scores, softmax
from ...constants import BLOCK_K
from ...device import FULL_MASK, NEGATIVE_INFINITY, advance, cint, float2half, half2float, ld4, st4
from ...version import SYNC, Hazard, Plan, Problem, SharedLayout, register
from .arrays import shared_arrays
from .products import dot
from .shapes import BLOCK_M, HDIM, VECTOR, WARP, fp16_buffers, fp16_launch, require_fp16_problem

WARPS = 4
ROWS_PER_WARP = 8
PV_UNROLL = 16

LAYOUT = SharedLayout(
    query=BLOCK_M * HDIM // 2,
    key=BLOCK_K * HDIM // 2,
    value=BLOCK_K * HDIM // 2,
    scores=BLOCK_M * BLOCK_K,
    accumulator=BLOCK_M * HDIM,
    warp_max=WARPS,
    warp_sum=WARPS,
)
shared = shared_arrays(LAYOUT, "query", "key", "value")


def attention(q, k, v, out, seq, softmax_scale):
    query, keys, values, scores, accumulator, warp_max, warp_sum = shared()
    row_max = cuda.local.array(ROWS_PER_WARP, float32)
    row_sum = cuda.local.array(ROWS_PER_WARP, float32)
    tid = cint(cuda.threadIdx.x)
    warp_id = tid // WARP
    lane_id = tid % WARP
    head = cint(cuda.blockIdx.z) * cint(cuda.gridDim.y) + cint(cuda.blockIdx.y)
    first_row = head * seq + cint(cuda.blockIdx.x) * BLOCK_M
    q_block, out_block = advance(q, first_row * HDIM), advance(out, first_row * HDIM)
    k_head, v_head = advance(k, head * seq * HDIM), advance(v, head * seq * HDIM)

    for i in range(ROWS_PER_WARP):
        row = warp_id + i * WARPS
        dim = lane_id
        while dim < HDIM:
            query[row * HDIM + dim] = q_block[row * HDIM + dim]
            accumulator[row * HDIM + dim] = float32(0.0)
            dim += WARP
        row_max[i] = NEGATIVE_INFINITY
        row_sum[i] = float32(0.0)
    cuda.syncthreads()

    tile_start = cint(0)
    while tile_start < seq:
        k_tile = advance(k_head, tile_start * HDIM)
        v_tile = advance(v_head, tile_start * HDIM)
        key = warp_id
        while key < BLOCK_K:
            dim = lane_id * VECTOR
            if dim < HDIM:
                st4(keys, key * HDIM + dim, ld4(k_tile, key * HDIM + dim))
                st4(values, key * HDIM + dim, ld4(v_tile, key * HDIM + dim))
            key += WARPS
        cuda.syncthreads()

        if tid < BLOCK_M:
            key = cint(0)
            while key < BLOCK_K:
                score = dot(query, tid * HDIM, keys, key * HDIM)
                scores[tid * BLOCK_K + key] = score * softmax_scale
                key += 1

        for i in range(ROWS_PER_WARP):
            row = warp_id + i * WARPS
            first_score = row * BLOCK_K
            tile_max = NEGATIVE_INFINITY
            key = lane_id
            while key < BLOCK_K:
                tile_max = max(tile_max, scores[first_score + key])
                key += WARP
            for offset in (16, 8, 4, 2, 1):
                tile_max = max(tile_max, cuda.shfl_down_sync(FULL_MASK, tile_max, offset))
            if lane_id == 0:
                warp_max[warp_id] = tile_max
            cuda.syncthreads()

            new_max = max(row_max[i], warp_max[warp_id])
            correction = math.exp(row_max[i] - new_max)
            dim = lane_id
            while dim < HDIM:
                accumulator[row * HDIM + dim] *= correction
                dim += WARP
            tile_sum = float32(0.0)
            key = lane_id
            while key < BLOCK_K:
                tile_sum += math.exp(scores[first_score + key] - new_max)
                key += WARP
            for offset in (16, 8, 4, 2, 1):
                tile_sum += cuda.shfl_down_sync(FULL_MASK, tile_sum, offset)
            if lane_id == 0:
                warp_sum[warp_id] = tile_sum
            cuda.syncthreads()

            row_sum[i] = correction * row_sum[i] + warp_sum[warp_id]
            row_max[i] = new_max
            dim = lane_id
            while dim < HDIM:
                acc = float32(0.0)
                key = cint(0)
                while key < BLOCK_K:
                    for step in range(PV_UNROLL):
                        p = math.exp(scores[first_score + key + step] - new_max)
                        acc += p * half2float(values[(key + step) * HDIM + dim])
                    key += PV_UNROLL
                accumulator[row * HDIM + dim] += acc
                dim += WARP
        cuda.syncthreads()
        tile_start += BLOCK_K

    for i in range(ROWS_PER_WARP):
        row = warp_id + i * WARPS
        dim = lane_id
        while dim < HDIM:
            out_block[row * HDIM + dim] = float2half(accumulator[row * HDIM + dim] / row_sum[i])
            dim += WARP


def wrong_output(
    problem: Problem, q: Array, k: Array, v: Array, block_rows: int = BLOCK_M, first_row: int = 1
) -> Array:
    """In float64: rows `first_row` to 3 of a block take their maximum from uninitialised memory, NaN here."""
    scores = scaled_scores(problem, q, k)
    if problem.causal:
        scores[..., np.triu(np.ones((problem.seq_q, problem.seq_k), dtype=bool), 1)] = -math.inf
    out = softmax(scores) @ v
    out[..., np.isin(np.arange(problem.seq_q) % block_rows, range(first_row, 4)), :] = np.nan
    return out


HAZARDS = (
    Hazard("race", "attention", "scores", "no barrier separates the scores from the maximum of a warp's first row"),
    Hazard("uninitialised", "attention", "scores", "in the first tile, that maximum is of what ran on the SM before"),
)


@register(
    title="Phase 4: 32 rows a block, a barrier short",
    parent="fp16_minimal",
    baseline="fp16_minimal",
    change="tiles of queries, keys and values in shared memory; four warps share the softmax; fast-math",
    iterations=100,
    wrong_output=wrong_output,
)
def fp16_phase4(problem: Problem) -> Plan:
    """Plan float16 attention without a mask, head dim 64; wrong where shared memory starts as NaN.

    Raises: Unsupported.
    """
    require_fp16_problem(problem, causal=False)
    launch = fp16_launch(problem, attention, BLOCK_M, WARPS * WARP, static=LAYOUT)
    return Plan(
        problem,
        fp16_buffers(problem),
        (launch, SYNC),
        defect="rows 1 to 3 of every 32 take their first maximum from memory that nobody wrote; NaN where that is NaN",
        hazards=HAZARDS,
    )
