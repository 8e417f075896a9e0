"""Sinusoidal V2: full fusion, tables, 128-bit loads.

Change from sinusoidal_v1: six float4 loads for four dims: Q, K, and both tables at both positions. Half of each table
vector is unused, and the compiler replaces its load by two scalar loads of the other half. So only Q and K are loaded
four floats at a time; nvcc does the same.

Source: Fusing Positional Embeddings into Attention Kernels, "V2-V3".
"""

from numba import cuda, float32

from ...device import advance, cint, ld4, online_attention, rows_of_query
from ...version import Plan, Problem, register
from ..plan import REDUCTION_RACE, block_per_query, log_plan, online_layout, require_log_problem
from .tables import sinusoidal_tables


@cuda.jit(device=True, inline="always")
def score(rows, k_row, key, hdim):
    q_row, sin_q, cos_q, sin, cos = rows
    total = float32(0.0)
    sin_k = advance(sin, key * hdim)
    cos_k = advance(cos, key * hdim)
    dim = cint(0)
    while dim < hdim:
        a = ld4(q_row, dim)
        b = ld4(k_row, dim)
        sq = ld4(sin_q, dim)
        sk = ld4(sin_k, dim)
        cq = ld4(cos_q, dim)
        ck = ld4(cos_k, dim)
        total += (
            (a.x + sq.x) * (b.x + sk.x)
            + (a.y + cq.y) * (b.y + ck.y)
            + (a.z + sq.z) * (b.z + sk.z)
            + (a.w + cq.w) * (b.w + ck.w)
        )
        dim += 4
    return total


attend_to_keys = online_attention(score)


def attention(q, k, v, sin, cos, out, seq_q, seq_k, hdim, softmax_scale):
    shared = cuda.shared.array(0, float32, 16)
    tid = cint(cuda.threadIdx.x)
    query = cint(cuda.blockIdx.x)
    q_row, out_row, k_head, v_head = rows_of_query(q, k, v, out, query, seq_q, seq_k, hdim)
    sin_q = advance(sin, query * hdim)
    cos_q = advance(cos, query * hdim)
    attend_to_keys((q_row, sin_q, cos_q, sin, cos), k_head, v_head, out_row, shared, tid, seq_k, hdim, softmax_scale)


@register(
    title="Full fusion: tables, float4",
    parent="sinusoidal_v1",
    baseline="sinusoidal_separate_scalar",
    change="float4 loads",
    iterations=100,
)
def sinusoidal_v2(problem: Problem) -> Plan:
    """Plan float32 attention with sinusoidal embeddings, without a mask. Raises: Unsupported."""
    require_log_problem(problem, "sinusoidal")
    attend = block_per_query(attention, problem, "q k v sin cos out", online_layout())
    return log_plan(problem, attend, hazards=(REDUCTION_RACE,), buffers=sinusoidal_tables(problem))
