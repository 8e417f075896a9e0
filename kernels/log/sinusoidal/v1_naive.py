"""Sinusoidal V1: naive full fusion, tables read inside the dot product, scalar.

Change from sinusoidal_separate_scalar: one kernel. The dot product embeds the query and the key dim by dim, each from
its own row of the sin and cos tables. The embedding of the query is loaded again for every key.

Source: Fusing Positional Embeddings into Attention Kernels, "V1: Naive Fusion".
"""

from numba import cuda, float32

from ...device import advance, cint, online_attention, rows_of_query
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
        if dim % 2 == 0:
            a = q_row[dim] + sin_q[dim]
            b = k_row[dim] + sin_k[dim]
        else:
            a = q_row[dim] + cos_q[dim]
            b = k_row[dim] + cos_k[dim]
        total += a * b
        dim += 1
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
    title="Full fusion: tables, scalar",
    parent="sinusoidal_separate_scalar",
    baseline="sinusoidal_separate_scalar",
    change="everything in one kernel: Q and K embedded in the dot product",
    iterations=100,
    scalar_loads=True,
)
def sinusoidal_v1(problem: Problem) -> Plan:
    """Plan float32 attention with sinusoidal embeddings, without a mask. Raises: Unsupported."""
    require_log_problem(problem, "sinusoidal", multiple=2)
    attend = block_per_query(attention, problem, "q k v sin cos out", online_layout())
    return log_plan(problem, attend, hazards=(REDUCTION_RACE,), buffers=sinusoidal_tables(problem))
