"""Sinusoidal hybrid V1: K embedded once by its own kernel, Q embedded inside the attention kernel.

Change from sinusoidal_separate_float4: no kernel for Q. The attention kernel embeds its query row from the tables into
shared memory and reads it from there.

Source: Sinusoidal Hybrid Optimization Analysis, "Hybrid V1".
"""

from numba import cuda, float32

from ...constants import EXTRA, THREADS
from ...device import cint, ld4, make_float4, online_attention, rows_of_query, st4
from ...version import SYNC, Buffer, Plan, Problem, register
from ..plan import REDUCTION_RACE, block_per_query, log_plan, online_layout, require_log_problem
from .dot import unrolled_dot
from .separate_float4 import launch_embed
from .tables import sinusoidal_tables


@cuda.jit(device=True)
def cached_query(shared, dim):
    return ld4(shared, EXTRA + dim)


score = unrolled_dot(cached_query)
attend_to_keys = online_attention(score)


def attention(q, k, v, sin, cos, out, seq_q, seq_k, hdim, softmax_scale):
    shared = cuda.shared.array(0, float32, 16)
    tid = cint(cuda.threadIdx.x)
    query = cint(cuda.blockIdx.x)
    q_row, out_row, k_head, v_head = rows_of_query(q, k, v, out, query, seq_q, seq_k, hdim)

    dim = 4 * tid
    while dim < hdim:
        a = ld4(q_row, dim)
        s = ld4(sin, query * hdim + dim)
        c = ld4(cos, query * hdim + dim)
        st4(shared, EXTRA + dim, make_float4(a.x + s.x, a.y + c.y, a.z + s.z, a.w + c.w))
        dim += 4 * THREADS
    cuda.syncthreads()
    attend_to_keys(shared, k_head, v_head, out_row, shared, tid, seq_k, hdim, softmax_scale)


@register(
    title="Hybrid: K embedded before, Q inside",
    parent="sinusoidal_separate_float4",
    baseline="sinusoidal_separate_float4",
    change="Q embedded inside the attention kernel; one launch fewer",
    iterations=100,
)
def sinusoidal_hybrid_v1(problem: Problem) -> Plan:
    """Plan float32 attention with sinusoidal embeddings, without a mask. Raises: Unsupported."""
    require_log_problem(problem, "sinusoidal")
    attend = block_per_query(attention, problem, "q k_embedded v sin cos out", online_layout(query=problem.hdim))
    buffers = {"k_embedded": Buffer(problem.kv_shape), **sinusoidal_tables(problem)}
    embed = launch_embed(problem, "k", "k_embedded")
    return log_plan(problem, embed, attend, SYNC, hazards=(REDUCTION_RACE,), buffers=buffers)
