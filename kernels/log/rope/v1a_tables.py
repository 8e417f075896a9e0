"""RoPE V1, first form: full fusion with tables, scalar; reductions that do not share their result.

The first fused kernel: each block rotates its query row into shared memory once, and rotates every key again for every
query, with cos and sin from global tables. Its block reductions leave out the last store, as in attention_online.

Source: RoPE Fusion Implementation Log, V1, items 1-3.
"""

import numpy as np
from numba import cuda, float32

from ...checking.models import Array, online_unshared, rotate_pairs, scaled_scores
from ...constants import EXTRA, THREADS
from ...device import cint, online_attention, rotate, rows_of_query, softmax_tile_unshared
from ...version import SYNC, Plan, Problem, register
from ..plan import UNSHARED_DEFECT, block_per_query, log_plan, online_layout, require_log_problem
from .tables import rope_tables


@cuda.jit(device=True, inline="always")
def score(rows, k_row, key, hdim):
    shared, cos, sin = rows
    total = float32(0.0)
    table_row = key * hdim
    dim = cint(0)
    while dim < hdim:
        x, y = rotate(k_row[dim], k_row[dim + 1], cos[table_row + dim], sin[table_row + dim])
        total += shared[EXTRA + dim] * x
        total += shared[EXTRA + dim + 1] * y
        dim += 2
    return total


attend_to_keys = online_attention(score, softmax_tile_unshared)


def attention(q, k, v, cos, sin, out, seq_q, seq_k, hdim, softmax_scale):
    shared = cuda.shared.array(0, float32, 16)
    tid = cint(cuda.threadIdx.x)
    query = cint(cuda.blockIdx.x)
    q_row, out_row, k_head, v_head = rows_of_query(q, k, v, out, query, seq_q, seq_k, hdim)

    dim = tid
    while dim < hdim:
        c = cos[query * hdim + dim]
        s = sin[query * hdim + dim]
        if dim % 2 == 0:
            shared[EXTRA + dim] = rotate(q_row[dim], q_row[dim + 1], c, s)[0]
        else:
            shared[EXTRA + dim] = rotate(q_row[dim - 1], q_row[dim], c, s)[1]
        dim += THREADS
    cuda.syncthreads()
    attend_to_keys((shared, cos, sin), k_head, v_head, out_row, shared, tid, seq_k, hdim, softmax_scale)


def wrong_output(problem: Problem, q: Array, k: Array, v: Array) -> Array:
    """In float64: reductions that do not share their result."""
    q, k = (rotate_pairs(x, np.arange(problem.seq_k), problem.rotary_dim) for x in (q, k))
    return online_unshared(scaled_scores(problem, q, k), v)


@register(
    title="Full fusion, tables, scalar, reduction bug",
    baseline="rope_separate",
    change="everything in one kernel: K rotated once a query",
    iterations=10,
    wrong_output=wrong_output,
    scalar_loads=True,
)
def rope_v1a(problem: Problem) -> Plan:
    """Plan float32 RoPE attention of all dims; wrong unless one warp holds all keys and dims. Raises: Unsupported."""
    require_log_problem(problem, "rope", multiple=2, all_dims=True)
    wrong = problem.seq_k > 32 or problem.hdim > 32
    launch = block_per_query(attention, problem, "q k v cos sin out", online_layout(query=problem.hdim))
    return log_plan(problem, launch, SYNC, defect=UNSHARED_DEFECT if wrong else "", buffers=rope_tables(problem))
