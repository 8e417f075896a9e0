"""Attention with atomics and 128-bit loads of Q and K.

Change from attention_atomics: the dot product reads Q and K as float4. The source timed such a kernel and did not keep
it. Two things are assumed: the dot product is unrolled as in attention_two_pass_float4, which came next, and the rest
is attention_atomics.

Source: Final Summary, "Key Optimizations That Worked", items 2 and 3: the kernel after the first and before the second.
"""

from numba import cuda, float32, int32

from ...constants import THREADS, require
from ...device import NEGATIVE_INFINITY, advance, cint, dot4, rows_of_block
from ...version import SYNC, Plan, Problem, SharedLayout, register
from ..plan import block_per_query, log_plan, require_log_problem
from .atomics import LEAST_KEYS, attend_by_atomics


def attention(q, k, v, out, seq_q, seq_k, hdim, softmax_scale):
    shared = cuda.shared.array(0, float32, 16)
    bits = cuda.shared.array(0, int32, 16)  # the same memory as integers
    tid = cint(cuda.threadIdx.x)
    q_row, out_row, k_head, v_head = rows_of_block(q, k, v, out, seq_q, seq_k, hdim)

    row_max = NEGATIVE_INFINITY
    key = tid
    while key < seq_k:
        k_row = advance(k_head, key * hdim)
        score = dot4(float32(0.0), q_row, 0, k_row, 0, cint(0), hdim)
        score *= softmax_scale
        shared[key] = score
        row_max = max(row_max, score)
        key += THREADS
    attend_by_atomics(out_row, v_head, shared, bits, row_max, seq_k, hdim)


@register(
    title="Two passes, atomics, float4",
    parent="attention_atomics",
    baseline="attention_baseline",
    source='Final Summary, "Key Optimizations That Worked", items 2 and 3',
    change="float4 loads of Q and K",
    whole_rows=True,
)
def attention_atomics_float4(problem: Problem) -> Plan:
    """Plan float32 attention without a mask of 16 keys or more. Raises: Unsupported."""
    require_log_problem(problem, "attention")
    require(problem.seq_k >= LEAST_KEYS, "seq_k", problem.seq_k, f"{LEAST_KEYS} keys or more")
    layout = SharedLayout(scores=problem.seq_k, block_max=1, block_sum=1)
    launch = block_per_query(attention, problem, "q k v out", layout, flat=True)
    return log_plan(problem, launch, SYNC)
