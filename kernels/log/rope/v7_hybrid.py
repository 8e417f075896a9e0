"""RoPE V7, hybrid: K rotated once by its own kernel, Q rotated inside the attention kernel.

Change from rope_separate: no kernel for Q and no sync between the launches. The attention kernel computes the inverse
frequencies once per block, rotates its query row into shared memory with one thread per pair, and reads it from there.

Source: RoPE Fusion Implementation Log, V7, items 29-33.
"""

import numpy as np
from numba import cuda, float32

from ...checking.models import Array, rotate_pairs, scaled_scores, softmax
from ...constants import EXTRA, THREADS
from ...device import cint, ld4, online_attention, rows_of_query
from ...version import SYNC, Buffer, Plan, Problem, register
from ..plan import REDUCTION_RACE, block_per_query, log_plan, online_layout, require_log_problem
from .query import cache_frequencies, rotate_query
from .separate import launch_rotate, padded_tables, position_defect, position_hazards, token_positions


@cuda.jit(device=True, inline="always")
def score(shared, k_row, key, hdim):
    total = float32(0.0)
    dim = cint(0)
    while dim < hdim:
        if dim + 3 >= hdim:
            break
        a = ld4(shared, EXTRA + dim)
        b = ld4(k_row, dim)
        total += a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w
        dim += 4
    return total


attend_to_keys = online_attention(score)


def attention(q, k, v, out, seq_q, seq_k, hdim, rotary_dim, softmax_scale):
    shared = cuda.shared.array(0, float32, 16)
    tid = cint(cuda.threadIdx.x)
    query = cint(cuda.blockIdx.x)
    q_row, out_row, k_head, v_head = rows_of_query(q, k, v, out, query, seq_q, seq_k, hdim)

    inv_freq = EXTRA + hdim
    cache_frequencies(shared, inv_freq, rotary_dim)
    cuda.syncthreads()
    rotate_query(shared, EXTRA, q_row, query, shared, inv_freq, rotary_dim)
    dim = rotary_dim + tid
    while dim < hdim:
        shared[EXTRA + dim] = q_row[dim]
        dim += THREADS
    cuda.syncthreads()
    attend_to_keys(shared, k_head, v_head, out_row, shared, tid, seq_k, hdim, softmax_scale)


def wrong_output(problem: Problem, q: Array, k: Array, v: Array) -> Array:
    """In float64: K rotated by its token index modulo 64, Q by its position."""
    q = rotate_pairs(q, np.arange(problem.seq_q), problem.rotary_dim)
    k = rotate_pairs(k, token_positions(problem), problem.rotary_dim)
    return softmax(scaled_scores(problem, q, k)) @ v


@register(
    title="Hybrid: K rotated before, Q inside",
    parent="rope_separate",
    baseline="rope_separate",
    change="Q rotated inside the attention kernel; one launch and one sync fewer",
    wrong_output=wrong_output,
)
def rope_v7(problem: Problem) -> Plan:
    """Plan float32 RoPE attention; wrong where a position is not the token index modulo 64. Raises: Unsupported."""
    require_log_problem(problem, "rope")
    layout = online_layout(query=problem.hdim, inv_freq=problem.rotary_dim // 2)
    attend = block_per_query(attention, problem, "q k_rotated v out", layout, problem.rotary_dim)
    return log_plan(
        problem,
        launch_rotate(problem, "k", "k_rotated"),
        attend,
        SYNC,
        defect=position_defect(problem),
        hazards=(*position_hazards(problem), REDUCTION_RACE),
        buffers={"k_rotated": Buffer(problem.kv_shape), **padded_tables(problem)},
    )
