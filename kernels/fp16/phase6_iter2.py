"""FP16 Phase 6, iteration 2: maximum, sum and output of the rows in shared memory.

Change from fp16_phase6_iter1: these three are shared by the block, not arrays of every thread, and a
barrier follows their initialisation. Each is still used by the thread of its row alone.

Source: Phase 6 Status Report, "Iteration 2 (Shared Memory Fix)".
"""

from __future__ import annotations

import math

import numpy as np
from numba import cuda, float32, uint16, uint32

from ..constants import BLOCK_K, FLOAT, THREADS, UINT
from ..device.half import HALVES, floats2half2, half2float
from ..device.reduce import NEGATIVE_INFINITY
from ..device.vector import advance, ld4, make_float4, st4
from ..version import Kernel, Launch, Plan, Problem, SharedLayout, register
from .shapes import BLOCK_M, HDIM, MASKED, UNROLL, VECTOR, fp16_buffers, require_fp16_problem

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
    row = uint32(cuda.threadIdx.x)
    head = uint32(cuda.blockIdx.z) * uint32(cuda.gridDim.y) + uint32(cuda.blockIdx.y)
    block_start = uint32(cuda.blockIdx.x) * BLOCK_M
    q_block = advance(q, (head * seq + block_start) * HDIM)
    out_block = advance(out, (head * seq + block_start) * HDIM)
    k_head = advance(k, head * seq * HDIM)
    v_head = advance(v, head * seq * HDIM)
    scores = SCORES + row * BLOCK_K
    accumulator = ACCUMULATOR + row * HDIM
    row_max = ROW_MAX + row
    row_sum = ROW_SUM + row

    if row < BLOCK_M:
        dim = uint32(0)
        while dim < HDIM:
            st4(halves, QUERY + row * HDIM + dim, ld4(q_block, row * HDIM + dim))
            dim += VECTOR
        shared[row_max] = NEGATIVE_INFINITY
        shared[row_sum] = float32(0.0)
        dim = uint32(0)
        while dim < HDIM:
            shared[accumulator + dim] = float32(0.0)
            dim += uint32(1)
    cuda.syncthreads()

    tile_start = uint32(0)
    while tile_start < seq:
        if row < BLOCK_K:
            k_row = advance(k_head, (tile_start + row) * HDIM)
            dim = uint32(0)
            while dim < HDIM:
                st4(halves, KEY_VALUE + row * HDIM + dim, ld4(k_row, dim))
                dim += VECTOR
        cuda.syncthreads()

        if row < BLOCK_M:
            key = uint32(0)
            while key < BLOCK_K:
                score = float32(0.0)
                dim = uint32(0)
                while dim < HDIM:
                    for step in range(UNROLL):
                        a = half2float(halves[QUERY + row * HDIM + dim + uint32(step)])
                        score += a * half2float(halves[KEY_VALUE + key * HDIM + dim + uint32(step)])
                    dim += uint32(UNROLL)
                score *= softmax_scale
                if tile_start + key > block_start + row:
                    score = MASKED
                shared[scores + key] = score
                key += uint32(1)
        cuda.syncthreads()

        if row < BLOCK_M:
            new_max = shared[row_max]
            key = uint32(0)
            while key < BLOCK_K:
                new_max = max(new_max, shared[scores + key])
                key += uint32(1)
            correction = math.exp(shared[row_max] - new_max)
            dim = uint32(0)
            while dim < HDIM:
                shared[accumulator + dim] *= correction
                dim += uint32(1)
            tile_sum = float32(0.0)
            key = uint32(0)
            while key < BLOCK_K:
                p = math.exp(shared[scores + key] - new_max)
                shared[scores + key] = p
                tile_sum += p
                key += uint32(1)
            shared[row_sum] = correction * shared[row_sum] + tile_sum
            shared[row_max] = new_max
        cuda.syncthreads()

        if row < BLOCK_K:
            v_row = advance(v_head, (tile_start + row) * HDIM)
            dim = uint32(0)
            while dim < HDIM:
                st4(halves, KEY_VALUE + row * HDIM + dim, ld4(v_row, dim))
                dim += VECTOR
        cuda.syncthreads()

        if row < BLOCK_M:
            dim = uint32(0)
            while dim < HDIM:
                acc = float32(0.0)
                key = uint32(0)
                while key < BLOCK_K:
                    for step in range(UNROLL):
                        p = shared[scores + key + uint32(step)]
                        acc += p * half2float(halves[KEY_VALUE + (key + uint32(step)) * HDIM + dim])
                    key += uint32(UNROLL)
                shared[accumulator + dim] += acc
                dim += uint32(1)
        cuda.syncthreads()
        tile_start += BLOCK_K

    if row < BLOCK_M:
        dim = uint32(0)
        while dim < HDIM:
            i = accumulator + dim
            a = floats2half2(shared[i] / shared[row_sum], shared[i + 1] / shared[row_sum])
            b = floats2half2(shared[i + 2] / shared[row_sum], shared[i + 3] / shared[row_sum])
            c = floats2half2(shared[i + 4] / shared[row_sum], shared[i + 5] / shared[row_sum])
            d = floats2half2(shared[i + 6] / shared[row_sum], shared[i + 7] / shared[row_sum])
            st4(out_block, row * HDIM + dim, make_float4(a, b, c, d))
            dim += VECTOR


@register(
    family="fp16",
    title="Phase 6, iteration 2: a thread a row, output in shared memory",
    parent="fp16_phase6_iter1",
    baseline="fp16_phase4",
    source='Phase 6 Status Report, "Iteration 2 (Shared Memory Fix)"',
    change="maximum, sum and output of the rows in shared memory, not in local memory",
    iterations=100,
)
def fp16_phase6_iter2(problem: Problem) -> Plan:
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
