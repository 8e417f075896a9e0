"""Attention baseline: two passes, scalar dot products, shuffle reductions that do not share their result.

Change from attention_atomics: shuffles reduce maximum and sum, the dot product is unrolled by 16 and the product with V
by 4. The log's baseline times are of this kernel. A block of 256 threads computes one query row, and each thread whole
keys. Its reductions leave out the last store (`device.reduce.block_*_unshared`). So it is right for at most 32 keys;
with more, the keys from 32 on are scaled by the maximum and sum of their own warp.

Source: Final Summary, "What We Achieved", left-hand times.
"""

from numba import cuda, float32

from ...checking.models import Array, scaled_scores, two_pass_unshared
from ...constants import THREADS
from ...device import advance, cint, divide_weights, exponentials, no_unroll, rows_of_block
from ...device.reduce import NEGATIVE_INFINITY, block_max_unshared, block_sum_unshared
from ...version import SYNC, Plan, Problem, SharedLayout, register
from ..plan import block_per_query, log_plan, require_log_problem

DOT_UNROLL = 16
PV_UNROLL = 4


def attention(q, k, v, out, seq_q, seq_k, hdim, softmax_scale):
    shared = cuda.shared.array(0, float32, 16)
    reduction = seq_k
    tid = cint(cuda.threadIdx.x)
    q_row, out_row, k_head, v_head = rows_of_block(q, k, v, out, seq_q, seq_k, hdim)

    row_max = NEGATIVE_INFINITY
    key = tid
    while key < seq_k:
        k_row = advance(k_head, key * hdim)
        score = float32(0.0)
        dim = cint(0)
        while dim + DOT_UNROLL <= hdim:
            no_unroll()
            for step in range(DOT_UNROLL):
                score += q_row[dim + step] * k_row[dim + step]
            dim += DOT_UNROLL
        while dim < hdim:
            no_unroll()
            score += q_row[dim] * k_row[dim]
            dim += 1
        score *= softmax_scale
        shared[key] = score
        row_max = max(row_max, score)
        key += THREADS
    row_max = block_max_unshared(row_max, shared, reduction)

    row_sum = exponentials(shared, 0, seq_k, row_max)
    row_sum = block_sum_unshared(row_sum, shared, reduction)
    divide_weights(shared, 0, seq_k, row_sum)
    cuda.syncthreads()

    dim = tid
    while dim < hdim:
        acc = float32(0.0)
        key = cint(0)
        while key + PV_UNROLL <= seq_k:
            no_unroll()
            for step in range(PV_UNROLL):
                acc += shared[key + step] * v_head[(key + step) * hdim + dim]
            key += PV_UNROLL
        while key < seq_k:
            no_unroll()
            acc += shared[key] * v_head[key * hdim + dim]
            key += 1
        out_row[dim] = acc
        dim += THREADS


def wrong_output(problem: Problem, q: Array, k: Array, v: Array) -> Array:
    """In float64: the keys of each warp are scaled by its own maximum and sum."""
    return two_pass_unshared(scaled_scores(problem, q, k), v)


@register(
    title="Baseline: two passes, scalar",
    parent="attention_atomics",
    change="shuffle reductions instead of atomics; the dot product unrolled by 16, that with V by 4",
    iterations=10,
    wrong_output=wrong_output,
    scalar_loads=True,
    whole_rows=True,
)
def attention_baseline(problem: Problem) -> Plan:
    """Plan float32 attention without a mask; wrong for more than 32 keys. Raises: Unsupported."""
    require_log_problem(problem, "attention", multiple=1)
    layout = SharedLayout(scores=problem.seq_k, reduction=32)
    launch = block_per_query(attention, problem, "q k v out", layout, flat=True)
    wrong = problem.seq_k > 32
    return log_plan(
        problem, launch, SYNC, defect="each warp normalises its 32 keys by its own maximum and sum" if wrong else ""
    )
