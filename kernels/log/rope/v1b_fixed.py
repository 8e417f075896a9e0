"""RoPE V1, fixed: full fusion with tables, scalar, with reductions that share their result.

Change from rope_v1a: the block reductions store the result of the block and every thread reads it.

Source: RoPE Fusion Implementation Log, V1, items 4-5.
"""

from numba import cuda, float32

from ...constants import EXTRA, THREADS
from ...device import cint, online_attention, rotate, rows_of_query
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
        x, y = rotate(k_row[dim], k_row[dim + 1], cos[table_row + dim], sin[table_row + dim])
        total += shared[EXTRA + dim] * x
        total += shared[EXTRA + dim + 1] * y
        dim += 2
    return total


attend_to_keys = online_attention(score)


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


@register(
    title="Full fusion, tables, scalar",
    parent="rope_v1a",
    baseline="rope_separate",
    change="reductions share their result",
    iterations=10,
    scalar_loads=True,
)
def rope_v1b(problem: Problem) -> Plan:
    """Plan float32 RoPE attention of all dims. Raises: Unsupported."""
    require_log_problem(problem, "rope", multiple=2, all_dims=True)
    launch = block_per_query(attention, problem, "q k v cos sin out", online_layout(query=problem.hdim))
    return log_plan(problem, launch, SYNC, hazards=(REDUCTION_RACE,), buffers=rope_tables(problem))
