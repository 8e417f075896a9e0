"""FP16 Phase 6, iteration 2, with a warp a row: all 256 threads compute.

Change from fp16_phase6_iter2: a warp takes every eighth row. Its lanes divide the keys of a tile for the scores and the
softmax, which shuffles reduce, and the dims for the product with V. Eight lanes each move 16 bytes of a row of Q or of
the output. Tiles, barriers, shared memory and the load of K and V are the same.
"""

import math

from numba import cuda, float32

from ...constants import BLOCK_K, THREADS
from ...device import NEGATIVE_INFINITY, cint, floats2half2, ld4, make_float4, st4, warp_max, warp_sum
from ...version import Plan, Problem, register
from ..fp16.phase6_iter2 import LAYOUT, shared
from ..fp16.products import dot, rows_of_block, weighted_value
from ..fp16.rows import copy_row
from ..fp16.shapes import BLOCK_M, HDIM, MASKED, VECTOR, WARP, fp16_buffers, fp16_launch, require_fp16_problem

WARPS = THREADS // WARP


def attention(q, k, v, out, seq, softmax_scale):
    query, key_value, scores, accumulator, row_max, row_sum = shared()
    tid = cint(cuda.threadIdx.x)
    warp_id = tid // WARP
    lane_id = tid % WARP
    block_start, q_block, out_block, k_head, v_head = rows_of_block(q, k, v, out, BLOCK_M, seq)

    row = warp_id
    while row < BLOCK_M:
        dim = lane_id * VECTOR
        if dim < HDIM:
            st4(query, row * HDIM + dim, ld4(q_block, row * HDIM + dim))
        row += WARPS
    cuda.syncthreads()
    row = warp_id
    while row < BLOCK_M:
        if lane_id == 0:
            row_max[row] = NEGATIVE_INFINITY
            row_sum[row] = float32(0.0)
        dim = lane_id
        while dim < HDIM:
            accumulator[row * HDIM + dim] = float32(0.0)
            dim += WARP
        row += WARPS
    cuda.syncthreads()

    tile_start = cint(0)
    while tile_start < seq:
        if tid < BLOCK_K:
            copy_row(key_value, tid * HDIM, k_head, tile_start + tid)
        cuda.syncthreads()

        row = warp_id
        while row < BLOCK_M:
            key = lane_id
            while key < BLOCK_K:
                score = dot(query, row * HDIM, key_value, key * HDIM) * softmax_scale
                if tile_start + key > block_start + row:
                    score = MASKED
                scores[row * BLOCK_K + key] = score
                key += WARP
            row += WARPS
        cuda.syncthreads()

        row = warp_id
        while row < BLOCK_M:
            tile_max = NEGATIVE_INFINITY
            key = lane_id
            while key < BLOCK_K:
                tile_max = max(tile_max, scores[row * BLOCK_K + key])
                key += WARP
            old_max = row_max[row]
            new_max = max(old_max, warp_max(tile_max))
            correction = math.exp(old_max - new_max)
            dim = lane_id
            while dim < HDIM:
                accumulator[row * HDIM + dim] *= correction
                dim += WARP
            tile_sum = float32(0.0)
            key = lane_id
            while key < BLOCK_K:
                p = math.exp(scores[row * BLOCK_K + key] - new_max)
                scores[row * BLOCK_K + key] = p
                tile_sum += p
                key += WARP
            tile_sum = warp_sum(tile_sum)
            cuda.syncwarp()  # every lane has read the old maximum
            if lane_id == 0:
                row_sum[row] = correction * row_sum[row] + tile_sum
                row_max[row] = new_max
            row += WARPS
        cuda.syncthreads()

        if tid < BLOCK_K:
            copy_row(key_value, tid * HDIM, v_head, tile_start + tid)
        cuda.syncthreads()

        row = warp_id
        while row < BLOCK_M:
            dim = lane_id
            while dim < HDIM:
                accumulator[row * HDIM + dim] += weighted_value(scores, row * BLOCK_K, key_value, dim, HDIM)
                dim += WARP
            row += WARPS
        cuda.syncthreads()
        tile_start += BLOCK_K

    row = warp_id
    while row < BLOCK_M:
        dim = lane_id * VECTOR
        if dim < HDIM:
            i = row * HDIM + dim
            a = floats2half2(accumulator[i] / row_sum[row], accumulator[i + 1] / row_sum[row])
            b = floats2half2(accumulator[i + 2] / row_sum[row], accumulator[i + 3] / row_sum[row])
            c = floats2half2(accumulator[i + 4] / row_sum[row], accumulator[i + 5] / row_sum[row])
            d = floats2half2(accumulator[i + 6] / row_sum[row], accumulator[i + 7] / row_sum[row])
            st4(out_block, i, make_float4(a, b, c, d))
        row += WARPS


@register(
    title="Phase 6, iteration 2, with a warp a row",
    parent="fp16_phase6_iter2",
    baseline="fp16_phase4",
    source='Phase 6 Status Report, "Iteration 2 (Shared Memory Fix)"',
    change="every warp takes four rows, its lanes share keys, then dims; all 256 threads compute",
    iterations=100,
    ablation=True,
)
def fp16_phase6_iter2_warp_per_row(problem: Problem) -> Plan:
    """Plan causal float16 attention, head dim 64. Raises: Unsupported."""
    require_fp16_problem(problem, causal=True)
    launch = fp16_launch(problem, attention, BLOCK_M, THREADS, min_blocks=2, static=LAYOUT)
    return Plan(problem, fp16_buffers(problem), (launch,))
