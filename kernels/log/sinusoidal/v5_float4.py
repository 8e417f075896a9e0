"""Sinusoidal V5: full fusion, frequencies cached in shared memory, 128-bit loads, fast sine and cosine.

Change from sinusoidal_v4: float4 loads of Q, K and the frequencies; `__sincosf` instead of sinf and cosf, one call for
every dim of the query and of the key, of which one result is used. The embedding of the query is still computed again
for every key.

Source: Fusing Positional Embeddings into Attention Kernels, "V4-V5".
"""

from numba import cuda, float32

from ...constants import EXTRA, FREQUENCY_BASE, THREADS
from ...device import cint, fast_cos, fast_sin, ld4, online_attention, powf, rows_of_query
from ...version import Plan, Problem, register
from ..plan import REDUCTION_RACE, block_per_query, log_plan, online_layout, require_log_problem


@cuda.jit(device=True, inline="always")
def score(row, k_row, key, hdim):
    q_row, query, shared = row
    total = float32(0.0)
    position = float32(key)
    dim = cint(0)
    while dim < hdim:
        a = ld4(q_row, dim)
        b = ld4(k_row, dim)
        freq = ld4(shared, EXTRA + dim)
        total += (
            (a.x + fast_sin(float32(query) * freq.x)) * (b.x + fast_sin(position * freq.x))
            + (a.y + fast_cos(float32(query) * freq.y)) * (b.y + fast_cos(position * freq.y))
            + (a.z + fast_sin(float32(query) * freq.z)) * (b.z + fast_sin(position * freq.z))
            + (a.w + fast_cos(float32(query) * freq.w)) * (b.w + fast_cos(position * freq.w))
        )
        dim += 4
    return total


attend_to_keys = online_attention(score)


def attention(q, k, v, out, seq_q, seq_k, hdim, softmax_scale):
    shared = cuda.shared.array(0, float32, 16)
    tid = cint(cuda.threadIdx.x)
    query = cint(cuda.blockIdx.x)
    q_row, out_row, k_head, v_head = rows_of_query(q, k, v, out, query, seq_q, seq_k, hdim)

    dim = tid
    while dim < hdim:
        exponent = float32(2 * (dim // 2)) / float32(hdim)
        shared[EXTRA + dim] = float32(1.0) / powf(float32(FREQUENCY_BASE), exponent)
        dim += THREADS
    cuda.syncthreads()
    attend_to_keys((q_row, query, shared), k_head, v_head, out_row, shared, tid, seq_k, hdim, softmax_scale)


@register(
    title="Full fusion: cached frequencies, float4",
    parent="sinusoidal_v4",
    baseline="sinusoidal_separate_scalar",
    change="float4 loads; fast sine and cosine",
    iterations=100,
)
def sinusoidal_v5(problem: Problem) -> Plan:
    """Plan float32 attention with sinusoidal embeddings, without a mask. Raises: Unsupported."""
    require_log_problem(problem, "sinusoidal")
    attend = block_per_query(attention, problem, "q k v out", online_layout(frequency=problem.hdim))
    return log_plan(problem, attend, hazards=(REDUCTION_RACE,))
