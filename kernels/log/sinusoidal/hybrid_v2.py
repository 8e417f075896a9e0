"""Sinusoidal hybrid V2: K embedded once by its own kernel, Q embedded inside the dot product.

Change from sinusoidal_hybrid_v1: no copy of the embedded query in shared memory; the dot product adds
the query's embedding from the tables, again for every key.

Source: Sinusoidal Hybrid Optimization Analysis, "Hybrid V2".
"""

from numba import cuda, float32

from ...device import advance, cint, ld4, make_float4, online_attention, rows_of_query
from ...version import SYNC, Buffer, Plan, Problem, register
from ..plan import REDUCTION_RACE, block_per_query, log_plan, online_layout, require_log_problem
from .dot import unrolled_dot
from .separate_float4 import launch_embed
from .tables import sinusoidal_tables


@cuda.jit(device=True)
def embedded_query(rows, dim):
    q_row, sin_q, cos_q = rows
    a = ld4(q_row, dim)
    s = ld4(sin_q, dim)
    c = ld4(cos_q, dim)
    return make_float4(a.x + s.x, a.y + c.y, a.z + s.z, a.w + c.w)


score = unrolled_dot(embedded_query)
attend_to_keys = online_attention(score)


def attention(q, k, v, sin, cos, out, seq_q, seq_k, hdim, softmax_scale):
    shared = cuda.shared.array(0, float32, 16)
    tid = cint(cuda.threadIdx.x)
    query = cint(cuda.blockIdx.x)
    q_row, out_row, k_head, v_head = rows_of_query(q, k, v, out, query, seq_q, seq_k, hdim)
    sin_q = advance(sin, query * hdim)
    cos_q = advance(cos, query * hdim)
    attend_to_keys((q_row, sin_q, cos_q), k_head, v_head, out_row, shared, tid, seq_k, hdim, softmax_scale)


@register(
    title="Hybrid: K embedded before, Q in the dot product",
    parent="sinusoidal_hybrid_v1",
    baseline="sinusoidal_separate_float4",
    change="Q embedded from the tables for every key, not once into shared memory",
    iterations=100,
)
def sinusoidal_hybrid_v2(problem: Problem) -> Plan:
    """Plan float32 attention with sinusoidal embeddings, without a mask. Raises: Unsupported."""
    require_log_problem(problem, "sinusoidal")
    attend = block_per_query(attention, problem, "q k_embedded v sin cos out", online_layout())
    buffers = {"k_embedded": Buffer(problem.kv_shape), **sinusoidal_tables(problem)}
    embed = launch_embed(problem, "k", "k_embedded")
    return log_plan(problem, embed, attend, SYNC, hazards=(REDUCTION_RACE,), buffers=buffers)
