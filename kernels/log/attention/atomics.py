"""Attention with atomics: two passes, scalar dot products, maximum and sum by atomics on shared memory.

The log's first kernel. A block of 256 threads computes one query row, and each thread whole keys. The threads share two
floats of shared memory (static in the source). The maximum is an integer atomic on the bits of a float, which orders
negative floats in reverse: a negative score never replaces the initial -inf, so a row with only negative scores becomes
NaN. That depends on the data. It is rare from 16 keys on, and this version takes no fewer.

Source: Final Summary, "Key Optimizations That Worked", item 2: the atomics that were replaced.
"""

import numpy as np
from numba import cuda, float32, int32

from ...constants import THREADS, require
from ...device import NEGATIVE_INFINITY, advance, cint, divide_weights, exponentials, rows_of_block, weigh_values
from ...version import SYNC, Plan, Problem, SharedLayout, register
from ..plan import block_per_query, log_plan, require_log_problem

LEAST_KEYS = 16


@cuda.jit(device=True, inline="always")
def attend_by_atomics(out_row, v_head, shared, bits, row_max, seq_k, hdim):
    """The output from the scores in `shared`: maximum and sum by atomics on the two floats after the scores."""
    tid = cint(cuda.threadIdx.x)
    block_max = seq_k
    block_sum = seq_k + 1
    if tid == 0:
        shared[block_max] = NEGATIVE_INFINITY
    cuda.syncthreads()
    cuda.atomic.max(bits, block_max, float32(row_max).view(np.int32))
    cuda.syncthreads()
    row_max = shared[block_max]

    row_sum = exponentials(shared, 0, seq_k, row_max)
    if tid == 0:
        shared[block_sum] = float32(0.0)
    cuda.syncthreads()
    cuda.atomic.add(shared, block_sum, row_sum)
    cuda.syncthreads()
    row_sum = shared[block_sum]

    divide_weights(shared, 0, seq_k, row_sum)
    cuda.syncthreads()
    weigh_values(out_row, v_head, shared, 0, seq_k, hdim)


def attention(q, k, v, out, seq_q, seq_k, hdim, softmax_scale):
    shared = cuda.shared.array(0, float32, 16)
    bits = cuda.shared.array(0, int32, 16)  # the same memory as integers
    tid = cint(cuda.threadIdx.x)
    q_row, out_row, k_head, v_head = rows_of_block(q, k, v, out, seq_q, seq_k, hdim)

    row_max = NEGATIVE_INFINITY
    key = tid
    while key < seq_k:
        k_row = advance(k_head, key * hdim)
        score = float32(0.0)
        dim = cint(0)
        while dim < hdim:
            score += q_row[dim] * k_row[dim]
            dim += 1
        score *= softmax_scale
        shared[key] = score
        row_max = max(row_max, score)
        key += THREADS
    attend_by_atomics(out_row, v_head, shared, bits, row_max, seq_k, hdim)


@register(
    title="Two passes, atomics",
    source='Final Summary, "Key Optimizations That Worked", item 2',
    iterations=10,
    scalar_loads=True,
    whole_rows=True,
)
def attention_atomics(problem: Problem) -> Plan:
    """Plan float32 attention without a mask of 16 keys or more. Raises: Unsupported."""
    require_log_problem(problem, "attention", multiple=1)
    require(problem.seq_k >= LEAST_KEYS, "seq_k", problem.seq_k, f"{LEAST_KEYS} keys or more")
    layout = SharedLayout(scores=problem.seq_k, block_max=1, block_sum=1)
    launch = block_per_query(attention, problem, "q k v out", layout, flat=True)
    return log_plan(problem, launch, SYNC)
