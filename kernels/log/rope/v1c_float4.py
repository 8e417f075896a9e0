"""RoPE V1, final form: full fusion with tables, 128-bit loads.

Change from rope_v1b: Q, K and both tables are loaded as float4, two rotation pairs at a time.

Source: RoPE Fusion Implementation Log, V1, items 6-7.
"""

from numba import cuda, float32

from ...constants import EXTRA, THREADS
from ...device import cint, ld4, make_float4, online_attention, rotate, rows_of_query, st4
from ...version import SYNC, Plan, Problem, register
from ..plan import REDUCTION_RACE, block_per_query, log_plan, online_layout, require_log_problem
from .tables import rope_tables


@cuda.jit(device=True, inline="always")
def score(rows, k_row, key, hdim):
    shared, cos, sin = rows
    total = float32(0.0)
    table_row = key * hdim
    dim = cint(0)
    while dim < hdim:
        a = ld4(shared, EXTRA + dim)
        b = ld4(k_row, dim)
        c = ld4(cos, table_row + dim)
        s = ld4(sin, table_row + dim)
        k0, k1 = rotate(b.x, b.y, c.x, s.x)
        k2, k3 = rotate(b.z, b.w, c.z, s.z)
        total += a.x * k0 + a.y * k1 + a.z * k2 + a.w * k3
        dim += 4
    return total


attend_to_keys = online_attention(score)


def attention(q, k, v, cos, sin, out, seq_q, seq_k, hdim, softmax_scale):
    shared = cuda.shared.array(0, float32, 16)
    tid = cint(cuda.threadIdx.x)
    query = cint(cuda.blockIdx.x)
    q_row, out_row, k_head, v_head = rows_of_query(q, k, v, out, query, seq_q, seq_k, hdim)

    dim = 4 * tid
    while dim < hdim:
        x = ld4(q_row, dim)
        c = ld4(cos, query * hdim + dim)
        s = ld4(sin, query * hdim + dim)
        q0, q1 = rotate(x.x, x.y, c.x, s.x)
        q2, q3 = rotate(x.z, x.w, c.z, s.z)
        st4(shared, EXTRA + dim, make_float4(q0, q1, q2, q3))
        dim += 4 * THREADS
    cuda.syncthreads()
    attend_to_keys((shared, cos, sin), k_head, v_head, out_row, shared, tid, seq_k, hdim, softmax_scale)


@register(
    title="Full fusion, tables, float4",
    parent="rope_v1b",
    baseline="rope_separate",
    change="float4 loads of Q, K and both tables",
    iterations=10,
)
def rope_v1c(problem: Problem) -> Plan:
    """Plan float32 RoPE attention of all dims. Raises: Unsupported."""
    require_log_problem(problem, "rope", multiple=4, all_dims=True)
    launch = block_per_query(attention, problem, "q k v cos sin out", online_layout(query=problem.hdim))
    return log_plan(problem, launch, SYNC, hazards=(REDUCTION_RACE,), buffers=rope_tables(problem))
