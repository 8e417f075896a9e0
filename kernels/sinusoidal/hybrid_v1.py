"""Sinusoidal hybrid V1: K embedded once by its own kernel, Q embedded inside the attention kernel.

Change from sinusoidal_separate_float4: no kernel for Q. The attention kernel embeds its query row from the tables into
shared memory and reads it from there.

Source: Sinusoidal Hybrid Optimization Analysis, "Hybrid V1".
"""

from numba import cuda, float32

from ..constants import BLOCK_K, EXTRA, REDUCTION, SCORES, THREADS
from ..device.block import rows_of_query
from ..device.cint import cint
from ..device.reduce import NEGATIVE_INFINITY
from ..device.softmax import add_values, divide_output, softmax_tile
from ..device.vector import advance, ld4, make_float4, st4
from ..planning import attention_buffers, block_per_query, online_layout, reduction_race, require_log_problem
from ..version import SYNC, Buffer, Plan, Problem, register
from .dot import HINT, unrolled_dot
from .separate_float4 import launch_embed
from .tables import sinusoidal_tables


@cuda.jit(device=True)
def cached_query(shared, dim):
    return ld4(shared, EXTRA + dim)


dot = unrolled_dot(cached_query, HINT)


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

    row_max = NEGATIVE_INFINITY
    row_sum = float32(0.0)
    tile_start = cint(0)
    while tile_start < seq_k:
        tile = min(BLOCK_K, seq_k - tile_start)
        v_tile = advance(v_head, tile_start * hdim)
        key = tid
        while key < tile:
            k_row = advance(k_head, (tile_start + key) * hdim)
            shared[SCORES + key] = dot(shared, k_row, hdim) * softmax_scale
            key += THREADS
        cuda.syncthreads()
        row_max, correction, row_sum = softmax_tile(shared, SCORES, REDUCTION, tile, row_max, row_sum)
        add_values(out_row, v_tile, shared, SCORES, tile, hdim, tile_start, correction)
        cuda.syncthreads()
        tile_start += BLOCK_K

    divide_output(out_row, hdim, row_sum)


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
    return Plan(
        problem,
        attention_buffers(problem, k_embedded=Buffer(problem.kv_shape), **sinusoidal_tables(problem)),
        (launch_embed(problem, "k", "k_embedded"), attend, SYNC),
        hazards=(reduction_race("attention"),),
    )
