"""RoPE V1, final form: full fusion with tables, 128-bit loads.

Change from rope_v1b: Q, K and both tables are loaded as float4, two rotation pairs at a time.

Source: RoPE Fusion Implementation Log, V1, items 6-7.
"""

from numba import cuda, float32

from ..constants import BLOCK_K, EXTRA, REDUCTION, SCORES, THREADS
from ..device.block import rows_of_query
from ..device.cint import cint
from ..device.reduce import NEGATIVE_INFINITY
from ..device.softmax import add_values, divide_output, softmax_tile
from ..device.trig import rotate
from ..device.vector import advance, ld4, make_float4, st4
from ..planning import (
    attention_buffers,
    block_per_query,
    online_layout,
    reduction_race,
    require_full_rotation,
    require_log_problem,
)
from ..version import SYNC, Plan, Problem, register
from .tables import rope_tables


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

    row_max = NEGATIVE_INFINITY
    row_sum = float32(0.0)
    tile_start = cint(0)
    while tile_start < seq_k:
        tile = min(BLOCK_K, seq_k - tile_start)
        v_tile = advance(v_head, tile_start * hdim)
        key = tid
        while key < tile:
            k_row = advance(k_head, (tile_start + key) * hdim)
            score = float32(0.0)
            table_row = (tile_start + key) * hdim
            dim = cint(0)
            while dim < hdim:
                a = ld4(shared, EXTRA + dim)
                b = ld4(k_row, dim)
                c = ld4(cos, table_row + dim)
                s = ld4(sin, table_row + dim)
                k0, k1 = rotate(b.x, b.y, c.x, s.x)
                k2, k3 = rotate(b.z, b.w, c.z, s.z)
                score += a.x * k0 + a.y * k1 + a.z * k2 + a.w * k3
                dim += 4
            shared[SCORES + key] = score * softmax_scale
            key += THREADS
        cuda.syncthreads()
        row_max, correction, row_sum = softmax_tile(shared, SCORES, REDUCTION, tile, row_max, row_sum)
        add_values(out_row, v_tile, shared, SCORES, tile, hdim, tile_start, correction)
        cuda.syncthreads()
        tile_start += BLOCK_K

    divide_output(out_row, hdim, row_sum)


@register(
    title="Full fusion, tables, float4",
    parent="rope_v1b",
    baseline="rope_separate",
    change="float4 loads of Q, K and both tables",
    iterations=10,
)
def rope_v1c(problem: Problem) -> Plan:
    """Plan float32 RoPE attention of all dims. Raises: Unsupported."""
    require_log_problem(problem, "rope", multiple=4)
    require_full_rotation(problem)
    launch = block_per_query(attention, problem, "q k v cos sin out", online_layout(query=problem.hdim))
    return Plan(
        problem,
        attention_buffers(problem, **rope_tables(problem)),
        (launch, SYNC),
        hazards=(reduction_race("attention"),),
    )
