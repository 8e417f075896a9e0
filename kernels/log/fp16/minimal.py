"""FP16 minimal: one block a query row, one thread a key, a shared atomic for every dim of the output.

Inputs and output are half precision, arithmetic is float32. Half of the 128 threads own a key or a dim. All threads
scan all scores for the maximum and again for the sum, and each thread that owns a dim computes every exponential again
for it. No other thread adds to that dim, so its atomic, one per tile, is unnecessary.

Source: Phase 6 Status Report, "2.79x vs minimal".
"""

import math

from numba import cuda, float32

from ...constants import BLOCK_K
from ...device import NEGATIVE_INFINITY, advance, cint, float2half, half2float, opaque
from ...version import SYNC, Plan, Problem, SharedLayout, register
from .arrays import shared_arrays
from .products import rows_of_block
from .shapes import HDIM, fp16_buffers, fp16_launch, require_fp16_problem

THREADS = 128
# The factors by which nvcc unrolls these loops by default.
DOT_UNROLL = 16
PV_UNROLL = 4

LAYOUT = SharedLayout(query=HDIM, accumulator=HDIM, scores=BLOCK_K)
shared = shared_arrays(LAYOUT)


def attention(q, k, v, out, seq, softmax_scale):
    query, accumulator, scores = shared()
    tid = cint(cuda.threadIdx.x)
    _, q_row, out_row, k_head, v_head = rows_of_block(q, k, v, out, 1, seq)

    if tid < HDIM:
        query[tid] = half2float(q_row[tid])
    cuda.syncthreads()
    if tid < HDIM:
        accumulator[tid] = float32(0.0)
    cuda.syncthreads()
    row_max = NEGATIVE_INFINITY
    row_sum = float32(0.0)
    tile_start = cint(0)
    while tile_start < seq:
        if tid < BLOCK_K:
            k_row = advance(k_head, (tile_start + tid) * HDIM)
            score = float32(0.0)
            dim = cint(0)
            while dim < HDIM:
                for step in range(DOT_UNROLL):
                    score += query[dim + step] * half2float(k_row[dim + step])
                dim += DOT_UNROLL
            scores[tid] = score * softmax_scale
        cuda.syncthreads()

        new_max = row_max
        key = cint(0)
        while key < BLOCK_K:
            new_max = max(new_max, scores[key])
            key += 1
        correction = math.exp(row_max - new_max)
        tile_sum = float32(0.0)
        key = cint(0)
        while key < BLOCK_K:
            tile_sum += math.exp(scores[key] - new_max)
            key += 1
        row_sum = correction * row_sum + tile_sum
        row_max = new_max
        if tid < HDIM:
            accumulator[tid] *= correction
        cuda.syncthreads()

        if tid < HDIM:
            v_tile = advance(v_head, tile_start * HDIM)
            acc = float32(0.0)
            key = cint(0)
            while key < opaque(BLOCK_K):
                for step in range(PV_UNROLL):
                    p = math.exp(scores[key + step] - new_max)
                    acc += p * half2float(v_tile[(key + step) * HDIM + tid])
                key += PV_UNROLL
            cuda.atomic.add(accumulator, tid, acc)
        cuda.syncthreads()
        tile_start += BLOCK_K

    if tid < HDIM:
        out_row[tid] = float2half(accumulator[tid] / row_sum)


@register(title="Minimal: one row a block, shared atomics", iterations=100, scalar_loads=True)
def fp16_minimal(problem: Problem) -> Plan:
    """Plan float16 attention without a mask, head dim 64. Raises: Unsupported."""
    require_fp16_problem(problem, causal=False)
    launch = fp16_launch(problem, attention, 1, THREADS, fast_math=False, static=LAYOUT)
    return Plan(problem, fp16_buffers(problem), (launch, SYNC))
