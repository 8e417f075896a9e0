"""FP16 Phase 6, iteration 2, with a warp a row: all 256 threads compute.

Change from fp16_phase6_iter2: a warp takes every eighth row. Its lanes share the keys of a tile for the
scores and the softmax, which shuffles reduce, and the dims for the product with V; of a row of Q or of the
output, eight lanes move 16 bytes each. Tiles, barriers, shared memory and the load of K and V are the same.
"""

from __future__ import annotations

import math

import numpy as np
from numba import cuda, float32, uint16, uint32

from ..constants import BLOCK_K, FLOAT, THREADS, UINT
from ..device.half import HALVES, floats2half2, half2float
from ..device.reduce import NEGATIVE_INFINITY, warp_max, warp_sum
from ..device.vector import advance, ld4, make_float4, st4
from ..fp16.shapes import BLOCK_M, HDIM, MASKED, UNROLL, VECTOR, WARP, fp16_buffers, require_fp16_problem
from ..version import Kernel, Launch, Plan, Problem, SharedLayout, register

WARPS = THREADS // WARP

LAYOUT = SharedLayout(
    query=BLOCK_M * HDIM // 2,
    key_value=BLOCK_K * HDIM // 2,
    scores=BLOCK_M * BLOCK_K,
    accumulator=BLOCK_M * HDIM,
    row_max=BLOCK_M,
    row_sum=BLOCK_M,
)
# Offsets in halves, then in floats.
QUERY = np.uint32(2 * LAYOUT["query"])
KEY_VALUE = np.uint32(2 * LAYOUT["key_value"])
SCORES = np.uint32(LAYOUT["scores"])
ACCUMULATOR = np.uint32(LAYOUT["accumulator"])
ROW_MAX = np.uint32(LAYOUT["row_max"])
ROW_SUM = np.uint32(LAYOUT["row_sum"])


def attention(q, k, v, out, seq, softmax_scale):
    shared = cuda.shared.array(0, float32)  # on 4 bytes, as in the source: 16 would merge loads
    halves = cuda.shared.array(0, uint16, 16)
    tid = uint32(cuda.threadIdx.x)
    warp_id = tid // WARP
    lane_id = tid % WARP
    head = uint32(cuda.blockIdx.z) * uint32(cuda.gridDim.y) + uint32(cuda.blockIdx.y)
    block_start = uint32(cuda.blockIdx.x) * BLOCK_M
    q_block = advance(q, (head * seq + block_start) * HDIM)
    out_block = advance(out, (head * seq + block_start) * HDIM)
    k_head = advance(k, head * seq * HDIM)
    v_head = advance(v, head * seq * HDIM)

    row = warp_id
    while row < BLOCK_M:
        dim = lane_id * VECTOR
        if dim < HDIM:
            st4(halves, QUERY + row * HDIM + dim, ld4(q_block, row * HDIM + dim))
        if lane_id == 0:
            shared[ROW_MAX + row] = NEGATIVE_INFINITY
            shared[ROW_SUM + row] = float32(0.0)
        dim = lane_id
        while dim < HDIM:
            shared[ACCUMULATOR + row * HDIM + dim] = float32(0.0)
            dim += WARP
        row += WARPS
    cuda.syncthreads()

    tile_start = uint32(0)
    while tile_start < seq:
        if tid < BLOCK_K:
            k_row = advance(k_head, (tile_start + tid) * HDIM)
            dim = uint32(0)
            while dim < HDIM:
                st4(halves, KEY_VALUE + tid * HDIM + dim, ld4(k_row, dim))
                dim += VECTOR
        cuda.syncthreads()

        row = warp_id
        while row < BLOCK_M:
            key = lane_id
            while key < BLOCK_K:
                score = float32(0.0)
                for part in range(2):  # a while loop would stay one here, and load K one half at a time
                    for step in range(UNROLL):
                        dim = uint32(part * UNROLL + step)
                        a = half2float(halves[QUERY + row * HDIM + dim])
                        score += a * half2float(halves[KEY_VALUE + key * HDIM + dim])
                score *= softmax_scale
                if tile_start + key > block_start + row:
                    score = MASKED
                shared[SCORES + row * BLOCK_K + key] = score
                key += WARP
            row += WARPS
        cuda.syncthreads()

        row = warp_id
        while row < BLOCK_M:
            tile_max = NEGATIVE_INFINITY
            key = lane_id
            while key < BLOCK_K:
                tile_max = max(tile_max, shared[SCORES + row * BLOCK_K + key])
                key += WARP
            old_max = shared[ROW_MAX + row]
            new_max = max(old_max, warp_max(tile_max))
            correction = math.exp(old_max - new_max)
            dim = lane_id
            while dim < HDIM:
                shared[ACCUMULATOR + row * HDIM + dim] *= correction
                dim += WARP
            tile_sum = float32(0.0)
            key = lane_id
            while key < BLOCK_K:
                p = math.exp(shared[SCORES + row * BLOCK_K + key] - new_max)
                shared[SCORES + row * BLOCK_K + key] = p
                tile_sum += p
                key += WARP
            tile_sum = warp_sum(tile_sum)
            cuda.syncwarp()  # every lane has read the old maximum
            if lane_id == 0:
                shared[ROW_SUM + row] = correction * shared[ROW_SUM + row] + tile_sum
                shared[ROW_MAX + row] = new_max
            row += WARPS
        cuda.syncthreads()

        if tid < BLOCK_K:
            v_row = advance(v_head, (tile_start + tid) * HDIM)
            dim = uint32(0)
            while dim < HDIM:
                st4(halves, KEY_VALUE + tid * HDIM + dim, ld4(v_row, dim))
                dim += VECTOR
        cuda.syncthreads()

        row = warp_id
        while row < BLOCK_M:
            dim = lane_id
            while dim < HDIM:
                acc = float32(0.0)
                key = uint32(0)
                while key < BLOCK_K:
                    for step in range(UNROLL):
                        p = shared[SCORES + row * BLOCK_K + key + uint32(step)]
                        acc += p * half2float(halves[KEY_VALUE + (key + uint32(step)) * HDIM + dim])
                    key += uint32(UNROLL)
                shared[ACCUMULATOR + row * HDIM + dim] += acc
                dim += WARP
            row += WARPS
        cuda.syncthreads()
        tile_start += BLOCK_K

    row = warp_id
    while row < BLOCK_M:
        dim = lane_id * VECTOR
        if dim < HDIM:
            row_sum = shared[ROW_SUM + row]
            i = ACCUMULATOR + row * HDIM + dim
            a = floats2half2(shared[i] / row_sum, shared[i + 1] / row_sum)
            b = floats2half2(shared[i + 2] / row_sum, shared[i + 3] / row_sum)
            c = floats2half2(shared[i + 4] / row_sum, shared[i + 5] / row_sum)
            d = floats2half2(shared[i + 6] / row_sum, shared[i + 7] / row_sum)
            st4(out_block, row * HDIM + dim, make_float4(a, b, c, d))
        row += WARPS


@register(
    family="fp16",
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
    launch = Launch(
        Kernel(attention, (HALVES,) * 4 + (UINT, FLOAT), max_threads=int(THREADS), min_blocks=2, fast_math=True),
        grid=(problem.seq_q // int(BLOCK_M), problem.heads, problem.batch),
        block=(THREADS,),
        args=("q", "k", "v", "out", problem.seq_k, problem.softmax_scale),
        shared=LAYOUT,
    )
    return Plan(problem, fp16_buffers(problem), (launch,))
