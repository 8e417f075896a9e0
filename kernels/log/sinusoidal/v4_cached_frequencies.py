"""Sinusoidal V4: full fusion, frequencies cached in shared memory, scalar.

Change from sinusoidal_v3: the frequency of every dim is computed once per block, so the dot product has no powf.

Source: Fusing Positional Embeddings into Attention Kernels, "V4-V5".
"""

from numba import cuda, float32

from ...constants import EXTRA, FREQUENCY_BASE, THREADS
from ...device import cint, cosf, online_attention, powf, rows_of_query, sinf
from ...version import Plan, Problem, register
from ..plan import REDUCTION_RACE, block_per_query, log_plan, online_layout, require_log_problem


@cuda.jit(device=True, inline="always")
def score(row, k_row, key, hdim):
    q_row, query, shared = row
    total = float32(0.0)
    position = float32(key)
    dim = cint(0)
    while dim < hdim:
        freq = shared[EXTRA + dim]
        if dim % 2 == 0:
            a = q_row[dim] + sinf(float32(query) * freq)
            b = k_row[dim] + sinf(position * freq)
        else:
            a = q_row[dim] + cosf(float32(query) * freq)
            b = k_row[dim] + cosf(position * freq)
        total += a * b
        dim += 1
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
    title="Full fusion: cached frequencies, scalar",
    parent="sinusoidal_v3",
    baseline="sinusoidal_separate_scalar",
    change="frequencies computed once a block, in shared memory",
    iterations=100,
    scalar_loads=True,
    accurate_sines=True,
)
def sinusoidal_v4(problem: Problem) -> Plan:
    """Plan float32 attention with sinusoidal embeddings, without a mask. Raises: Unsupported."""
    require_log_problem(problem, "sinusoidal", multiple=2)
    attend = block_per_query(attention, problem, "q k v out", online_layout(frequency=problem.hdim))
    return log_plan(problem, attend, hazards=(REDUCTION_RACE,))
