"""RoPE V2: full fusion, cos and sin computed instead of looked up, scalar.

Change from rope_v1c: no tables. powf, a division and `__sincosf` compute the rotation of every pair, for the query row
with one thread per pair, and for every key again for every query. Scalar loads, as in rope_v1b.

Source: RoPE Fusion Implementation Log, V2, items 9-11.
"""

from numba import cuda, float32

from ...constants import EXTRA, FREQUENCY_BASE, THREADS
from ...device import cint, fast_sincos, online_attention, powf, rotate, rows_of_query
from ...version import SYNC, Plan, Problem, register
from ..plan import REDUCTION_RACE, block_per_query, log_plan, online_layout, require_log_problem


@cuda.jit(device=True, inline="always")
def score(shared, k_row, key, hdim):
    total = float32(0.0)
    position = float32(key)
    dim = cint(0)
    while dim < hdim:
        exponent = float32(dim) / float32(hdim)
        inv_freq = float32(1.0) / powf(float32(FREQUENCY_BASE), exponent)
        sin, cos = fast_sincos(position * inv_freq)
        x, y = rotate(k_row[dim], k_row[dim + 1], cos, sin)
        total += shared[EXTRA + dim] * x + shared[EXTRA + dim + 1] * y
        dim += 2
    return total


attend_to_keys = online_attention(score)


def attention(q, k, v, out, seq_q, seq_k, hdim, softmax_scale):
    shared = cuda.shared.array(0, float32, 16)
    tid = cint(cuda.threadIdx.x)
    query = cint(cuda.blockIdx.x)
    q_row, out_row, k_head, v_head = rows_of_query(q, k, v, out, query, seq_q, seq_k, hdim)

    dim = 2 * tid
    while dim < hdim:
        exponent = float32(dim) / float32(hdim)
        inv_freq = float32(1.0) / powf(float32(FREQUENCY_BASE), exponent)
        sin, cos = fast_sincos(float32(query) * inv_freq)
        x, y = rotate(q_row[dim], q_row[dim + 1], cos, sin)
        shared[EXTRA + dim] = x
        shared[EXTRA + dim + 1] = y
        dim += 2 * THREADS
    cuda.syncthreads()
    attend_to_keys(shared, k_head, v_head, out_row, shared, tid, seq_k, hdim, softmax_scale)


@register(
    title="Full fusion, computed, scalar",
    parent="rope_v1c",
    baseline="rope_separate",
    change="powf, a division and fast sine and cosine for every pair of every dot product; no tables, scalar loads",
    scalar_loads=True,
)
def rope_v2(problem: Problem) -> Plan:
    """Plan float32 RoPE attention of all dims. Raises: Unsupported."""
    require_log_problem(problem, "rope", multiple=2, all_dims=True)
    launch = block_per_query(attention, problem, "q k v out", online_layout(query=problem.hdim))
    return log_plan(problem, launch, SYNC, hazards=(REDUCTION_RACE,))
